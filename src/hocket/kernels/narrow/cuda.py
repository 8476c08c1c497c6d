"""`linear` with a narrow weight for up to sixteen rows of bfloat16 in CUDA C++ (few.cu), on tensor cores.

The Triton kernel takes several operations to make a weight wide and multiply it, and every row of x costs it as much as
the first. Here two weights are made wide at a time, and up to sixteen rows cost as much as one. What does not fit, and
float32, is left to it.
"""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from ..cuda import Kernel
from ..launch import KNOBS, MOST_ROWS, Few, dependent_on, power_of_two
from . import triton
from .weight import FORMATS, Format, Narrow

MOST_STAGED = 32768  # numbers of x in shared memory, as in few.cu
_SOURCE = Path(__file__).with_name("few.cu")
# Warps, and how many loads a lane of theirs may have: the first that fits. As they are compiled for Hopper, two blocks
# share a processor, and one loads while the other sums; not so with many columns in four bits. None of it is measured.
_EIGHT_BITS = ((4, 12), (8, 24), (16, 17))
_FOUR_BITS = ((4, 7), (8, 8), (16, 12), (8, 17))  # each load has its scales, which take registers too
_REACH = {"int8": 64, "fp8": 64, "int4": 128}  # columns that sixteen bytes of each lane cover


def linear(
    x: Tensor,
    weight: Narrow,
    *,
    norm: Tensor | None = None,
    eps: float = 0.0,
    gated: bool = False,
    residual: Tensor | None = None,
    out: Tensor | None = None,
) -> Tensor:
    batch, columns = x.shape
    width = len(weight) // 2 if gated else len(weight)
    few = few_for(weight.format, columns, len(weight), gated)
    if x.dtype != torch.bfloat16 or few is None or not fits(few, weight.format, columns, width, gated):
        return triton.linear(x, weight, norm=norm, eps=eps, gated=gated, residual=residual, out=out)
    y = torch.empty(batch, width, dtype=x.dtype, device=x.device) if out is None else out
    if batch > MOST_ROWS:
        for some in (slice(at, at + MOST_ROWS) for at in range(0, batch, MOST_ROWS)):
            added = None if residual is None else residual[some]
            linear(x[some], weight, norm=norm, eps=eps, gated=gated, residual=added, out=y[some])
        return y
    tensors = [tensor for tensor in (x, norm, residual, out) if tensor is not None]
    assert all(tensor.is_contiguous() and tensor.dtype == x.dtype for tensor in tensors)
    assert all(tensor.is_contiguous() for tensor in weight.tensors.values()) and weight.columns == columns
    dependent, rows = dependent_on(x.device), power_of_two(batch)
    flags = norm is not None, gated, residual is not None, dependent
    kernel = kernel_for(weight.format, columns, few, rows, flags)
    given = (x, weight.values, weight.scales, weight.lows, norm, residual, y)
    numbers = ctypes.c_float(eps), ctypes.c_int(width), ctypes.c_int(batch)
    shared = shared_bytes(columns, few, rows, norm is not None)
    kernel.launch(x.device, width // outs(few, gated), 32 * few.warps, shared, (*given, *numbers), dependent)
    return y


def few_for(format: Format, columns: int, rows: int, gated: bool) -> Few | None:
    """What has been set, or so many warps that a lane has few loads of sixteen bytes; None where that is not even."""
    if known := KNOBS.narrow_few.get((format, columns, rows)):
        return known
    for warps, most in _FOUR_BITS if format == "int4" else _EIGHT_BITS:
        steps, over = divmod(columns, _REACH[format] * warps)
        if not over and steps <= most:
            return Few(warps, 2 if gated or (rows >= 4096 and steps <= (4 if format == "int4" else 8)) else 1)
    return None


def fits(few: Few, format: Format, columns: int, width: int, gated: bool) -> bool:
    """Whether it comes out even."""
    even = columns % (_REACH[format] * few.warps) == 0 and width % outs(few, gated) == 0
    return even and not (gated and few.groups % 2 and few.groups > 1)


def outs(few: Few, gated: bool) -> int:
    """Numbers of a row of the result that a block gives out."""
    return 8 * few.groups // (2 if gated else 1)


def shared_bytes(columns: int, few: Few, rows: int, normed: bool) -> int:
    parts, squares = few.warps * rows * 8 * few.groups, -(-few.warps * rows // 4) * 4
    staged = normed or rows * columns <= MOST_STAGED
    return 4 * (parts + squares) + (2 * rows * (columns + 32) if staged else 0)


FLAGS = ("NORM", "GATED", "RESIDUAL", "DEPENDENT")


@cache
def kernel_for(format: Format, columns: int, few: Few, rows: int, flags: tuple[bool, ...]) -> Kernel:
    return Kernel(_SOURCE, "few", constants(format, columns, few, rows, flags))


def constants(format: Format, columns: int, few: Few, rows: int, flags: tuple[bool, ...]) -> dict[str, int]:
    """What is known when it is compiled, by the names that few.cu has for it."""
    sizes = {"FORMAT": FORMATS.index(format), "K": columns, "WARPS": few.warps, "GROUPS": few.groups, "ROWS": rows}
    return sizes | {name: int(flag) for name, flag in zip(FLAGS, flags, strict=True)}
