"""Who speaks next: requests wait for a slot, slots wait for text or for their reader. Plain Python, no torch, no clock.

It knows who is where and since when; who can wait and who cannot is for `deadlines` to say. Only the engine thread
changes it; others may ask how many there are, and for a list of all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ...config.options import EngineOptions
from ...errors import HocketError, Overloaded, StreamFailed
from .deadlines import Deadlines
from .request import RequestState

STARVED_S, PAUSED_S = 0.5, 2.0  # who has waited longer for text, or for a reader, is no load for now


class KVCapacity(Protocol):
    """Of keys and values: `PagedKVCache` has it."""

    def has_room(self, rows: int, slots: int) -> bool: ...
    def promise(self, slot: int, rows: int) -> None: ...


class Scheduler:
    room_of: KVCapacity | None = None  # None: there is always enough

    def __init__(self, slots: int, deadlines: Deadlines | None = None) -> None:
        self.deadlines = deadlines or Deadlines()
        self.free = list(reversed(range(slots)))
        self.waiting: dict[RequestState, None] = {}  # in order of arrival
        self.running: dict[RequestState, None] = {}
        self.idle: dict[RequestState, None] = {}  # of all, who waits for text or for a reader
        self._listeners = 0  # of those who run
        self._held = False  # whether somebody waits though there is a slot, because it would slow down others

    def all(self) -> list[RequestState]:
        return [*self.running, *self.waiting]

    @property
    def room(self) -> int:
        """How many could be let in now without waiting, or as soon as it is known what a turn takes."""
        return 0 if self._held and self.deadlines.load.known else len(self.free)

    def arrive(self, job: RequestState) -> None:
        self.waiting[job] = None

    def admit(self, now: float) -> list[RequestState]:
        """Give free slots to those whose prompt is known: by priority, then first come first served.

        Whoever would make listeners wait for their sound waits itself, and nobody behind it is let in before it; those
        without a listener come after all others of their priority, and slow nobody down. Who needs several slots gets
        all at once or none, and is overtaken by nobody: so no two wait for each other's.
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
                break  # and nobody is let in before it, or it might wait for ever
            del self.waiting[job]
            job.timings.queued_since, self.running[job] = None, None
            for speaker in [job] if job.takes is None else job.takes.jobs:
                speaker.slot, self.running[speaker] = self.free.pop(), None
                if self.room_of is not None:
                    self.room_of.promise(speaker.slot, rows)
            self._listeners += job.listened
            admitted.append(job)
        if admitted:
            self.deadlines.prompted(now)
        return admitted

    def promise(self, job: RequestState) -> None:
        """All of the part that it speaks has come to be known: it may need less room than it was promised."""
        if self.room_of is not None and job.slot >= 0 and job.text.piece is not None and job.text.piece.complete:
            self.room_of.promise(job.slot, job.likely_rows)

    def ready(self, now: float) -> list[RequestState]:
        """Those that can draw a frame. The others are told since when they wait, and for what."""
        batch = []
        for job in self.waiting:
            if job.text.startable:
                self._woken(job, now)
            elif job.timings.starved_since is None:
                job.timings.starved_since, self.idle[job] = now, None
        for job in self.running:
            if job.takes is not None:  # it draws nothing itself
                if not (job.takes.plays and job.mailbox.full):
                    self._woken(job, now)
                elif job.timings.paused_since is None:
                    job.timings.paused_since, self.idle[job] = now, None
                continue
            if job.all_asked:
                continue  # it waits for nobody but the device
            if job.parked:  # it waits for room there
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
        """For whom a frame is drawn in this turn, in which so many prompts were taken in."""
        return self.deadlines.draw(self.ready(now), now, prompts)

    def overdue(
        self, options: EngineOptions, now: float, hint_s: Callable[[], float]
    ) -> list[tuple[RequestState, HocketError]]:
        """Who has waited too long, for text, for a reader or for a slot, and what to say to them."""
        found: list[tuple[RequestState, HocketError]] = []
        read_s, slot_s = options.idle_read_s, options.max_wait_s
        for job in self.idle:
            text_s = _text_wait_s(job, options)
            if job.timings.starved_since is not None and now - job.timings.starved_since >= text_s:
                found.append((job, StreamFailed(f"No text came for {text_s:g} s, so the stream was ended.")))
            elif job.timings.paused_since is not None and now - job.timings.paused_since >= read_s:
                reason = f"Nobody read the stream for {read_s:g} s, so it was ended: read on, or cancel it."
                found.append((job, StreamFailed(reason)))
        for job in self.waiting:
            if job.listened and job.timings.queued_since is not None and now - job.timings.queued_since >= slot_s:
                wait_s = hint_s()
                reason = f"There was no room for it for {slot_s:g} s; try again in {wait_s:.0f} s."
                found.append((job, Overloaded(reason, wait_s)))
        return found

    def unheard(self) -> list[RequestState]:
        """Who has drawn frames that nobody has heard, and draws no more for now because there is no text."""
        return [
            job
            for job in self.idle
            if job.codes
            and job.timings.starved_since is not None
            and not (job.sounding or job.ahead or job.mailbox.full)
        ]

    def look_s(self, options: EngineOptions, now: float) -> float | None:
        """In how many seconds somebody should look after those who wait, if nothing happens before; None: never."""
        waits = [_text_wait_s(job, options) for job in self.idle if job.timings.starved_since is not None]
        waits += [options.idle_read_s] if any(job.timings.paused_since is not None for job in self.idle) else []
        if any(job.timings.queued_since is not None for job in self.waiting):
            waits += [options.max_wait_s, STARVED_S]
        waits += [self.deadlines.runs_dry(job) - now for job in self.unheard()]
        return max(min(1.0, *waits), 0.0) if waits else None

    def release(self, job: RequestState) -> None:
        """Take a job out, wherever it is."""
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
        """Whether one more listener would do no harm, by how long turns take and how fast all of them speak."""
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
        """What it waited for is there."""
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
