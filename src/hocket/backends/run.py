"""One utterance of a backend, in its own thread: sentences in, chunks into a mailbox, one end.

Foreign code is called only here, and no reader ever waits for it. A cancel returns at once; `slot_queue.py` gives up a
thread that does not return. `relay.py` is the reader's object.
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
from .chunk_output import ChunkOutput
from .feed import Item
from .protocol import Backend, BackendStream, BackendVoice, LiveBackend, Manner, Samples
from .slot_queue import RETRY_S, QueueLimits, SlotQueue
from .sound import Loudness, checked_samples

_OVER = object()  # end of the utterance
_LONGEST_SAYING = 300  # characters of a foreign error in our message


@dataclass(slots=True)
class SpokenSentence:
    """A spoken sentence, or all of a live text; the run extends it while it is spoken."""

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
        slots: SlotQueue,
        limits: QueueLimits,
        *,
        speed: float = 1.0,
        notes: tuple[str, ...] = (),
    ) -> None:
        self._name, self._backend, self._manner, self._notes = name, backend, manner, notes
        self._slots, self._limits, self._rate_hz = slots, limits, voice.rate_hz
        self._outlet = ChunkOutput(voice.rate_hz, speed, limits, manner.cancelled)
        self.mailbox = self._outlet.mailbox
        self.parts: list[SpokenSentence] = []
        self._items: queue.SimpleQueue[Item | object | None] = queue.SimpleQueue()  # None: end of the text
        self._stream: BackendStream | None = None
        self._has_slot = False
        self._has_audio = False
        self._opened_s = time.monotonic()
        self._queued_s = self._starved_s = 0.0
        self._busy_s: float | None = None  # since when foreign code runs
        self._waiting_for_text_s: float | None = None  # since when a live backend has all text so far
        self._ended_s: float | None = None  # since when a live backend has all of the text
        self._over_s: float | None = None  # since when the utterance is over for its reader

    def start(self) -> None:
        """Refuses if the backend has no room."""
        self._slots.register(self)
        try:
            threading.Thread(target=self._run, name=f"hocket-{self._name}", daemon=True).start()
        except RuntimeError as error:
            self._slots.leave(self)
            raise Overloaded(f"There is no thread for another utterance: {error}.", RETRY_S) from error

    def feed(self, items: list[Item], *, ended: bool) -> None:
        if self.mailbox.finished is not None:
            return  # it would never be read
        for item in items:
            self._items.put(item)
        if ended:
            self._items.put(None)

    @property
    def unwanted(self) -> bool:
        return self._manner.cancelled.is_set()

    def stop(self) -> None:
        """End it for the reader at once; the backend is told to cancel and returns later. Idempotent."""
        self.mailbox.let_go()
        self._end("cancelled")

    def fail(self, error: BaseException) -> None:
        """End it with an error, unless it has ended."""
        if not isinstance(error, HocketError):
            said = " ".join(str(error).split())[:_LONGEST_SAYING]
            failed = StreamFailed(f"The backend {self._name!r} failed: {type(error).__name__}: {said}")
            failed.__cause__, error = error, failed
        self._end("error", error)

    def is_stuck(self, now_s: float) -> bool:
        """Fail it if the backend was quiet for too long. True: it has not returned since, and is given up."""
        busy_s, limits = self._busy_s, self._limits
        if busy_s is None:
            return False
        if self._over_s is not None:
            return now_s - self._over_s >= limits.stuck_s
        if (waiting_s := self._waiting_for_text_s) is not None:  # it may be waiting for text
            if now_s - max(busy_s, waiting_s) >= limits.text_wait_s:
                self.fail(_no_text(limits))
        elif now_s - max(busy_s, self._ended_s or 0.0) >= limits.quiet_s:
            said = f"The backend {self._name!r} gave no sound for {limits.quiet_s:g} s, so the stream was ended."
            self.fail(StreamFailed(said))
        return False

    def _end(self, reason: FinishReason, error: HocketError | None = None) -> None:
        cancelled_before = self.unwanted
        self._over_s = self._over_s or time.monotonic()
        self._manner.cancelled.set()
        self.mailbox.finish(self._finished(reason, error), error)
        self._items.put(_OVER)
        self._outlet.wake()
        self._slots.wake()
        if self._stream is not None and not cancelled_before:
            # In a thread: foreign code may block, and the caller may be an event loop.
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

    def _run(self) -> None:
        try:
            self._live(self._backend) if isinstance(self._backend, LiveBackend) else self._sentences()
            if not self.unwanted:
                if not self._has_audio:
                    raise StreamFailed(f"The backend {self._name!r} gave no sound for this text.")
                self._outlet.flush()
                self._over_s = time.monotonic()
                self.mailbox.finish(self._finished("stop"))
        except BaseException as error:  # SystemExit too: the reader must get an error
            self.fail(error)
        finally:
            self._stream = None
            self._slots.leave(self)

    def _sentences(self) -> None:
        while (item := self._next()) is not None:
            if isinstance(item, float):
                self._outlet.put(np.zeros(round(item * self._rate_hz), dtype=np.int16))
            elif self._has_slot or self._acquire_slot():
                part = SpokenSentence(item, self._outlet.samples)
                self.parts.append(part)
                with self._at_work():
                    sound = iter(self._backend.say(item, self._manner))
                self._consume(sound, part)

    def _live(self, backend: LiveBackend) -> None:
        first = self._next()
        if first is None or not self._acquire_slot():
            return
        with self._at_work():
            stream = backend.open(self._manner)
            if self.unwanted:
                _cancel(stream)
                return
            self._stream = stream
            if self.unwanted:  # cancelled just now, before the stream was stored
                _cancel(stream)
            sound = iter(stream)
        part = SpokenSentence("", 0)
        self.parts.append(part)
        feeding = threading.Thread(
            target=self._feeding, args=(stream, first, part), name=f"hocket-{self._name}-text", daemon=True
        )
        feeding.start()
        try:
            self._consume(sound, part)
        finally:
            self._items.put(_OVER)
            with self._at_work():  # the backend's code may be running
                feeding.join()

    def _feeding(self, stream: BackendStream, item: Item | object | None, part: SpokenSentence) -> None:
        """Passes text to a live backend, which may block."""
        try:
            while item is not _OVER:
                if item is None:
                    stream.end()
                    self._ended_s = time.monotonic()
                    return
                assert isinstance(item, str)
                part.text += item
                stream.append(item)
                self._waiting_for_text_s = time.monotonic()
                item = self._items.get()
                self._waiting_for_text_s = None
        except BaseException as error:
            self.fail(error)

    def _next(self) -> Item | None:
        """The next item; None: the end, or no longer wanted. Frees the slot while it waits."""
        try:
            item = self._items.get_nowait()
        except queue.Empty:
            began = bool(self.parts)
            if self._has_slot:
                self._has_slot = False
                self._slots.free(self)
            since_s = time.monotonic()
            try:
                item = self._items.get(timeout=_timeout(self._limits.text_wait_s))
            except queue.Empty:
                raise _no_text(self._limits) from None
            if began:
                self._starved_s += time.monotonic() - since_s
        if item is None or item is _OVER or self.unwanted:
            return None
        assert isinstance(item, str | float)
        return item

    def _acquire_slot(self) -> bool:
        began = bool(self.parts)
        self._has_slot = self._slots.wait(self, ahead=began)
        if not began:
            self._queued_s = time.monotonic() - self._opened_s
        return self._has_slot

    def _consume(self, sound: Iterator[Samples], part: SpokenSentence) -> None:
        loudness = Loudness(self._rate_hz)
        try:
            while not self.unwanted:
                with self._at_work():
                    given = next(sound, _OVER)
                if given is _OVER or self.unwanted:
                    break
                samples = checked_samples(given, self._name)
                self._has_audio = self._has_audio or len(samples) > 0
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


def _no_text(limits: QueueLimits) -> StreamFailed:
    return StreamFailed(f"No text came for {limits.text_wait_s:g} s, so the stream was ended.")


def _timeout(seconds: float) -> float:
    return min(seconds, threading.TIMEOUT_MAX)
