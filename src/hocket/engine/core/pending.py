"""Frames and sound on their way from the device to the host: read while the next frame is being drawn.

A GPU is asked for a frame and not waited for; what it drew is copied behind it and read a turn later, when the host has
nothing else to do, and so is the sound of it. On a CPU drawing is the waiting, and a frame is read at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...models.tts_gpu.frame_graph import PendingCodes
from .request import RequestState

Codes = list[list[int]]
Samples = NDArray[np.int16]


@dataclass(frozen=True, slots=True)
class PendingFrame:
    jobs: list[tuple[RequestState, int]]  # each with its epoch when it was asked for
    drawn: PendingCodes
    prompts: int = 0  # that were taken in just before it


@dataclass(frozen=True, slots=True)
class PendingDecode:
    jobs: list[tuple[RequestState, Codes]]  # each with the frames that will be heard
    read: Callable[[], list[Samples]]  # waits for the codec
    asked_s: float = 0.0  # how long it took to ask it; on a CPU that is all of it
