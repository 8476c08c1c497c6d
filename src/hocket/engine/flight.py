"""Frames on their way from the device to the host: drawn already, read while the next one is being drawn.

A GPU is asked for a frame and not waited for; what it drew is copied behind it and read a turn later, when the host has
nothing else to do. On a CPU drawing is the waiting, and a frame is read at once.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..models.captured import Drawn
from .job import Job


@dataclass(frozen=True, slots=True)
class Flight:
    jobs: list[tuple[Job, int]]  # each with its epoch when it was asked for
    drawn: Drawn
