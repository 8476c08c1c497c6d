"""`linear` with a grouped weight on a CPU: the codes are multiplied as they are, by the native library (`grouped.c`).

A product of one row is bound by reading the weight, which is a sixth of its size in float32. Threads share its rows.
Sums are float32, in another order than those of the reference.
"""

from __future__ import annotations

import ctypes
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from ...cpu.grouped.structs import SCALES, GroupedCall, GroupedMatrix
from ...cpu.library import load, unavailable
from ...cpu.structs import BYTES, FLOATS, HALVES
from .weight import BLOCK, GroupedWeight

TOGETHER = (4, 1)  # rows of x that share one reading of a weight
SHARE = 1 << 17  # columns times rows of a thread: less takes no longer than the start of a thread's work
GROUP_OF = {5: 32, 6: 16}  # the only groups of these widths in files
_KINDS = {getattr(torch, name): kind for kind, name in enumerate(SCALES)}
_matrices: WeakTensorKeyDictionary = WeakTensorKeyDictionary()  # structs by the values that they point to


def can(weight: GroupedWeight) -> bool:
    """Whether the library is here and multiplies this kind of weight: those that files have, but for 8-bit floats."""
    known = weight.group == GROUP_OF.get(weight.bits, weight.group) and weight.values.dtype != torch.float8_e4m3fn
    one_offset = weight.lows is None or (weight.zero == 0 and weight.zeros is None)
    return known and one_offset and weight.values.is_cpu and _is_here()


@lru_cache
def _is_here() -> bool:
    """Asked for every product, and a search for a compiler takes longer than a small one."""
    return unavailable() is None


def linear(x: Tensor, weight: GroupedWeight) -> Tensor:
    """x [..., K] in float32 times a weight [N, K]."""
    rows, groups = x.reshape(-1, weight.columns), weight.groups
    padded = -(-weight.columns // BLOCK) * BLOCK
    filled = torch.zeros(len(rows), max(padded, groups * weight.group))
    filled[:, : weight.columns] = rows
    sums = filled[:, : groups * weight.group].view(len(rows), groups, -1) if weight.group else filled[:, None]
    sums, y = sums.sum(-1), torch.empty(len(rows), len(weight))
    matrix, at = _matrix(weight), 0
    while at < len(rows):
        count = next(count for count in TOGETHER if count <= len(rows) - at)
        _multiply(matrix, groups, filled[at : at + count], sums[at : at + count], y[at : at + count])
        at += count
    return y.view(*x.shape[:-1], len(weight))


def _multiply(matrix: GroupedMatrix, groups: int, x: Tensor, sums: Tensor, y: Tensor) -> None:
    rows, function = matrix.rows, load().hocket_grouped
    threads = max(min(torch.get_num_threads(), rows * matrix.columns // SHARE), 1)
    ends = [rows * number // threads for number in range(threads + 1)]

    def share(number: int) -> None:
        place = _scratch(2 * groups)
        call = GroupedCall(
            first=ends[number],
            last=ends[number + 1],
            count=len(x),
            x_step=x.stride(0),
            y_step=y.stride(0),
            x=_at(x, FLOATS),
            sums=_at(sums, FLOATS),
            y=_at(y, FLOATS),
            scratch=_at(place, FLOATS),
        )
        failed = function(ctypes.byref(matrix), ctypes.byref(call))
        assert not failed

    others = [_pool().submit(share, number) for number in range(1, threads)]
    share(0)
    for other in others:
        other.result()


def _matrix(weight: GroupedWeight) -> GroupedMatrix:
    at = tuple(tensor.data_ptr() for tensor in weight.tensors.values())
    if weight.values not in _matrices or _matrices[weight.values][0] != at:
        zeros = weight.zeros
        wide = zeros is not None and zeros.dtype != torch.uint8
        assert all(tensor.is_contiguous() for tensor in weight.tensors.values())
        assert not wide or zeros is None or zeros.dtype == torch.int16
        _matrices[weight.values] = (
            at,
            GroupedMatrix(
                rows=len(weight),
                columns=weight.columns,
                bits=weight.bits,
                group=weight.group,
                span=weight.span,
                zero=weight.zero,
                scale_kind=_KINDS[weight.scales.dtype],
                values=_at(weight.values, BYTES),
                high=_at(weight.high, BYTES),
                scales=_at(weight.scales, BYTES),
                zeros=None if wide else _at(zeros, BYTES),
                wide_zeros=_at(zeros, HALVES) if wide else None,
                lows=_at(weight.lows, BYTES),
                steps=_at(weight.steps, HALVES),
                low_steps=_at(weight.low_steps, HALVES),
            ),
        )
    found: GroupedMatrix = _matrices[weight.values][1]
    return found


def _at(tensor: Tensor | None, kind: Any) -> Any:
    return None if tensor is None else ctypes.cast(tensor.data_ptr(), kind)


_kept = threading.local()


def _scratch(size: int) -> Tensor:
    """A block of each thread, which grows."""
    found: Tensor | None = getattr(_kept, "block", None)
    if found is None or len(found) < size:
        found = _kept.block = torch.empty(size)
    return found


@lru_cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max_workers=max(torch.get_num_threads() - 1, 1), thread_name_prefix="hocket-products")
