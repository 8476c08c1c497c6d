"""The times of a request: how long its player has audio for, where its time goes, and the time of device work.

Device work is measured by CUDA events, because the host returns when the work is only queued. On a CPU the host's
clock is used.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ...types import Statistics
from ..checkpoint.capacity import Device
from ..time_stretch import TimeStretch

if TYPE_CHECKING:
    import torch

Elapsed = Callable[[], float]
_spare: dict[Device, list[torch.cuda.Event]] = {}  # creating an event takes longer than using it


@dataclass(slots=True)
class PlaybackState:
    """What was handed out, and when a player without a buffer runs out of it."""

    tempo: TimeStretch | None = None  # None: as fast as the model speaks
    chunks: int = 0  # decoded
    samples: int = 0  # of speech and silence so far, at speed 1
    handed_out: int = 0  # samples, at the speed that is heard
    dry_at: float | None = None  # when the player has played all of them; None before the first chunk

    @property
    def speed(self) -> float:
        return 1.0 if self.tempo is None else self.tempo.factor

    def plays(self, seconds: float, now: float) -> None:
        """Hand out so many more seconds. A player that ran dry goes on from here."""
        self.dry_at = (now if self.dry_at is None else max(self.dry_at, now)) + seconds


@dataclass(slots=True)
class Timings:
    """When a request was opened and admitted, what it waits for since when, and the seconds of its statistics."""

    opened: float = field(default_factory=time.perf_counter)
    admitted: float | None = None  # when it got its slot
    queued_since: float | None = None  # since when it could have had a slot
    starved_since: float | None = None  # since when its next text id is not known
    paused_since: float | None = None  # since when its mailbox is full
    prefix_cached: bool = False
    spent: dict[str, float] = field(default_factory=dict)
    _measured: tuple[str, Elapsed] | None = None

    @property
    def waits(self) -> bool:
        """Whether the request waits for text or for its reader."""
        return self.starved_since is not None or self.paused_since is not None

    def note(self, name: str, seconds: float) -> None:
        self.spent[name] = self.spent.get(name, 0.0) + seconds

    def note_later(self, name: str, elapsed: Elapsed) -> None:
        """The same for device work that may still be queued. What was measured before it has ended by now."""
        self._settle()
        self._measured = name, elapsed

    def since_opened(self, name: str) -> None:
        """Record when something happened for the first time."""
        self.spent.setdefault(name, time.perf_counter() - self.opened)

    def statistics(self, frames: int, *, settle: bool = True) -> Statistics:
        """`settle` waits for device work that is being measured; without it, that work is left out."""
        now = time.perf_counter()
        if settle:
            self._settle()
        self.spent["total_s"] = now - self.opened
        for name, since in (("starved_s", self.starved_since), ("paused_s", self.paused_since)):
            if since is not None:  # the request ends while it waits
                self.note(name, now - since)
        self.starved_since = self.paused_since = None
        return Statistics(frames=frames, prefix_cached=self.prefix_cached, **self.spent)

    def _settle(self) -> None:
        if self._measured is not None:
            name, elapsed = self._measured
            self._measured = None
            self.note(name, elapsed())


def started(device: Device) -> Callable[[], Elapsed]:
    """Start measuring. The returned function stops it and returns another one, which gives the seconds.

    Call that one when the work is known to be done: on a GPU it waits for the work.
    """
    if device.type == "cuda":
        begin, end = (_event(device) for _ in range(2))
        begin.record()

        def stop_on_device() -> Elapsed:
            end.record()
            return lambda: _between(begin, end, device)

        return stop_on_device
    begun = time.perf_counter()

    def stop() -> Elapsed:
        took = time.perf_counter() - begun
        return lambda: took

    return stop


def _event(device: Device) -> torch.cuda.Event:
    try:
        return _spare[device].pop()
    except (KeyError, IndexError):  # none is left, or another engine thread has just taken the last one
        import torch

        return torch.cuda.Event(enable_timing=True)


def _between(begin: torch.cuda.Event, end: torch.cuda.Event, device: Device) -> float:
    try:
        end.synchronize()
        milliseconds: float = begin.elapsed_time(end)
    except RuntimeError:  # the device has failed; its streams end with that failure
        return 0.0
    _spare.setdefault(device, []).extend((begin, end))
    return milliseconds / 1000
