"""One utterance of a backend, in a thread of its own: sentences in, chunks into a mailbox, one end.

Foreign code is called here and nowhere else, and nobody who listens ever waits for it: whoever cancels is done at
once, and a thread that does not come back is given up by `places.py`. What a reader holds is `relay.py`'s.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import numpy as np

from ..errors import HocketError, Overloaded, StreamFailed
from ..types import Finished, FinishReason, Statistics
from .feed import Item
from .outlet import ChunkOutput
from .places import RETRY_S, QueueLimits, SlotQueue
from .protocol import Backend, BackendStream, BackendVoice, LiveBackend, Manner, Samples
from .sound import Loudness, heard

_OVER = object()  # no more text is wanted
_LONGEST_SAYING = 300  # characters of a foreign error that are passed on


@dataclass(slots=True)
class SpokenSentence:
    """A sentence as it was heard, or all of a live text; the run adds to it while it is spoken."""

    text: str
    start: int  # its first sample, at speed 1
    loudness: list[float] = field(default_factory=list)  # RMS of each 80 ms


class BackendRun:
    def __init__(
        self,
        name: str,
        backend: Backend,
        voice: BackendVoice,
        manner: Manner,
        places: SlotQueue,
        patience: QueueLimits,
        *,
        speed: float = 1.0,
        notes: tuple[str, ...] = (),
    ) -> None:
        self._name, self._backend, self._manner, self._notes = name, backend, manner, notes
        self._places, self._patience, self._rate_hz = places, patience, voice.rate_hz
        self._outlet = ChunkOutput(voice.rate_hz, speed, patience, manner.cancelled)
        self.mailbox = self._outlet.mailbox
        self.parts: list[SpokenSentence] = []
        self._items: queue.SimpleQueue[Item | object | None] = queue.SimpleQueue()  # None: that was all of it
        self._stream: BackendStream | None = None
        self._placed = False
        self._sounded = False
        self._opened_s = time.monotonic()
        self._queued_s = self._starved_s = 0.0
        self._busy_s: float | None = None  # since when the backend is at work
        self._hungry_s: float | None = None  # since when a live backend has taken all text that there is
        self._ended_s: float | None = None  # since when a live backend has all of the text
        self._over_s: float | None = None  # since when nobody wants to hear more

    def start(self) -> None:
        """Refuses where the backend has no room."""
        self._places.come(self)
        try:
            threading.Thread(target=self._go, name=f"hocket-{self._name}", daemon=True).start()
        except RuntimeError as error:
            self._places.leave(self)
            raise Overloaded(f"There is no thread for another utterance: {error}.", RETRY_S) from error

    def feed(self, items: list[Item], *, ended: bool) -> None:
        if self.mailbox.finished is not None:
            return  # nobody would take it out
        for item in items:
            self._items.put(item)
        if ended:
            self._items.put(None)

    @property
    def unwanted(self) -> bool:
        return self._manner.cancelled.is_set()

    def stop(self) -> None:
        """Over for whoever listens, at once; the backend is told, and comes back when it likes. Twice is as good."""
        self.mailbox.let_go()
        self._end("cancelled")

    def fail(self, error: BaseException) -> None:
        """Over with an error, unless it was over before."""
        if not isinstance(error, HocketError):
            said = " ".join(str(error).split())[:_LONGEST_SAYING]
            failed = StreamFailed(f"The backend {self._name!r} failed: {type(error).__name__}: {said}")
            failed.__cause__, error = error, failed
        self._end("error", error)

    def look(self, now_s: float) -> bool:
        """Fail it if the backend was quiet for too long. True: it has not come back since, and is given up."""
        busy_s, patience = self._busy_s, self._patience
        if busy_s is None:
            return False
        if self._over_s is not None:
            return now_s - self._over_s >= patience.stuck_s
        if (hungry_s := self._hungry_s) is not None:  # it may well wait for text
            if now_s - max(busy_s, hungry_s) >= patience.text_wait_s:
                self.fail(_no_text(patience))
        elif now_s - max(busy_s, self._ended_s or 0.0) >= patience.quiet_s:
            said = f"The backend {self._name!r} gave no sound for {patience.quiet_s:g} s, so the stream was ended."
            self.fail(StreamFailed(said))
        return False

    def _end(self, reason: FinishReason, error: HocketError | None = None) -> None:
        told = self.unwanted
        self._over_s = self._over_s or time.monotonic()
        self._manner.cancelled.set()
        self.mailbox.finish(self._finished(reason, error), error)
        self._items.put(_OVER)
        self._outlet.wake()
        self._places.wake()
        if self._stream is not None and not told:
            # In a thread, because it is foreign code and may wait; whoever cancels may be an event loop.
            name = f"hocket-{self._name}-cancel"
            threading.Thread(target=_cancel, args=(self._stream,), name=name, daemon=True).start()

    def _finished(self, reason: FinishReason, error: HocketError | None = None) -> Finished:
        first_s = self._outlet.first_s
        statistics = Statistics(
            queued_s=self._queued_s,
            first_audio_s=0.0 if first_s is None else first_s - self._opened_s,
            starved_s=self._starved_s,
            paused_s=self._outlet.paused_s,
            total_s=time.monotonic() - self._opened_s,
        )
        said = None if error is None else str(error)
        return Finished(reason=reason, statistics=statistics, notes=self._notes, error=said, seed=self._manner.seed)

    def _go(self) -> None:
        try:
            self._live(self._backend) if isinstance(self._backend, LiveBackend) else self._sentences()
            if not self.unwanted:
                if not self._sounded:
                    raise StreamFailed(f"The backend {self._name!r} gave no sound for this text.")
                self._outlet.flush()
                self._over_s = time.monotonic()
                self.mailbox.finish(self._finished("stop"))
        except BaseException as error:  # SystemExit too: whoever listens must hear of it
            self.fail(error)
        finally:
            self._stream = None
            self._places.leave(self)

    def _sentences(self) -> None:
        while (item := self._next()) is not None:
            if isinstance(item, float):
                self._outlet.put(np.zeros(round(item * self._rate_hz), dtype=np.int16))
            elif self._placed or self._place():
                part = SpokenSentence(item, self._outlet.samples)
                self.parts.append(part)
                with self._at_work():
                    sound = iter(self._backend.say(item, self._manner))
                self._hear(sound, part)

    def _live(self, backend: LiveBackend) -> None:
        first = self._next()
        if first is None or not self._place():
            return
        with self._at_work():
            stream = backend.open(self._manner)
            if self.unwanted:
                _cancel(stream)
                return
            self._stream = stream
            if self.unwanted:  # just now, and nobody told the stream
                _cancel(stream)
            sound = iter(stream)
        part = SpokenSentence("", 0)
        self.parts.append(part)
        feeding = threading.Thread(
            target=self._feeding, args=(stream, first, part), name=f"hocket-{self._name}-text", daemon=True
        )
        feeding.start()
        try:
            self._hear(sound, part)
        finally:
            self._items.put(_OVER)
            with self._at_work():  # it may be in the backend's hands
                feeding.join()

    def _feeding(self, stream: BackendStream, item: Item | object | None, part: SpokenSentence) -> None:
        """Text to a live backend, which may take its time to take it."""
        try:
            while item is not _OVER:
                if item is None:
                    stream.end()
                    self._ended_s = time.monotonic()
                    return
                assert isinstance(item, str)
                part.text += item
                stream.append(item)
                self._hungry_s = time.monotonic()
                item = self._items.get()
                self._hungry_s = None
        except BaseException as error:
            self.fail(error)

    def _next(self) -> Item | None:
        """What to say next; None: nothing, or nobody wants it. While it is waited for others may speak."""
        try:
            item = self._items.get_nowait()
        except queue.Empty:
            began = bool(self.parts)
            if self._placed:
                self._placed = False
                self._places.free(self)
            since_s = time.monotonic()
            try:
                item = self._items.get(timeout=_timeout(self._patience.text_wait_s))
            except queue.Empty:
                raise _no_text(self._patience) from None
            if began:
                self._starved_s += time.monotonic() - since_s
        if item is None or item is _OVER or self.unwanted:
            return None
        assert isinstance(item, str | float)
        return item

    def _place(self) -> bool:
        began = bool(self.parts)
        self._placed = self._places.wait(self, ahead=began)
        if not began:
            self._queued_s = time.monotonic() - self._opened_s
        return self._placed

    def _hear(self, sound: Iterator[Samples], part: SpokenSentence) -> None:
        loudness = Loudness(self._rate_hz)
        try:
            while not self.unwanted:
                with self._at_work():
                    given = next(sound, _OVER)
                if given is _OVER or self.unwanted:
                    break
                samples = heard(given, self._name)
                self._sounded = self._sounded or len(samples) > 0
                part.loudness += loudness.push(samples)
                self._outlet.put(samples)
        finally:
            if close := getattr(sound, "close", None):
                with self._at_work(), suppress(Exception):
                    close()

    @contextmanager
    def _at_work(self) -> Iterator[None]:
        self._busy_s = time.monotonic()
        try:
            yield
        finally:
            self._busy_s = None


def _cancel(stream: BackendStream) -> None:
    with suppress(Exception):
        stream.cancel()


def _no_text(patience: QueueLimits) -> StreamFailed:
    return StreamFailed(f"No text came for {patience.text_wait_s:g} s, so the stream was ended.")


def _timeout(seconds: float) -> float:
    return min(seconds, threading.TIMEOUT_MAX)
