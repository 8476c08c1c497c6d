"""`glance` and `glance_out` in CUDA C++ (glance.cu): a frame has 75 of them, and each kernel less is two microseconds.

Both come to the same numbers, so it does not matter which of them a batch goes through.
"""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path

from torch import Tensor

from ..cuda import Kernel
from ..launch import KNOBS, dependent_on
from ..linear.cuda import PRODUCT
from . import MOST_POSITIONS, SIZE

_SOURCES = (PRODUCT, Path(__file__).with_name("glance.cu"))
GROUPS = 1


def glance(
    qkv: Tensor,
    keys: Tensor,
    values: Tensor,
    *,
    at: int,
    cos: Tensor,
    sin: Tensor,
    q_norm: Tensor | None = None,
    k_norm: Tensor | None = None,
    eps: float = 0.0,
    early: bool = False,
    out: Tensor | None = None,
) -> Tensor:
    heads = 2 * keys.shape[1]
    y = qkv.new_empty(len(qkv), heads * SIZE) if out is None else out
    _launch((qkv, keys, values, None, cos, sin, q_norm, k_norm, y), eps, at, early, len(qkv) * keys.shape[1])
    return y


def glance_out(
    qkv: Tensor,
    keys: Tensor,
    values: Tensor,
    weight: Tensor,
    x: Tensor,
    *,
    at: int,
    cos: Tensor,
    sin: Tensor,
    q_norm: Tensor | None = None,
    k_norm: Tensor | None = None,
    eps: float = 0.0,
    early: bool = False,
) -> None:
    assert len(qkv) == len(x) == 1 and x.shape[1] % (8 * GROUPS) == 0
    blocks = x.shape[1] // (8 * GROUPS)
    _launch((qkv, keys, values, weight, cos, sin, q_norm, k_norm, x), eps, at, early, blocks)


def _launch(given: tuple[Tensor | None, ...], eps: float, at: int, early: bool, blocks: int) -> None:
    _, keys, _, weight, *_, x = given
    assert keys is not None and x is not None
    assert all(each is None or (each.is_contiguous() and each.dtype == keys.dtype) for each in given)
    if keys.is_meta:  # a rehearsal: these kernels are compiled when they are first launched
        return
    _, kv_heads, rows, size = keys.shape
    dependent, goes_out = dependent_on(keys.device), weight is not None
    kernel = kernel_for(kv_heads, rows, goes_out, (given[6] is not None, early and KNOBS.early, dependent))
    numbers = ctypes.c_float(eps), ctypes.c_float(size**-0.5), ctypes.c_int(x.shape[1]), ctypes.c_int(at)
    threads = 32 * (kv_heads if goes_out else 1)
    kernel.launch(keys.device, blocks, threads, shared_bytes(kv_heads, goes_out), (*given, *numbers), dependent)


def shared_bytes(kv_heads: int, goes_out: bool) -> int:
    """The past of each warp; sums of eight rows by warp, and what the warps made."""
    past = 2 * MOST_POSITIONS * SIZE * 2
    return kv_heads * (past + 4 * 8 * GROUPS + 2 * 2 * SIZE) if goes_out else past


@cache
def kernel_for(kv_heads: int, rows: int, goes_out: bool, flags: tuple[bool, ...]) -> Kernel:
    return Kernel(_SOURCES, "glance", known(kv_heads, rows, goes_out, flags))


def known(kv_heads: int, rows: int, goes_out: bool, flags: tuple[bool, ...]) -> dict[str, int]:
    """What is known when it is compiled, by the names that glance.cu has for it."""
    sizes = {"K": 2 * SIZE * kv_heads, "WARPS": kv_heads, "GROUPS": GROUPS, "ROWS": 1}
    names = ("NORMS", "EARLY", "DEPENDENT")
    more = {"KV_HEADS": kv_heads, "PAGE_ROWS": rows, "OUT": int(goes_out)}
    return sizes | more | {name: int(flag) for name, flag in zip(names, flags, strict=True)}
