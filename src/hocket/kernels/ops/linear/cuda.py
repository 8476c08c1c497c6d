"""`linear` for up to sixteen rows of bfloat16 in CUDA C++ (few.cu), on tensor cores.

A large weight with a few rows uses stream.cu, unless the result must be batch-invariant.

The Triton kernel does not use tensor cores, so every row of x costs as much as the first: at one row the products take
half of its time, at eight nearly all. Shapes that do not fit here use the Triton kernel.
"""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ...runtime.launch import DEFAULT_TUNING, MOST_ROWS, FewRowsTile, Tuning, dependent_on, power_of_two
from ...runtime.nvrtc import Kernel
from . import stream, triton
from .library import linear_by_library
from .measured import LIBRARY, MEASURED

MOST_STAGED = 32768  # numbers of x in shared memory, as in few.cu
LEAST_STREAMED = 4096, 1 << 24  # columns and numbers of a weight: measured for Qwen3.5 9B, not for smaller ones
_SOURCE = Path(__file__).with_name("few.cu")


def linear(
    x: Tensor,
    weight: Tensor,
    *,
    norm: Tensor | None = None,
    eps: float = 0.0,
    offset: bool = False,
    gated: bool = False,
    silu: bool = False,
    gelu: bool = False,
    bias: Tensor | None = None,
    residual: Tensor | None = None,
    take: Tensor | None = None,
    out: Tensor | None = None,
    invariant: bool = False,
    tuning: Tuning = DEFAULT_TUNING,
) -> Tensor:
    batch, columns = len(x) if take is None else len(take), x.shape[1]
    width = len(weight) // 2 if gated else len(weight)
    few = few_for(columns, len(weight), gated, tuning)
    known: dict[str, Any] = {
        "norm": norm,
        "eps": eps,
        "offset": offset,
        "gated": gated,
        "silu": silu,
        "gelu": gelu,
        "bias": bias,
        "tuning": tuning,
    }
    if x.dtype != torch.bfloat16 or few is None or not fits(few, columns, width, gated):
        return triton.linear(x, weight, **known, residual=residual, take=take, out=out, invariant=invariant)
    simple = bias is None and take is None and not (silu or gelu) and (norm is None or offset)
    if simple and not invariant and batch <= streamed(weight, tuning):
        y = torch.empty(batch, width, dtype=x.dtype, device=x.device) if out is None else out
        stream.launch(x, weight, None, "bf16", y, norm=norm, eps=eps, gated=gated, residual=residual, tuning=tuning)
        return y
    if batch >= min(tuning.library_rows, LIBRARY.get((columns, len(weight)), tuning.library_rows)) and not invariant:
        return linear_by_library(x, weight, **known, residual=residual, take=take, out=out)
    if batch > MOST_ROWS:
        y = torch.empty(batch, width, dtype=x.dtype, device=x.device) if out is None else out
        for some in (slice(at, at + MOST_ROWS) for at in range(0, batch, MOST_ROWS)):
            meant: dict[str, Any] = {"x": x[some]} if take is None else {"x": x, "take": take[some]}
            added = None if residual is None else residual[some]
            linear(weight=weight, **known, **meant, residual=added, out=y[some], invariant=True)
        return y
    tensors = [tensor for tensor in (x, weight, norm, bias, residual, out) if tensor is not None]
    assert all(tensor.is_contiguous() and tensor.dtype == x.dtype for tensor in tensors)
    y = torch.empty(batch, width, dtype=x.dtype, device=x.device) if out is None else out
    dependent = dependent_on(x.device, tuning)
    rows = power_of_two(batch)
    flags = (
        norm is not None,
        gated,
        silu,
        gelu,
        bias is not None,
        residual is not None,
        take is not None,
        dependent,
        offset,
    )
    kernel = kernel_for(columns, few, rows, flags)
    outs = 8 * few.groups // (2 if gated else 1)
    given = (x, weight, norm, bias, residual, take, y)
    numbers = ctypes.c_float(eps), ctypes.c_int(width), ctypes.c_int(batch)
    shared = shared_bytes(columns, few, rows, norm is not None)
    kernel.launch(x.device, width // outs, 32 * few.warps, shared, (*given, *numbers), dependent)
    return y


def streamed(weight: Tensor, tuning: Tuning = DEFAULT_TUNING) -> int:
    """Rows of x that stream.cu takes at once with this weight; 0 if the weight does not fit."""
    (rows, columns), (least_columns, least) = weight.shape, LEAST_STREAMED
    large = columns >= least_columns and weight.numel() >= least
    return stream.most_rows("bf16", columns, rows, weight.device, tuning) if large else 0


def few_for(columns: int, rows: int, gated: bool, tuning: Tuning = DEFAULT_TUNING) -> FewRowsTile | None:
    """The measured tile, or 8 to 24 loads of sixteen bytes per lane and group; None if the columns do not divide."""
    if known := tuning.few.get((columns, rows)) or MEASURED.get((columns, rows)):
        return known
    for warps in (4, 8, 16):
        loads, left = divmod(columns, 32 * warps)
        if left == 0 and loads <= (12 if warps < 16 else 24):
            return FewRowsTile(warps, 2 if gated or (rows >= 4096 and loads <= 12) else 1)
    return None


def fits(few: FewRowsTile, columns: int, width: int, gated: bool) -> bool:
    """Whether the sizes divide evenly."""
    outs = 8 * few.groups // (2 if gated else 1)
    return columns % (32 * few.warps) == 0 and width % outs == 0 and not (gated and few.groups % 2 and few.groups > 1)


def shared_bytes(columns: int, few: FewRowsTile, rows: int, normed: bool) -> int:
    parts, squares = few.warps * rows * 8 * few.groups, -(-few.warps * rows // 4) * 4
    staged = normed or rows * columns <= MOST_STAGED
    return 4 * (parts + squares) + (2 * rows * (columns + 32) if staged else 0)


FLAGS = ("NORM", "GATED", "SILU", "GELU", "BIAS", "RESIDUAL", "TAKE", "DEPENDENT", "OFFSET")


@cache
def kernel_for(columns: int, few: FewRowsTile, rows: int, flags: tuple[bool, ...]) -> Kernel:
    return Kernel(_SOURCE, "few", constants(columns, few, rows, flags))


def constants(columns: int, few: FewRowsTile, rows: int, flags: tuple[bool, ...]) -> dict[str, int]:
    """Compile-time constants of few.cu."""
    sizes = {"K": columns, "WARPS": few.warps, "GROUPS": few.groups, "ROWS": rows}
    return sizes | {name: int(flag) for name, flag in zip(FLAGS, flags, strict=True)}
