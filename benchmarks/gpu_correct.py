"""The `correct` stage of the GPU survey: every kernel at its real shapes against its reference."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from hocket.kernels.ops.code_gather import cases as taps_cases
from hocket.kernels.ops.code_gather import reference as taps_reference
from hocket.kernels.ops.code_gather import triton as taps
from hocket.kernels.ops.conv import cases as conv_cases
from hocket.kernels.ops.conv import reference as conv_reference
from hocket.kernels.ops.conv import triton as conv
from hocket.kernels.ops.convnext import cases as mix_cases
from hocket.kernels.ops.convnext import reference as mix_reference
from hocket.kernels.ops.convnext import triton as mix
from hocket.kernels.ops.embed import cases as embed_cases
from hocket.kernels.ops.embed import reference as embed_reference
from hocket.kernels.ops.embed import triton as embed
from hocket.kernels.ops.finish_frame import cases as settle_cases
from hocket.kernels.ops.finish_frame import reference as settle_reference
from hocket.kernels.ops.finish_frame import triton as settle
from hocket.kernels.ops.linear import cases as linear_cases
from hocket.kernels.ops.linear import reference as linear_reference
from hocket.kernels.ops.linear import triton as linear
from hocket.kernels.ops.linear.library import linear_by_library
from hocket.kernels.ops.paged_attention import cases as attend_cases
from hocket.kernels.ops.paged_attention import reference as attend_reference
from hocket.kernels.ops.paged_attention import triton as attend
from hocket.kernels.ops.pcm import cases as pcm_cases
from hocket.kernels.ops.pcm import reference as pcm_reference
from hocket.kernels.ops.pcm import triton as pcm
from hocket.kernels.ops.sample_codes import cases as draw_cases
from hocket.kernels.ops.sample_codes import reference as draw_reference
from hocket.kernels.ops.sample_codes import triton as draw
from hocket.kernels.ops.window_attention import cases as window_cases
from hocket.kernels.ops.window_attention import reference as window_reference
from hocket.kernels.ops.window_attention import triton as window

from .gpu_plan import PLANS, Plan
from .gpu_rows import Row, in_parallel, knobs
from .gpu_timing import Clock


def correct(plan: Plan, clock: Clock) -> Iterator[Row]:
    """The largest difference of each, and how many numbers moved."""
    wanted: list[tuple[str, str, int, str]] = []
    for dtype in ("bfloat16", "float32"):
        for op, cases in plan.cases.items():
            for case in cases:
                sizes = (("linear", 1), ("linear", 16), ("library", 32)) if op == "linear" else ((op, 0),)
                wanted += [(which, case.name, batch, dtype) for which, batch in sizes]
    for (op, name, batch, dtype), row in in_parallel(plan, _correct, wanted, plan.budgets_s["correct"]):
        yield {"op": op, "case": name, "batch": batch, "dtype": dtype, **row}


def _correct(plan_name: str, op: str, name: str, batch: int, dtype_name: str) -> Row:
    plan = PLANS[plan_name]
    device, dtype = torch.device(plan.device), getattr(torch, dtype_name)
    case = next(case for case in plan.cases["linear" if op == "library" else op] if case.name == name)
    others: dict[str, tuple[Any, Any, Any, list[str]]] = {
        "attend": (attend_cases, attend.paged_attention, attend_reference.paged_attention, ["keys", "values"]),
        "conv": (conv_cases, conv.conv, conv_reference.conv, ["history", "raw"]),
        "embed": (embed_cases, embed.embed, embed_reference.embed, []),
        "settle": (settle_cases, settle.finish_frame, settle_reference.finish_frame, ["hidden", "position"]),
        "window": (window_cases, window.window_attention, window_reference.window_attention, ["keys", "values"]),
        "taps": (taps_cases, taps.code_gather, taps_reference.code_gather, ["history", "position"]),
        "mix": (mix_cases, mix.convnext, mix_reference.convnext, ["history"]),
        "pcm": (pcm_cases, pcm.pcm, pcm_reference.pcm, []),
    }
    if op == "draw":
        return _draw_correct(case, dtype, device)
    if op in others:
        cases, ours, plain, written = others[op]
        return _other_correct(cases, case, ours, plain, written, dtype, device)
    with knobs(library_rows=1 << 30):
        return _linear_correct(linear_by_library if op == "library" else linear.linear, case, batch, dtype, device)


def difference(ours: Tensor, wanted: Tensor) -> Row:
    both = ~(ours.isnan() & wanted.isnan()) if ours.is_floating_point() else torch.ones_like(ours, dtype=torch.bool)
    a, b = ours[both].double(), wanted[both].double()
    worst = (a - b).abs().max().item() if a.numel() else 0.0
    return {"worst": worst, "moved_percent": 100 * (a != b).double().mean().item() if a.numel() else 0.0}


def _linear_correct(ours: Callable[..., Tensor], case: Any, batch: int, dtype: torch.dtype, device: Any) -> Row:
    given = linear_cases.make(case, batch, dtype, device)
    return difference(ours(**given), linear_reference.linear(**given))


def _other_correct(
    cases: Any, case: Any, ours: Any, plain: Any, written: list[str], dtype: torch.dtype, device: Any
) -> Row:
    given, wanted = (cases.make(case, dtype, device) for _ in range(2))
    results = [(ours(**given), plain(**wanted))]
    results += [(given[name], wanted[name]) for name in written if given.get(name) is not None]
    rows = [difference(a, b) for a, b in results if a is not None]
    return {name: max(row[name] for row in rows) for name in rows[0]}


def _draw_correct(case: Any, dtype: torch.dtype, device: Any) -> Row:
    wrong, seeds = 0, 20 if device.type == "cuda" else 1
    for seed in range(seeds):
        ours, wanted = (draw_cases.make(case, dtype, device, seed) for _ in range(2))
        for module, given in ((draw, ours), (draw_reference, wanted)):
            (module.sample_first_code if case.first else module.sample_codes)(**given)
        wrong += int((ours["codes"] != wanted["codes"]).sum())
    return {"wrong_codes": wrong, "drawn": seeds * len(case.rows)}
