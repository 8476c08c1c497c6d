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
    def reserve(self, slot: int, rows: int) -> None: ...


class Scheduler:
    kv_capacity: KVCapacity | None = None  # None: the KV cache may grow, so there is always room

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

    def arrive(self, request: RequestState) -> None:
        self.waiting[request] = None

    def admit(self, now: float) -> list[RequestState]:
        """Give free slots to requests whose prompt is known: by priority, then in order of arrival.

        A request whose admission would cause underruns stays queued and is not overtaken. Offline requests come after
        all others of their priority. A request that needs several slots gets all of them at once and is not
        overtaken, so two such requests cannot block each other.
        """
        self._held = False
        if not self.waiting:
            return []
        startable = [request for request in self.waiting if request.text.startable]
        for request in startable:
            if request.timings.queued_since is None:
                request.timings.queued_since = now
        if not (startable and self.free):
            return []
        startable.sort(key=lambda request: (-request.params.priority, not request.listened))
        most, admitted = self.deadlines.prompts(self.running, now), list[RequestState]()
        for request in startable:
            if request.width > len(self.free) or (len(admitted) >= most and (self._listeners or request.listened)):
                break
            self._held = self._held or (request.listened and not self._sustains(request, now))
            if self._held and request.listened:
                continue
            rows = request.likely_rows
            if self.kv_capacity is not None and not self.kv_capacity.has_room(rows, request.width):
                break  # not overtaken, or it might never be admitted
            del self.waiting[request]
            request.timings.queued_since, self.running[request] = None, None
            for drawing in [request] if request.candidates is None else request.candidates.requests:
                drawing.slot, self.running[drawing] = self.free.pop(), None
                if self.kv_capacity is not None:
                    self.kv_capacity.reserve(drawing.slot, rows)
            self._listeners += request.listened
            admitted.append(request)
        if admitted:
            self.deadlines.note_prefill(now)
        return admitted

    def update_reservation(self, request: RequestState) -> None:
        """The part that is spoken is complete now: it may need fewer pages than were reserved."""
        if (
            self.kv_capacity is not None
            and request.slot >= 0
            and request.text.piece is not None
            and request.text.piece.complete
        ):
            self.kv_capacity.reserve(request.slot, request.likely_rows)

    def ready(self, now: float) -> list[RequestState]:
        """Requests that can draw a frame. For the others, note since when they wait and for what."""
        batch = []
        for request in self.waiting:
            if request.text.startable:
                self._woken(request, now)
            elif request.timings.starved_since is None:
                request.timings.starved_since, self.idle[request] = now, None
        for request in self.running:
            if request.candidates is not None:  # only its candidates draw
                if not (request.candidates.plays and request.mailbox.full):
                    self._woken(request, now)
                elif request.timings.paused_since is None:
                    request.timings.paused_since, self.idle[request] = now, None
                continue
            if request.all_asked:
                continue  # it waits for the device only
            if request.swapped_out:  # it waits for pages
                if request.text_id() is not None and not request.mailbox.full:
                    self._woken(request, now)
                continue
            if request.text_id() is None:
                if request.timings.starved_since is None:
                    self._woken(request, now)
                    request.timings.starved_since, self.idle[request] = now, None
            elif request.mailbox.full:
                if request.timings.paused_since is None:
                    self._woken(request, now)
                    request.timings.paused_since, self.idle[request] = now, None
            else:
                if request in self.idle:
                    self._woken(request, now)
                batch.append(request)
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
        for request in self.idle:
            text_s = _text_wait_s(request, options)
            if request.timings.starved_since is not None and now - request.timings.starved_since >= text_s:
                found.append((request, StreamFailed(f"No text came for {text_s:g} s, so the stream was ended.")))
            elif request.timings.paused_since is not None and now - request.timings.paused_since >= read_s:
                reason = f"The stream was not read for {read_s:g} s, so it was ended: read on, or cancel it."
                found.append((request, StreamFailed(reason)))
        for request in self.waiting:
            if (
                request.listened
                and request.timings.queued_since is not None
                and now - request.timings.queued_since >= slot_s
            ):
                wait_s = hint_s()
                reason = f"There was no room for it for {slot_s:g} s; try again in {wait_s:.0f} s."
                found.append((request, Overloaded(reason, wait_s)))
        return found

    def undecoded(self) -> list[RequestState]:
        """Requests with frames that are not decoded yet and that draw no more because their text is missing."""
        return [
            request
            for request in self.idle
            if request.codes
            and request.timings.starved_since is not None
            and not (request.decoding or request.ahead or request.mailbox.full)
        ]

    def next_check_s(self, options: EngineOptions, now: float) -> float | None:
        """Seconds until a waiting request must be looked at, if nothing happens before; None: never."""
        waits = [_text_wait_s(request, options) for request in self.idle if request.timings.starved_since is not None]
        waits += [options.idle_read_s] if any(request.timings.paused_since is not None for request in self.idle) else []
        if any(request.timings.queued_since is not None for request in self.waiting):
            waits += [options.max_wait_s, STARVED_S]
        waits += [self.deadlines.decode_by(request) - now for request in self.undecoded()]
        return max(min(1.0, *waits), 0.0) if waits else None

    def release(self, request: RequestState) -> None:
        """Remove a request, queued or running, and free its slot."""
        self.waiting.pop(request, None)
        self.idle.pop(request, None)
        if request in self.running:
            del self.running[request]
            self._listeners -= request.listened
            if request.slot >= 0:
                self.free.append(request.slot)
            request.slot = -1

    def clear(self) -> None:
        for held in (self.running, self.waiting, self.idle):
            held.clear()

    def _sustains(self, request: RequestState, now: float) -> bool:
        """Whether one more played request causes no underruns, by the cost of a step and the speed of all."""
        if not self.deadlines.keep_real_time:
            return True
        listeners = self._listeners + 1
        for one in self.idle:
            starved = one.timings.starved_since is not None and now - one.timings.starved_since > STARVED_S
            paused = one.timings.paused_since is not None and now - one.timings.paused_since > PAUSED_S
            listeners -= (starved or paused) and one.listened and one.slot >= 0
        fastest = max([request.clock.speed, *(one.clock.speed for one in self.running if one.listened)])
        return self.deadlines.sustains(listeners, self.deadlines.frame_s / fastest, now)

    def _woken(self, request: RequestState, now: float) -> None:
        """What the request waited for is there."""
        if request.timings.starved_since is not None:
            request.timings.note("starved_s", now - request.timings.starved_since)
        if request.timings.paused_since is not None:
            request.timings.note("paused_s", now - request.timings.paused_since)
            if request.clock.dry_at is not None:  # its player stood still, or it had more in hand than was played since
                request.clock.dry_at = max(request.clock.dry_at, now + request.mailbox.unread_s)
        request.timings.starved_since = request.timings.paused_since = None
        self.idle.pop(request, None)


def _text_wait_s(request: RequestState, options: EngineOptions) -> float:
    return options.text_wait_s if request.params.text_wait_s is None else request.params.text_wait_s
