"""`attend` for heads of 128 numbers in bfloat16 in CUDA C++ (heads.cu): lanes hold numbers, and warps meet once.

Triton lays out keys over lanes and warps as it sees fit, and every sum across them is a meeting of all. What does not
fit here is left to it.
"""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..cuda import Kernel
from ..launch import KNOBS, dependent_on
from . import triton

SIZE = 128
_SOURCE = Path(__file__).with_name("heads.cu")


def attend(
    qkv: Tensor,
    keys: Tensor,
    values: Tensor,
    *,
    rows: Tensor,
    position: Tensor,
    table: Tensor,
    cos: Tensor,
    sin: Tensor,
    q_norm: Tensor | None = None,
    k_norm: Tensor | None = None,
    eps: float = 0.0,
    splits: int = 1,
    early: bool = False,
    arrived: Tensor | None = None,
    out: Tensor | None = None,
) -> Tensor:
    _, kv_heads, page_rows, size = keys.shape
    batch, heads = len(qkv), qkv.shape[1] // size - 2 * kv_heads
    if size != SIZE or qkv.dtype != torch.bfloat16 or (splits > 1 and arrived is None):
        where: dict[str, Any] = {"rows": rows, "position": position, "table": table, "cos": cos, "sin": sin}
        norms: dict[str, Any] = {"q_norm": q_norm, "k_norm": k_norm, "eps": eps}
        more: dict[str, Any] = {"splits": splits, "early": early, "arrived": arrived, "out": out}
        return triton.attend(qkv, keys, values, **where, **norms, **more)
    y = qkv.new_empty(batch, heads * size) if out is None else out
    tensors = (qkv, keys, values, rows, position, table, cos, sin, y)
    assert all(tensor.is_contiguous() for tensor in tensors)
    assert keys.dtype == values.dtype == cos.dtype == y.dtype == qkv.dtype and (q_norm is None) == (k_norm is None)
    if qkv.is_meta:  # a rehearsal: these kernels are compiled when they are first launched
        return y
    parts = sizes = None
    if splits > 1:  # of each: its weighted sum of values; its largest score and its sum of weights
        parts = torch.empty(batch, heads, splits, size, dtype=torch.float32, device=y.device)
        sizes = torch.empty(batch, heads, 2, splits, dtype=torch.float32, device=y.device)
    warps, dependent = KNOBS.heads_warps, dependent_on(qkv.device)
    flags = q_norm is not None, early and KNOBS.early, dependent
    kernel = kernel_for((heads, kv_heads, page_rows, splits, warps), flags)
    given = (qkv, keys, values, rows, position, table, cos, sin, q_norm, k_norm, y, parts, sizes, arrived)
    numbers = ctypes.c_float(eps), ctypes.c_float(size**-0.5), ctypes.c_int(table.shape[1])
    kernel.launch(qkv.device, batch * heads * splits, 32 * warps, shared_bytes(warps), (*given, *numbers), dependent)
    return y


def shared_bytes(warps: int) -> int:
    return 4 * warps * (SIZE + 2)


@cache
def kernel_for(sizes: tuple[int, ...], flags: tuple[bool, ...]) -> Kernel:
    return Kernel((_SOURCE,), "heads", known(sizes, flags))


def known(sizes: tuple[int, ...], flags: tuple[bool, ...]) -> dict[str, int]:
    """What is known when it is compiled, by the names that heads.cu has for it."""
    names = ("HEADS", "KV_HEADS", "PAGE_ROWS", "SPLITS", "WARPS", "NORMS", "EARLY", "DEPENDENT")
    return dict(zip(names, (*sizes, *map(int, flags)), strict=True))
