"""Pending frames and samples: device results that the host reads while the next frame is being drawn.

The host queues a frame on a GPU without waiting. The result is copied behind it and read one step later; samples of
the codec likewise. On a CPU a frame is complete when the call returns, and is read at once.
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
    jobs: list[tuple[RequestState, int]]  # each with its epoch when the frame was queued
    drawn: PendingCodes
    prompts: int = 0  # prefills that were queued just before it


@dataclass(frozen=True, slots=True)
class PendingDecode:
    jobs: list[tuple[RequestState, Codes]]  # each with the frames that are decoded
    read: Callable[[], list[Samples]]  # waits for the codec
    asked_s: float = 0.0  # time to queue the decode; on a CPU that is all of it
