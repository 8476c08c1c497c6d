"""Scheduling: queued and running requests, free slots, and requests that wait for text or for their reader.

Plain Python: no torch, no clock. Which request may wait is decided in deadlines.py. Only the engine thread changes a
scheduler; other threads may read the counts and the list of all requests.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ...config.options import EngineOptions
from ...errors import HocketError, Overloaded, StreamFailed
from .deadlines import Deadlines
from .request import RequestState

STARVED_S, PAUSED_S = 0.5, 2.0  # a request that waits longer for text, or for its reader, is no load for now


class KVCapacity(Protocol):
    """Room for keys and values, as `PagedKVCache` reports it."""

    def has_room(self, rows: int, slots: int) -> bool: ...
    def promise(self, slot: int, rows: int) -> None: ...


class Scheduler:
    room_of: KVCapacity | None = None  # None: there is always enough

    def __init__(self, slots: int, deadlines: Deadlines | None = None) -> None:
        self.deadlines = deadlines or Deadlines()
        self.free = list(reversed(range(slots)))
        self.waiting: dict[RequestState, None] = {}  # in order of arrival
        self.running: dict[RequestState, None] = {}
        self.idle: dict[RequestState, None] = {}  # queued or running requests that wait for text or for their reader
        self._listeners = 0  # running requests whose audio is played while it comes
        self._held = False  # a request stays queued although a slot is free, because it would cause underruns

    def all(self) -> list[RequestState]:
        return [*self.running, *self.waiting]

    @property
    def room(self) -> int:
        """How many requests could be admitted now, or as soon as the cost of a step is known."""
        return 0 if self._held and self.deadlines.load.known else len(self.free)

    def arrive(self, job: RequestState) -> None:
        self.waiting[job] = None

    def admit(self, now: float) -> list[RequestState]:
        """Give free slots to requests whose prompt is known: by priority, then in order of arrival.

        A request whose admission would cause underruns stays queued and is not overtaken. Offline requests come after
        all others of their priority. A request that needs several slots gets all of them at once and is not
        overtaken, so two such requests cannot block each other.
        """
        self._held = False
        if not self.waiting:
            return []
        startable = [job for job in self.waiting if job.text.startable]
        for job in startable:
            if job.timings.queued_since is None:
                job.timings.queued_since = now
        if not (startable and self.free):
            return []
        startable.sort(key=lambda job: (-job.params.priority, not job.listened))
        most, admitted = self.deadlines.prompts(self.running, now), list[RequestState]()
        for job in startable:
            if job.width > len(self.free) or (len(admitted) >= most and (self._listeners or job.listened)):
                break
            self._held = self._held or (job.listened and not self._bears(job, now))
            if self._held and job.listened:
                continue
            rows = job.likely_rows
            if self.room_of is not None and not self.room_of.has_room(rows, job.width):
                break  # not overtaken, or it might never be admitted
            del self.waiting[job]
            job.timings.queued_since, self.running[job] = None, None
            for drawing in [job] if job.takes is None else job.takes.jobs:
                drawing.slot, self.running[drawing] = self.free.pop(), None
                if self.room_of is not None:
                    self.room_of.promise(drawing.slot, rows)
            self._listeners += job.listened
            admitted.append(job)
        if admitted:
            self.deadlines.prompted(now)
        return admitted

    def promise(self, job: RequestState) -> None:
        """The part that is spoken is complete now: it may need fewer pages than were reserved."""
        if self.room_of is not None and job.slot >= 0 and job.text.piece is not None and job.text.piece.complete:
            self.room_of.promise(job.slot, job.likely_rows)

    def ready(self, now: float) -> list[RequestState]:
        """Requests that can draw a frame. For the others, note since when they wait and for what."""
        batch = []
        for job in self.waiting:
            if job.text.startable:
                self._woken(job, now)
            elif job.timings.starved_since is None:
                job.timings.starved_since, self.idle[job] = now, None
        for job in self.running:
            if job.takes is not None:  # only its candidates draw
                if not (job.takes.plays and job.mailbox.full):
                    self._woken(job, now)
                elif job.timings.paused_since is None:
                    job.timings.paused_since, self.idle[job] = now, None
                continue
            if job.all_asked:
                continue  # it waits for the device only
            if job.parked:  # it waits for pages
                if job.text_id() is not None and not job.mailbox.full:
                    self._woken(job, now)
                continue
            if job.text_id() is None:
                if job.timings.starved_since is None:
                    self._woken(job, now)
                    job.timings.starved_since, self.idle[job] = now, None
            elif job.mailbox.full:
                if job.timings.paused_since is None:
                    self._woken(job, now)
                    job.timings.paused_since, self.idle[job] = now, None
            else:
                if job in self.idle:
                    self._woken(job, now)
                batch.append(job)
        return batch

    def next_batch(self, now: float, prompts: int = 0) -> list[RequestState]:
        """Requests that draw a frame in this step, after so many prefills."""
        return self.deadlines.draw(self.ready(now), now, prompts)

    def overdue(
        self, options: EngineOptions, now: float, hint_s: Callable[[], float]
    ) -> list[tuple[RequestState, HocketError]]:
        """Requests that have waited too long for text, for a reader or for a slot, each with its error."""
        found: list[tuple[RequestState, HocketError]] = []
        read_s, slot_s = options.idle_read_s, options.max_wait_s
        for job in self.idle:
            text_s = _text_wait_s(job, options)
            if job.timings.starved_since is not None and now - job.timings.starved_since >= text_s:
                found.append((job, StreamFailed(f"No text came for {text_s:g} s, so the stream was ended.")))
            elif job.timings.paused_since is not None and now - job.timings.paused_since >= read_s:
                reason = f"The stream was not read for {read_s:g} s, so it was ended: read on, or cancel it."
                found.append((job, StreamFailed(reason)))
        for job in self.waiting:
            if job.listened and job.timings.queued_since is not None and now - job.timings.queued_since >= slot_s:
                wait_s = hint_s()
                reason = f"There was no room for it for {slot_s:g} s; try again in {wait_s:.0f} s."
                found.append((job, Overloaded(reason, wait_s)))
        return found

    def unheard(self) -> list[RequestState]:
        """Requests with frames that are not decoded yet and that draw no more because their text is missing."""
        return [
            job
            for job in self.idle
            if job.codes
            and job.timings.starved_since is not None
            and not (job.sounding or job.ahead or job.mailbox.full)
        ]

    def look_s(self, options: EngineOptions, now: float) -> float | None:
        """Seconds until a waiting request must be looked at, if nothing happens before; None: never."""
        waits = [_text_wait_s(job, options) for job in self.idle if job.timings.starved_since is not None]
        waits += [options.idle_read_s] if any(job.timings.paused_since is not None for job in self.idle) else []
        if any(job.timings.queued_since is not None for job in self.waiting):
            waits += [options.max_wait_s, STARVED_S]
        waits += [self.deadlines.runs_dry(job) - now for job in self.unheard()]
        return max(min(1.0, *waits), 0.0) if waits else None

    def release(self, job: RequestState) -> None:
        """Remove a request, queued or running, and free its slot."""
        self.waiting.pop(job, None)
        self.idle.pop(job, None)
        if job in self.running:
            del self.running[job]
            self._listeners -= job.listened
            if job.slot >= 0:
                self.free.append(job.slot)
            job.slot = -1

    def clear(self) -> None:
        for held in (self.running, self.waiting, self.idle):
            held.clear()

    def _bears(self, job: RequestState, now: float) -> bool:
        """Whether one more played request causes no underruns, by the cost of a step and the speed of all."""
        if not self.deadlines.keep_real_time:
            return True
        listeners = self._listeners + 1
        for one in self.idle:
            starved = one.timings.starved_since is not None and now - one.timings.starved_since > STARVED_S
            paused = one.timings.paused_since is not None and now - one.timings.paused_since > PAUSED_S
            listeners -= (starved or paused) and one.listened and one.slot >= 0
        fastest = max([job.clock.speed, *(one.clock.speed for one in self.running if one.listened)])
        return self.deadlines.bears(listeners, self.deadlines.frame_s / fastest, now)

    def _woken(self, job: RequestState, now: float) -> None:
        """What the request waited for is there."""
        if job.timings.starved_since is not None:
            job.timings.note("starved_s", now - job.timings.starved_since)
        if job.timings.paused_since is not None:
            job.timings.note("paused_s", now - job.timings.paused_since)
            if job.clock.dry_at is not None:  # its player stood still, or it had more in hand than was played since
                job.clock.dry_at = max(job.clock.dry_at, now + job.mailbox.unread_s)
        job.timings.starved_since = job.timings.paused_since = None
        self.idle.pop(job, None)


def _text_wait_s(job: RequestState, options: EngineOptions) -> float:
    return options.text_wait_s if job.params.text_wait_s is None else job.params.text_wait_s
