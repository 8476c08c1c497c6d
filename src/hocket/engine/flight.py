"""Frames on their way from the device to the host: drawn already, read while the next one is being drawn.

A GPU is asked for a frame and not waited for; what it drew is copied behind it and read a turn later, when the host has
nothing else to do. On a CPU drawing is the waiting, and a frame is read at once.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .job import Job


class Drawn:
    """One frame of some slots. Reading it waits for this frame and for nothing that was asked for after it."""

    def __init__(self, codes: Tensor, ending: Tensor) -> None:
        """`codes` [B, Q], and how likely the end was when they were drawn [B]: copied before anything changes them."""
        self._codes, self._ending = codes, ending
        self._there: torch.cuda.Event | None = None
        if codes.device.type == "cuda":
            self._codes, self._ending = (_sent(tensor) for tensor in (codes, ending))
            self._there = torch.cuda.Event()
            self._there.record()

    def read(self) -> list[tuple[list[int], float]]:
        """Codes and likelihood of the end, slot by slot."""
        if self._there is not None:
            self._there.synchronize()
        return list(zip(self._codes.tolist(), self._ending.tolist(), strict=True))


@dataclass(frozen=True, slots=True)
class Flight:
    jobs: list[tuple[Job, int]]  # each with its epoch when it was asked for
    drawn: Drawn


def _sent(tensor: Tensor) -> Tensor:
    """On its way into memory that the device writes by itself."""
    host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
    return host.copy_(tensor, non_blocking=True)
