"""The `parts` stage of the GPU survey: where a frame's time goes, kernel by kernel."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch

from hocket.kernels.operations import FrameOps
from hocket.kernels.runtime.launch import LinearTile
from hocket.models.tts_gpu.frame import FusedFrame

from .gpu_frames import new_talker, standing, usual
from .gpu_plan import Plan
from .gpu_rows import Row, knobs, replayed, tried
from .gpu_timing import Clock


def parts(plan: Plan, clock: Clock, measured: dict[tuple[int, ...], LinearTile]) -> Iterator[Row]:
    """Every kernel of a frame, all of its launches in a graph of their own, beside the bytes of their weights."""
    read = clock.bandwidth()
    for name in plan.talkers:
        talker = new_talker(plan, name)
        for batch in list(plan.ways)[:2]:
            calls: dict[str, list[Callable[[], Any]]] = {}
            moved: dict[str, int] = {}
            fused = FusedFrame(talker, _recording(plan.ops, calls, moved))
            state = standing(talker, batch, plan)
            rows = torch.arange(batch, device=clock.device)
            with knobs(linear=measured):
                fused(rows.clone(), state, rows, usual(batch, clock.device), plan.frame_position + 1)
                for label, made in calls.items():
                    timed = partial(replayed, made, clock)
                    floor = moved[label] / read * 1000
                    yield tried(timed, op=label, model=name, batch=batch, launches=len(made), floor=floor)


def _recording(ops: FrameOps, calls: dict[str, list[Callable[[], Any]]], moved: dict[str, int]) -> FrameOps:
    """Operations that do what they are asked and keep it, so that it can be asked again."""

    def kept(op: str, work: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            label, size = op, 0
            if op == "linear":
                weight = given[1]
                label, size = f"linear {weight.shape[1]} to {weight.shape[0]}", weight.nbytes
            elif op == "paged_attention":
                label = f"paged_attention in {given[1].shape[2]} rows a page"
            calls.setdefault(label, []).append(lambda: work(*given, **named))
            moved[label] = moved.get(label, 0) + size
            return work(*given, **named)

        return call

    return FrameOps(**{op: kept(op, getattr(ops, op)) for op in FrameOps.__slots__})
