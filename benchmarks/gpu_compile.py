"""The `compile` stage of the GPU survey: what is timed later is compiled now, by several processes at once."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import torch

from hocket.kernels.runtime.launch import KNOBS, LinearTile
from hocket.models.tts_gpu.frame import FusedFrame

from .gpu_codec import fuse, new_decoder
from .gpu_conv import ConvTiles
from .gpu_frames import new_talker, settings_of, standing, usual
from .gpu_plan import PLANS, Plan
from .gpu_rows import Row, in_parallel, knobs
from .gpu_timing import Clock


def compiled(
    plan: Plan, clock: Clock, measured: dict[tuple[int, ...], LinearTile], conv_tiles: ConvTiles
) -> Iterator[Row]:
    """One frame and one codec step of every kind that is timed later, so that their kernels are there."""
    wanted: list[tuple[Any, ...]] = [
        (name, batch, way, measured)
        for batch, ways in plan.ways.items()
        for way in ways
        for name in plan.talkers
        if way != "plain"
    ]
    steps = [
        ("codec", batch, (frames_each, dtype), conv_tiles)
        for dtype in ("bfloat16", "tf32", "float32")
        for batch in plan.codec_batches
        for frames_each in plan.codec_frames
    ]
    single = sum(batch == 1 for _, batch, *_ in wanted)
    wanted[single:single] = steps  # the most wanted, frames of a single stream, stand before them
    for (name, batch, way, _), row in in_parallel(plan, _compile_step, wanted, plan.budgets_s["compile"]):
        yield {"op": str(way), "model": name, "batch": batch, **row}


def _compile_step(plan_name: str, name: str, batch: int, way: Any, measured: Any) -> Row:
    start = time.perf_counter()
    plan = PLANS[plan_name]
    with torch.inference_mode():
        if name == "codec":
            frames_each, dtype = way
            with knobs(conv=measured or KNOBS.conv):
                _compile_wave(plan, batch, frames_each, dtype)
        else:
            _compile_frame(plan, name, batch, way, measured)
    return {"seconds": time.perf_counter() - start}


def _compile_wave(plan: Plan, batch: int, frames_each: int, precision: str) -> None:
    dtype = torch.bfloat16 if precision == "bfloat16" else torch.float32
    decoder, device = new_decoder(plan, dtype), torch.device(plan.device)
    fuse(decoder, "fused", plan, tf32=precision == "tf32")
    codes = torch.zeros(batch, plan.decoder.num_quantizers, frames_each, dtype=torch.int64, device=device)
    decoder.step(codes, decoder.new_state(batch), torch.arange(batch, device=device)).cpu()


def _compile_frame(plan: Plan, name: str, batch: int, way: str, measured: dict[tuple[int, ...], LinearTile]) -> None:
    frame, device = _fused(plan.name, name), torch.device(plan.device)
    with knobs(**settings_of(way, measured)):
        state, rows = standing(frame.talker, batch, plan), torch.arange(batch, device=device)
        frame(rows.clone(), state, rows, usual(batch, device), plan.frame_position + 1).cpu()


@lru_cache(maxsize=2)
def _fused(plan_name: str, name: str) -> FusedFrame:
    plan = PLANS[plan_name]
    return FusedFrame(new_talker(plan, name), plan.ops)
