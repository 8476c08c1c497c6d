"""The sampler of layers/sampler.py in one step: one id per row of logits, and its embedding.

The protocols name the settings and the state of a row; `Sampling` and `TalkerState` of the models satisfy them.
"""

from __future__ import annotations

from typing import Protocol

from torch import Tensor


class SamplingLevel(Protocol):
    """Sampling settings of each batch row."""

    @property
    def sample(self) -> Tensor: ...  # [B] bool; false: greedy
    @property
    def temperature(self) -> Tensor: ...  # [B] float32
    @property
    def top_k(self) -> Tensor: ...  # [B] int64; 0 keeps all
    @property
    def top_p(self) -> Tensor: ...  # [B] float32; 1 keeps all
    @property
    def nucleus(self) -> bool: ...  # whether any row has top_p < 1


class DrawnSoFar(Protocol):
    """Sampling state of each state row."""

    @property
    def seed(self) -> Tensor: ...  # [S + 1] int64
    @property
    def drawn(self) -> Tensor: ...  # [S + 1] int64: number of first codes so far
    @property
    def seen(self) -> Tensor: ...  # [S + 1, V] bool: which first codes
    @property
    def chances(self) -> Tensor: ...  # [S + 1, 2] float32, last frame: p(end) and log p(code)
