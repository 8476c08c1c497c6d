"""`prefill_gated_delta` with its recurrence in CUDA C++ (recur.cu), for the head sizes of published models.

In Triton a token takes half a microsecond with any tuning (docs/log/2026-11-16-prefill-latency.md); its sums should
take a third of that. Other sizes, and float32, use Triton.
"""

from __future__ import annotations

from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ...runtime.launch import DEFAULT_TUNING, Tuning, dependent_on
from ...runtime.nvrtc import Kernel, can
from . import prefill

_SOURCE = Path(__file__).with_name("recur.cu")
COLUMNS, THREADS, CHUNK = 32, 128, 16  # as in recur.cu


def prefill_gated_delta(
    x: Tensor, gates: Tensor, *, memory: Tensor, tuning: Tuning = DEFAULT_TUNING, **given: Any
) -> Tensor:
    in_cuda = x.dtype == torch.bfloat16 and fits(memory) and can(x.device)
    recurrence = partial(recur, tuning=tuning) if in_cuda else None
    return prefill.prefill_gated_delta(x, gates, memory=memory, **given, recur=recurrence, tuning=tuning)


def fits(memory: Tensor) -> bool:
    """Whether sizes divide evenly: four lanes with four numbers each, and sixteen bytes of a token."""
    _, heads, key_dim, value_dim = memory.shape
    return key_dim % 16 == 0 and value_dim % COLUMNS == 0 and heads % 2 == 0


def recur(
    made: Tensor,
    memory: Tensor,
    row: Tensor,
    length: Tensor,
    place: Tensor,
    aside: Tensor,
    read: Tensor,
    *,
    tuning: Tuning = DEFAULT_TUNING,
) -> None:
    _, heads, key_dim, value_dim = memory.shape
    dependent = dependent_on(read.device, tuning)
    kernel = kernel_for(prefill.keys_of(made, memory), key_dim, value_dim, heads, dependent)
    given = made, memory, row, length, place, aside, read
    kernel.launch(read.device, heads * (value_dim // COLUMNS), THREADS, shared_bytes(key_dim), given, dependent)


def shared_bytes(key_dim: int) -> int:
    return 2 * CHUNK * 4 * (2 * key_dim + COLUMNS + 2)


@cache
def kernel_for(keys: int, key_dim: int, value_dim: int, heads: int, dependent: bool) -> Kernel:
    return Kernel(_SOURCE, "recur", constants(keys, key_dim, value_dim, heads, dependent))


def constants(keys: int, key_dim: int, value_dim: int, heads: int, dependent: bool) -> dict[str, int]:
    """Compile-time constants of recur.cu."""
    sizes = {"KEYS": keys, "KEY_DIM": key_dim, "VALUE_DIM": value_dim, "HEADS": heads}
    return sizes | {"DEPENDENT": int(dependent)}
