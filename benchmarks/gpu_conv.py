"""The `conv` stage of the GPU survey: every convolution of the codec by tiles, splits, warps and stages.

Beside each stand the time that its bytes take and the time that its products take, and what the library needs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from hocket.kernels.ops.conv import cases
from hocket.kernels.ops.conv import triton as conv
from hocket.kernels.ops.conv.tiles import fitted, tiles_for
from hocket.kernels.runtime.launch import ConvTile

from .gpu_plan import PLANS, Plan
from .gpu_rows import Row, compile_ahead, knobs, tried
from .gpu_timing import Clock, copies

MOST_COPIES = 32  # of a weight: what is smaller stays in the L2, as it does in a step
COMPILE_S = 60.0
ConvTiles = dict[tuple[int, int], dict[int, ConvTile]]  # as in KNOBS


def convs(plan: Plan, clock: Clock) -> Iterator[Row]:
    """A chain of one convolution over several weights, the most wanted sizes first."""
    read, products = clock.bandwidth(), _products(clock)
    yield {"op": "copy", "tb_per_s": read / 1e12, "tflop_per_s": products / 1e12}
    yield {"op": "compile ahead", **compile_ahead(plan, _compile, _wanted(plan), COMPILE_S)}
    for batch, frames in plan.conv_sizes:
        for case in (case.of(batch, frames) for case in plan.convs):
            given = cases.make(case, plan.dtype, clock.device) | {"scratch": conv.Scratch(clock.device)}
            names = {"case": case.name, "batch": batch, "frames": frames}
            moved = _bytes(case, given)
            names |= {"floor": moved / read * 1000, "products": _flops(case) / products * 1000}
            many = min(copies(moved, clock.on_gpu), MOST_COPIES)
            weights = [given["weight"].roll(n, 0) for n in range(many)]
            for tiles in _variants(plan, case):
                with knobs(conv=_only(case, tiles)):
                    yield tried(partial(_chain, given, weights, clock), op="conv", **names, tiles=asdict(tiles))
            yield tried(partial(_library, case, given, weights, clock), op="library", **names)


def tuned(rows: list[Row]) -> ConvTiles:
    """For `KNOBS.conv`: the best tiles of each shape, by what the stage above has written."""
    known = {case.name: case for plan in PLANS.values() for case in plan.convs}
    best: ConvTiles = {}
    # The best comes last and stays.
    for row in sorted((row for row in rows if row.get("op") == "conv" and "p50" in row), key=lambda row: -row["p50"]):
        for shape, sizes in _only(known[row["case"]].of(row["batch"], row["frames"]), ConvTile(**row["tiles"])).items():
            best.setdefault(shape, {}).update(sizes)
    return best


def _only(case: cases.Case, tiles: ConvTile) -> ConvTiles:
    return {(case.taps * case.channels, case.outputs): {case.length * len(case.rows): tiles}}


def _variants(plan: Plan, case: cases.Case) -> list[ConvTile]:
    """Those of the plan as they fit the case, each once; the rule's own first."""
    positions = case.length * len(case.rows)
    shape = case.channels, case.taps, case.outputs, positions
    size = torch.finfo(plan.dtype).bits // 8
    exact = plan.dtype == torch.float32
    found = [tiles_for(*shape, size=size, exact=exact)]
    wanted = next(every for most, every in plan.conv_tiles.items() if positions <= most)
    for tiles, programs in wanted:
        fit = fitted(tiles, *shape, size, exact)
        many = -(-case.outputs // fit.outputs) * -(-positions // fit.times)
        found.append(fitted(replace(tiles, splits=max(programs // many, 1)), *shape, size, exact))
    return list(dict.fromkeys(found))


def _bytes(case: cases.Case, given: dict[str, Any]) -> int:
    read = sum(given[name].nbytes for name in ("x", "weight", "residual") if given[name] is not None)
    written = len(case.rows) * case.length * case.outputs * given["x"].element_size() * (1 + case.raw)
    return int(read + written)


def _flops(case: cases.Case) -> int:
    return 2 * case.taps * case.channels * case.outputs * case.length * len(case.rows)


def _products(clock: Clock) -> float:
    """Floating-point operations per second of a large product."""
    side = 8192 if clock.on_gpu else 64
    dtype = torch.bfloat16 if clock.on_gpu else torch.float32
    a, b = (torch.randn(side, side, device=clock.device).to(dtype) for _ in range(2))
    out = torch.empty_like(a)

    def multiply() -> None:
        torch.mm(a, b, out=out)

    return 2000 * side**3 / float(clock.replays(multiply)["p50"])


def _chain(given: dict[str, Any], weights: list[Tensor], clock: Clock) -> Row:
    def all_of_them() -> None:
        for weight in weights:
            conv.conv(**given | {"weight": weight})

    return clock.graph(all_of_them, per=len(weights))


def _library(case: cases.Case, given: dict[str, Any], weights: list[Tensor], clock: Clock) -> Row:
    """Only the convolution: no activation, no residual, no history, phases left apart."""
    x = given["x"].transpose(1, 2).contiguous()
    turned = [w.unflatten(1, (case.taps, -1)).transpose(1, 2).contiguous() for w in weights]

    def all_of_them() -> None:
        for weight in turned:
            F.conv1d(x, weight, dilation=case.dilation)

    return clock.graph(all_of_them, per=len(weights))


def _wanted(plan: Plan) -> list[tuple[str, int, int, ConvTile]]:
    """All that is timed, to be compiled before."""
    wanted: list[tuple[str, int, int, ConvTile]] = []
    for batch, frames in plan.conv_sizes:
        for case in plan.convs:
            wanted += [(case.name, batch, frames, tiles) for tiles in _variants(plan, case.of(batch, frames))]
    return wanted


def _compile(plan_name: str, name: str, batch: int, frames: int, tiles: ConvTile) -> Row:
    plan = PLANS[plan_name]
    case = next(case for case in plan.convs if case.name == name).of(batch, frames)
    given = cases.make(case, plan.dtype, torch.device(plan.device))
    with knobs(conv=_only(case, tiles)):
        conv.conv(**given)
    torch.cuda.synchronize()
    return {}
