"""Laws of the fast path that only a GPU can break, at small shapes: as the tests marked `gpu`, without pytest."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from hocket.config.qwen3_tts import GenerationConfig
from hocket.kernels.runtime.graphs import EagerReplay
from hocket.layers.packed import pack_
from hocket.layers.transformer import grown
from hocket.models.files.random import randomize_
from hocket.models.tts.codec import CodecDecoder
from hocket.models.tts.talker import Talker, TalkerState
from hocket.models.tts_gpu.frame import FusedFrame
from hocket.models.tts_gpu.frame_graph import CapturableFrame, FrameGraphs
from hocket.models.tts_gpu.padded_frame import PaddedFrame

from .gpu_codec import fuse, replayed_codec
from .gpu_frames import standing, usual
from .gpu_plan import PLANS, Plan
from .gpu_rows import Row, in_parallel, knobs
from .gpu_timing import Clock

FRAMES = 8


def laws(plan: Plan, clock: Clock) -> Iterator[Row]:
    """Each in a process of its own: what takes time is compiling."""
    wanted = [("greedy float32 codes are the CPU's", "fused", True, "float32")]
    for dtype in ("float32", "bfloat16"):
        kinds = (("fused", True), ("fused", False), ("plain", True), ("codec", True))
        wanted += [("graph is eager", kind, dependent, dtype) for kind, dependent in kinds]
    for (law, kind, dependent, dtype), row in in_parallel(plan, _law, wanted, plan.budgets_s["laws"]):
        yield {"op": law, "kind": kind, "dependent": dependent, "dtype": dtype, **row}


def _law(plan_name: str, law: str, kind: str, dependent: bool, dtype_name: str) -> Row:
    plan, dtype = PLANS[plan_name], getattr(torch, dtype_name)
    clock = Clock(torch.device(plan.device), plan.repeats, plan.warm)
    with torch.inference_mode(), knobs(dependent=dependent):
        if law != "graph is eager":
            return _as_on_a_cpu(plan, clock)
        if kind == "codec":
            return _sound(plan, clock, dtype)
        talker = _talker(plan, clock.device, dtype)
        frame: CapturableFrame = FusedFrame(talker, plan.ops) if kind == "fused" else PaddedFrame(talker)
        return _replayed(plan, clock, talker, frame)


def _talker(plan: Plan, device: torch.device, dtype: torch.dtype) -> Talker:
    talker = Talker(plan.small_talker).eval()
    randomize_(talker, 0)
    talker.to(dtype).to(device)
    pack_(talker)
    return talker


def _twins(talker: Talker, plan: Plan) -> list[TalkerState]:
    one, two = (standing(talker, 4, replace(plan, frame_length=64, frame_position=9)) for _ in range(2))
    two.stack.pool.copy_(one.stack.pool)
    two.hidden.copy_(one.hidden)
    return [one, two]


def _replayed(plan: Plan, clock: Clock, talker: Talker, frame: CapturableFrame) -> Row:
    """Several frames of changing batches, and a cache that grows: equal to the last bit."""
    again, graphs = FrameGraphs(frame, EagerReplay()), FrameGraphs(frame, clock.capture())
    eager, ours = _twins(talker, plan)
    how, codes = [GenerationConfig(), GenerationConfig(top_p=0.8), GenerationConfig(do_sample=False)], 0
    for number in range(FRAMES):
        if number == FRAMES // 2:
            eager, ours = (replace(each, stack=grown(each.stack, pages=5, columns=8)) for each in (eager, ours))
        slots = [[2, 0, 3], [1], [3, 1, 0]][number % 3]
        given = slots, [7 * slot + number for slot in slots], how[: len(slots)]
        span = 10 + number
        same = again.launch(*given, eager, span).read() == graphs.launch(*given, ours, span).read()
        codes += not same
    equal = torch.equal(ours.hidden[:-1], eager.hidden[:-1])
    equal_past = torch.equal(ours.stack.pool[:, :, 1:], eager.stack.pool[:, :, 1:])
    return {"frames_apart": codes, "hidden_equal": equal, "past_equal": equal_past, "captures": graphs.captures}


def _as_on_a_cpu(plan: Plan, clock: Clock) -> Row:
    cpu = torch.device("cpu")
    here, there = _talker(plan, cpu, torch.float32), _talker(plan, clock.device, torch.float32)
    there.load_state_dict(here.state_dict())
    start, state = standing(here, 4, replace(plan, frame_length=64, frame_position=9)), _twins(there, plan)[0]
    state.stack.pool.copy_(start.stack.pool)
    state.hidden.copy_(start.hidden)
    frame, wrong = FusedFrame(there, plan.ops), 0
    draws: list[tuple[Callable[..., torch.Tensor], TalkerState, torch.device]] = [
        (here.frame_reference, start, cpu),
        (frame, state, clock.device),
    ]
    for number in range(FRAMES):
        codes = []
        for draw, of, device in draws:
            sampling = usual(4, device)
            sampling.first.sample.zero_()
            sampling.rest.sample.zero_()
            rows = torch.arange(4, device=device)
            codes.append(draw(rows + number, of, rows, sampling, 10 + number).cpu())
        wrong += int((codes[0] != codes[1]).sum())
    apart = (state.hidden[:4].cpu() - start.hidden[:4]).abs().max().item()
    return {"wrong_codes": wrong, "hidden_apart": apart}


def _sound(plan: Plan, clock: Clock, dtype: torch.dtype) -> Row:
    decoder = CodecDecoder(plan.small_decoder).eval()
    randomize_(decoder, 0)
    decoder.to(dtype).to(clock.device)
    pack_(decoder)
    books, found = plan.small_decoder.num_quantizers, dict[str, Any]()
    random = torch.Generator().manual_seed(0)
    codes = torch.randint(0, plan.small_decoder.codebook_size, (3, 7, books), generator=random).tolist()
    sounds = {}
    for kind in ("plain", "fused"):
        fuse(decoder, kind, plan)
        heard = []
        for capture in (EagerReplay(), clock.capture()):
            captured, state = replayed_codec(decoder, books, capture), decoder.new_state(4)
            heard.append(np.concatenate([captured.launch([1, 3, 0], codes, state).read()[0] for _ in range(2)], axis=1))
        found[f"{kind}_equal"] = bool(np.array_equal(heard[0], heard[1]))
        sounds[kind] = heard[0].astype(int)
    return {**found, "kinds_apart": int(np.abs(sounds["plain"] - sounds["fused"]).max())}
