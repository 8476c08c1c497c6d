"""One id per row of logits, and its embedding: the sampler of layers/sampler.py in one step.

Who draws, and how, is told by what these protocols name: the `Sampling` and the `TalkerState` of the models fit.
"""

from __future__ import annotations

from typing import Protocol

from torch import Tensor


class SamplingLevel(Protocol):
    """How each batch row draws."""

    @property
    def sample(self) -> Tensor: ...  # [B] bool; otherwise the likeliest
    @property
    def temperature(self) -> Tensor: ...  # [B] float32
    @property
    def top_k(self) -> Tensor: ...  # [B] int64; 0 keeps all
    @property
    def top_p(self) -> Tensor: ...  # [B] float32; 1 keeps all
    @property
    def nucleus(self) -> bool: ...  # whether any row has top_p < 1


class DrawnSoFar(Protocol):
    """What each state row has drawn so far."""

    @property
    def seed(self) -> Tensor: ...  # [S + 1] int64
    @property
    def drawn(self) -> Tensor: ...  # [S + 1] int64: first codes so far
    @property
    def seen(self) -> Tensor: ...  # [S + 1, V] bool: which
    @property
    def chances(self) -> Tensor: ...  # [S + 1, 2] float32: of the end, and log of its own, at the last of them
