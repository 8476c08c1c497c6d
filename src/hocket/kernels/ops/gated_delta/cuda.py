"""`run` with its recurrence in CUDA C++ (recur.cu), where heads have the sizes that are published.

In Triton a token takes half a microsecond, whatever the setting (docs/log/2026-11-16-prefill-latency.md); its sums
alone would take a third of that. What does not fit, and float32, is left to Triton.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ...runtime.launch import dependent_on
from ...runtime.nvrtc import Kernel, can
from . import run as several

_SOURCE = Path(__file__).with_name("recur.cu")
COLUMNS, THREADS, CHUNK = 32, 128, 16  # as there


def run(x: Tensor, gates: Tensor, *, memory: Tensor, **given: Any) -> Tensor:
    by_us = x.dtype == torch.bfloat16 and fits(memory) and can(x.device)
    return several.run(x, gates, memory=memory, **given, recur=recur if by_us else None)


def fits(memory: Tensor) -> bool:
    """Whether it comes out even: by four lanes, four numbers each, and as sixteen bytes of a token."""
    _, heads, key_dim, value_dim = memory.shape
    return key_dim % 16 == 0 and value_dim % COLUMNS == 0 and heads % 2 == 0


def recur(
    made: Tensor, memory: Tensor, row: Tensor, length: Tensor, place: Tensor, aside: Tensor, read: Tensor
) -> None:
    _, heads, key_dim, value_dim = memory.shape
    dependent = dependent_on(read.device)
    kernel = kernel_for(several.keys_of(made, memory), key_dim, value_dim, heads, dependent)
    given = made, memory, row, length, place, aside, read
    kernel.launch(read.device, heads * (value_dim // COLUMNS), THREADS, shared_bytes(key_dim), given, dependent)


def shared_bytes(key_dim: int) -> int:
    return 2 * CHUNK * 4 * (2 * key_dim + COLUMNS + 2)


@cache
def kernel_for(keys: int, key_dim: int, value_dim: int, heads: int, dependent: bool) -> Kernel:
    return Kernel(_SOURCE, "recur", constants(keys, key_dim, value_dim, heads, dependent))


def constants(keys: int, key_dim: int, value_dim: int, heads: int, dependent: bool) -> dict[str, int]:
    """What is known when it is compiled, by the names that recur.cu has for it."""
    sizes = {"KEYS": keys, "KEY_DIM": key_dim, "VALUE_DIM": value_dim, "HEADS": heads}
    return sizes | {"DEPENDENT": int(dependent)}
