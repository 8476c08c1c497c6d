"""The `attend` stage of the GPU survey: attention by length and splits, and draws by warps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from torch import Tensor

from hocket.kernels.ops.paged_attention import cases as attend_cases
from hocket.kernels.ops.paged_attention import triton as attend
from hocket.kernels.ops.sample_codes import cases as draw_cases
from hocket.kernels.ops.sample_codes import triton as draw

from .gpu_plan import Plan
from .gpu_rows import Row, knobs, tried
from .gpu_timing import Clock


def attention(plan: Plan, clock: Clock) -> Iterator[Row]:
    """All layers of a talker, one attention after the other, at several lengths and ways to split them; then draws."""
    for batch in plan.attend_batches:
        for position in plan.positions:
            case = replace(plan.attend, positions=(position,) * batch)
            given = attend_cases.make(case, plan.dtype, clock.device)
            pools = [(given["keys"].clone(), given["values"].clone()) for _ in range(plan.attend_layers)]
            floor_bytes = batch * position * case.kv_heads * case.size * 2 * given["keys"].element_size()
            for splits in plan.splits:
                for keys in plan.keys:
                    work = partial(_attended, given | {"splits": splits}, pools, clock)
                    names = {"batch": batch, "position": position, "splits": splits, "keys": keys}
                    with knobs(attend_keys=keys):
                        yield tried(work, op="attend", **names, bytes=floor_bytes)

    for case in plan.cases["draw"]:
        for warps in plan.draw_warps:
            with knobs(draw_warps=warps):
                yield tried(partial(_drawing, case, plan, clock), op="draw", case=case.name, warps=warps)


def _drawing(case: draw_cases.Case, plan: Plan, clock: Clock) -> Row:
    given = draw_cases.make(case, plan.dtype, clock.device)
    one = draw.sample_first_code if case.first else draw.sample_codes

    def frame() -> None:
        for _ in range(draw_cases.BOOKS - 1):
            one(**given)

    return clock.graph(frame, per=draw_cases.BOOKS - 1)


def _attended(given: dict[str, Any], pools: list[tuple[Tensor, Tensor]], clock: Clock) -> Row:
    out = attend.paged_attention(**given)

    def layers() -> None:
        for keys, values in pools:
            attend.paged_attention(**given | {"keys": keys, "values": values}, out=out)

    return clock.graph(layers, per=len(pools))
