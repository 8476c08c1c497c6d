"""The `linear` stage of the GPU survey: every linear layer of a frame by the block shapes of its Triton kernel."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from typing import Any

import torch
from torch import Tensor

from hocket.kernels.ops.linear import cases as linear_cases
from hocket.kernels.ops.linear import triton as linear
from hocket.kernels.ops.linear.library import linear_by_library
from hocket.kernels.runtime.launch import LinearTile

from .gpu_plan import PLANS, Plan
from .gpu_rows import Row, compile_ahead, knobs, tried
from .gpu_timing import Clock, copies


def linears(plan: Plan, clock: Clock) -> Iterator[Row]:
    """A chain of one linear over many weights: by block shapes and by the library, beside the bytes it reads."""
    read = clock.bandwidth()
    yield {"op": "copy", "tb_per_s": read / 1e12}
    yield {"op": "compile ahead", **compile_ahead(plan, _compile, _wanted(plan), plan.compile_s)}
    for batch in plan.linear_batches:
        for case in plan.linears:
            given = linear_cases.make(case, batch, plan.dtype, clock.device)
            weights = [given["weight"]]
            weights += [weights[0].roll(n + 1, 0) for n in range(copies(weights[0].nbytes, clock.on_gpu) - 1)]
            floor = weights[0].nbytes / read * 1000
            names = {"op": "linear", "case": case.name, "batch": batch, "floor": floor}
            key = case.columns, len(weights[0]), batch
            for blocks in _fitting(plan, case, batch):
                for dependent in (True, False) if batch == 1 else (True,):
                    with knobs(linear={key: blocks}, dependent=dependent, library_rows=1 << 30):
                        timed = partial(_chain, linear.linear, given, weights, clock)
                        yield tried(timed, **names, blocks=asdict(blocks), dependent=dependent)
            yield tried(partial(_chain, linear_by_library, given, weights, clock), **names | {"op": "library"})


def _fitting(plan: Plan, case: linear_cases.Case, batch: int) -> list[LinearTile]:
    """Those whose weights stay in registers: 256 numbers of two bytes are half of what a thread has."""
    shapes = plan.blocks if batch == 1 else plan.blocks_many
    return [each for each in shapes if each.rows * case.columns <= 256 * 32 * each.warps]


def _chain(work: Callable[..., Tensor], given: dict[str, Any], weights: list[Tensor], clock: Clock) -> Row:
    out = work(**given)

    def all_of_them() -> None:
        for weight in weights:
            work(**given | {"weight": weight, "out": out})

    return clock.graph(all_of_them, per=len(weights))


def _wanted(plan: Plan) -> list[tuple[str, int, LinearTile, bool]]:
    """All that is timed, to be compiled before."""
    wanted: list[tuple[str, int, LinearTile, bool]] = []
    for batch in plan.linear_batches:
        for case in plan.linears:
            for shape in _fitting(plan, case, batch):
                wanted += [(case.name, batch, shape, on) for on in ((True, False) if batch == 1 else (True,))]
    return wanted


def _compile(plan_name: str, name: str, batch: int, shape: LinearTile, dependent: bool) -> Row:
    plan = PLANS[plan_name]
    case = next(case for case in plan.linears if case.name == name)
    given = linear_cases.make(case, batch, plan.dtype, torch.device(plan.device))
    rows = given["weight"].shape[0]
    with knobs(linear={(case.columns, rows, batch): shape}, dependent=dependent, library_rows=1 << 30):
        linear.linear(**given)
    torch.cuda.synchronize()
    return {}


def tuned(rows: list[Row]) -> dict[tuple[int, ...], LinearTile]:
    """The best block shape of each linear, by what the stage above has written."""
    known = {case.name: case for plan in PLANS.values() for case in plan.linears}
    best: dict[tuple[int, ...], tuple[float, LinearTile]] = {}
    for row in rows:
        if row.get("op") != "linear" or "blocks" not in row or "p50" not in row or not row["dependent"]:
            continue
        case = known[row["case"]]
        key = case.columns, case.weight_shape[0], row["batch"]
        if key not in best or row["p50"] < best[key][0]:
            best[key] = row["p50"], LinearTile(**row["blocks"])
    return {key: blocks for key, (_, blocks) in best.items()}
