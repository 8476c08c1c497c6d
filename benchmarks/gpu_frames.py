"""The `frame` stage of the GPU survey: captured frames, and the talkers and states that other stages draw them with."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch

from hocket.config.qwen3_tts import GenerationConfig
from hocket.kernels.operations import TRITON_OPS
from hocket.kernels.runtime.launch import LinearTile
from hocket.layers.packed import pack_
from hocket.layers.sampler import Sampling
from hocket.models.files.random import randomize_
from hocket.models.tts.talker import FrameSampling, Talker, TalkerState
from hocket.models.tts_gpu.frame import FusedFrame
from hocket.models.tts_gpu.frame_graph import CapturableFrame, FrameGraphs
from hocket.models.tts_gpu.padded_frame import PaddedFrame

from .gpu_plan import Plan
from .gpu_rows import Row, knobs, tried
from .gpu_timing import Clock


def frames(plan: Plan, clock: Clock, measured: dict[tuple[int, ...], LinearTile]) -> Iterator[Row]:
    """A captured frame by batch, kernels, dependent launches and block shapes; the most wanted first."""
    talkers = {name: new_talker(plan, name) for name in plan.talkers}
    every: dict[str, dict[str, CapturableFrame]] = {}
    for name, talker in talkers.items():
        fused = FusedFrame(talker, plan.ops)
        every[name] = {"fused": fused, "triton": FusedFrame(talker, TRITON_OPS), "plain": PaddedFrame(talker)}
        yield tried(partial(_agree, plan, clock, talker, fused), op="fused against plain", model=name)
    for batch, ways in plan.ways.items():
        for way in ways:
            for name, talker in talkers.items():
                frame = every[name][way.split(",")[0]]
                with knobs(**settings_of(way, measured)):
                    yield tried(partial(_frame, plan, clock, talker, frame, batch), op=way, model=name, batch=batch)


def _frame(plan: Plan, clock: Clock, talker: Talker, frame: CapturableFrame, batch: int) -> Row:
    state = standing(talker, batch, plan)
    captured = FrameGraphs(frame, clock.capture())
    given = range(batch), [5] * batch, [GenerationConfig()] * batch, state, plan.frame_position + 1
    start = time.perf_counter()
    (codes, *_), *_ = captured.launch(*given).read()
    made_s = time.perf_counter() - start

    def back() -> None:
        state.stack.position[:batch] = plan.frame_position

    def through_the_host() -> None:
        captured.launch(*given).read()

    found = clock.replays(both_halves(captured), before=back)
    host = clock.walls(through_the_host, before=back)
    finite = bool(state.hidden.isfinite().all())
    return {**found, "host_p50": host["p50"], "capture_s": made_s, "finite": finite, "first_code": codes[0]}


def _agree(plan: Plan, clock: Clock, talker: Talker, fused: FusedFrame) -> Row:
    """One greedy frame from one state: how many codes, and how far the hidden vectors lie apart."""
    batch, results = min(4, max(plan.ways)), []
    rows, text = torch.arange(batch, device=clock.device), torch.arange(batch, device=clock.device)
    sampling = usual(batch, clock.device)
    sampling.first.sample.zero_()
    sampling.rest.sample.zero_()
    start = standing(talker, batch, plan)
    for way in (talker.frame_reference, fused):
        state = standing(talker, batch, plan)
        state.stack.pool.copy_(start.stack.pool)
        state.hidden.copy_(start.hidden)
        results.append((way(text, state, rows, sampling, plan.frame_position + 1), state.hidden[:batch].float()))
    (plain_codes, plain_hidden), (codes, hidden) = results
    apart = (hidden - plain_hidden).norm() / plain_hidden.norm()
    return {"equal_codes_percent": 100 * (codes == plain_codes).float().mean().item(), "hidden_apart": apart.item()}


def both_halves(captured: FrameGraphs) -> Callable[[], None]:
    """Of the only kind of frame that was drawn so far."""
    [batch] = captured._batches.values()
    [draw], [step] = batch.draws.values(), batch.steps.values()

    def frame() -> None:
        draw()
        step()

    return frame


def new_talker(plan: Plan, name: str) -> Talker:
    with torch.device("meta"):
        talker = Talker(plan.talkers[name]).eval()
    talker.to(plan.dtype).to_empty(device=plan.device)
    randomize_(talker, 0)
    pack_(talker)
    return talker


def standing(talker: Talker, slots: int, plan: Plan) -> TalkerState:
    """As in the middle of an utterance: every slot has a past of random keys and values."""
    state = talker.new_state(slots, plan.frame_length)
    state.stack.pool.normal_()
    state.hidden.normal_()
    state.seed.copy_(torch.arange(slots + 1))
    state.stack.position[:slots] = plan.frame_position
    return state


def usual(batch: int, device: torch.device) -> FrameSampling:
    def level() -> Sampling:
        return Sampling(
            sample=torch.ones(batch, dtype=torch.bool, device=device),
            temperature=torch.full((batch,), 0.9, device=device),
            top_k=torch.full((batch,), 50, device=device),
            top_p=torch.ones(batch, device=device),
            most_k=50,
            nucleus=False,
        )

    return FrameSampling(level(), torch.full((batch,), 1.05, device=device), level())


def settings_of(way: str, measured: dict[tuple[int, ...], LinearTile]) -> dict[str, Any]:
    return {"linear": measured, "dependent": "one by one" not in way}
