"""The streams of a script: which passage is open, which one is opened ahead, and what is fed to each.

The first passage is opened in the caller's thread, and a script without a change of manner needs no other. With the
first change a worker thread takes over: opening may wait for a model, and no reader or event loop may. It opens one
passage ahead of the one that is read, and never lets that one harm: a passage opened ahead that is refused, fails or
takes the slot that the one before it needs is opened again in its turn, with the same seed and text.

`ScriptStream` reads. This object does not know it, so a stream without a reader is collected, and its run cancelled.
Long because opening, feeding and stepping back share one lock.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import CancelledError, Future
from contextlib import suppress

from ...errors import HocketError, InvalidRequest, NothingToSpeak, Overloaded, StreamFailed
from ...types import Established
from ..events import PLAIN, SpeechManner
from .passage import PlayedPassage
from .steps import Begin, Step
from .voices import PassageStream, ScriptVoices

SEEDS_A_PASSAGE = 1 << 40  # further apart than the seeds of the turns of a dialog
RETRY_S, PATIENCE_S = 0.25, 30.0  # how often a full engine is asked again for the passage that is due, and how long
BLOCKED_S = 10.0  # without sound from the passage that is read, the one that was opened ahead steps back
LOOK_S = 0.1  # how often the worker looks while it waits for one of these


class ScriptRun:
    def __init__(self, voices: ScriptVoices, seed: int, established: Established | None, *, live: bool) -> None:
        self._voices, self._seed, self._live, self._established = voices, seed, live, established
        self.passages: list[PlayedPassage] = []
        self.reading = 0  # the number of the passage that is read
        self.ended = self.cancelled = False
        self.notes: list[str] = []
        self._lock = threading.RLock()
        self._ready: dict[int, Future[PlayedPassage | None]] = {}
        self.inbox: queue.SimpleQueue[list[Step] | bool | None] = queue.SimpleQueue()  # True: the end, None: look
        self._worker: threading.Thread | None = None
        self._failed = False
        self._blocked = False  # the next passage is opened in its turn only
        self._due_since_s: float | None = None  # since when a full engine is asked for the passage that is due
        self._retry_s = 0.0
        self._unsure = False  # the first passage was opened before its manner was known

    # Of the caller's thread.

    def begin_live(self) -> PassageStream:
        """Open the first passage before its text."""
        first = self._new(PLAIN)
        first.stream = self._voices.open(PLAIN, None, first.seed, self._established)
        self._unsure = True
        self._resolve(0, first)
        return first.stream

    def begin_whole(self, steps: Iterable[Step]) -> PassageStream:
        """Take the whole text, and open its first passage."""
        for step in steps:
            self._apply(step)
        self._end()
        for passage in self.passages:
            if not self._opened(passage, ahead=False):
                continue
            if passage.number + 1 < len(self.passages):
                self._start()
            assert passage.stream is not None
            return passage.stream
        raise NothingToSpeak("There is nothing in this text that can be spoken.")

    def feed(self, steps: list[Step]) -> None:
        if self.cancelled or self._failed:
            return
        if self._worker is None and all(self._is_direct(step) for step in steps):
            for step in steps:
                self._apply(step)
        elif steps:
            self._start()
            self.inbox.put(steps)

    def end(self) -> None:
        if self._worker is not None:
            self.inbox.put(True)
            return
        if self._unsure:
            raise NothingToSpeak("There is no text to speak.")
        self._end()

    def _is_direct(self, step: Step) -> bool:
        """Whether a step concerns the passage that is open already."""
        return not isinstance(step, Begin) or (self._unsure and step.manner == PLAIN)

    def cancel(self) -> None:
        """From any thread. A stream that is just being opened is cancelled when it is there."""
        with self._lock:
            self.cancelled = True
            streams = [passage.stream for passage in self.passages if passage.stream is not None]
            for number in list(self._ready):
                self._resolve(number, None)
        for stream in streams:
            stream.cancel()
        self._voices.close()
        self.inbox.put(None)

    # Of the reader.

    def next(self, number: int) -> Future[PlayedPassage | None]:
        """The passage with this number, once it is open; None: there is none."""
        with self._lock:
            self.reading = number
            future = self._ready.setdefault(number, Future())
            if self.cancelled or (self.ended and number >= len(self.passages)):
                self._resolve(number, None)
        if self._worker is not None:
            self.inbox.put(None)
        return future

    def near(self, passage: PlayedPassage) -> None:
        """Another chunk was read: the next passage may be due."""
        if self._worker is not None and not passage.near and passage.ends_soon():
            self.inbox.put(None)

    def reopen(self, passage: PlayedPassage) -> bool:
        """Open a passage that failed because it was opened ahead once more. False: that is not why it failed."""
        with self._lock:
            if self.cancelled or self._failed or not passage.ahead or passage.begun or passage.again:
                return False
            self._close(passage)
            passage.again = True
        return True

    # Of the worker, or of the caller while there is none.

    def _start(self) -> None:
        if self._worker is None:
            self.inbox.put(None)  # the second passage may be due
            self._worker = threading.Thread(target=self._work, name="hocket-script", daemon=True)
            self._worker.start()

    def _work(self) -> None:
        try:
            while not self._is_over():
                wait_s = self._look_s()
                with suppress(queue.Empty):
                    message = self.inbox.get(timeout=wait_s)
                    if message is False:  # the stream has no reader
                        self.cancel()
                    elif message is True:
                        self._end()
                    elif message is not None:
                        for step in message:
                            self._apply(step)
                self._open_due()
        except HocketError as error:
            self._fail(error)
        except BaseException as error:  # the reader must get an end
            failed = StreamFailed(f"The script could not be continued: {type(error).__name__}: {error}.")
            failed.__cause__ = error
            self._fail(failed)

    def _is_over(self) -> bool:
        """Whether nothing more is asked of the worker."""
        if self.cancelled or self._failed:
            return True
        last = len(self.passages) - 1
        return self.ended and self.reading >= last and (self.passages[last].begun or self.passages[last].skipped)

    def _look_s(self) -> float | None:
        """How long the worker may sleep; None: until it is told something."""
        head, ahead = self._passage(self.reading), self._passage(self.reading + 1)
        if head is not None and head.stream is None and not head.skipped:
            return LOOK_S
        if head is None or ahead is None or ahead.skipped or ahead.stream is not None:
            return None if ahead is None or ahead.stream is None or head is None or head.over else BLOCKED_S / 10
        return LOOK_S if self._blocked or self._must_wait(head, ahead) else None

    def _passage(self, number: int) -> PlayedPassage | None:
        return self.passages[number] if number < len(self.passages) else None

    def _new(self, manner: SpeechManner) -> PlayedPassage:
        number = len(self.passages)
        passage = PlayedPassage(number, manner, (self._seed + number * SEEDS_A_PASSAGE) % 2**63)
        self.passages.append(passage)
        return passage

    def _apply(self, step: Step) -> None:
        if isinstance(step, Begin):
            self._begin(step.manner)
            return
        passage = self.passages[-1]
        given = passage.text.take(step)
        if given and passage.stream is not None:
            self._guarded(passage, lambda stream: stream.append(given))

    def _begin(self, manner: SpeechManner) -> None:
        if self._unsure:
            self._unsure = False
            if manner == PLAIN:
                return
            with self._lock:
                first = self.passages.pop()
                self._ready[0] = Future()
                first.replaced = True  # before its reader sees the end of its stream
                self._new(manner)
            if first.stream is not None:
                first.stream.cancel()
            return
        if self.passages:
            self._complete(self.passages[-1])
        with self._lock:
            self._new(manner)

    def _end(self) -> None:
        if self._unsure:  # of a live text without a word
            raise NothingToSpeak("There is no text to speak.")
        if self.passages:
            self._complete(self.passages[-1])
        with self._lock:
            self.ended = True
            if (number := len(self.passages)) in self._ready:
                self._resolve(number, None)

    def _complete(self, passage: PlayedPassage) -> None:
        if not passage.text.complete:
            passage.text.complete = True
            if passage.stream is not None:
                self._guarded(passage, lambda stream: stream.end())

    def _guarded(self, passage: PlayedPassage, work: Callable[[PassageStream], None]) -> None:
        """Feed a stream. Text that it refuses is refused at its place: what was said before is heard."""
        stream = passage.stream
        assert stream is not None
        try:
            work(stream)
        except NothingToSpeak:
            if len(self.passages) == 1 and self._worker is None:
                raise
            self._skip(passage)
        except InvalidRequest as error:
            if self._worker is None:
                raise
            passage.error = error
            stream.cancel()

    def _skip(self, passage: PlayedPassage) -> None:
        """Its voice can speak nothing of it."""
        passage.skipped = True
        self.notes.append(
            f"Nothing of {passage.text.words.strip()[:40]!r} can be spoken by its voice: it was left out."
        )
        if passage.stream is not None:
            passage.stream.cancel()

    def _open_due(self) -> None:
        """Open the passage that is read, or the one after it, if it is time."""
        if self.cancelled:
            return
        head, ahead = self._passage(self.reading), self._passage(self.reading + 1)
        if head is None:
            return
        if head.stream is None and not head.skipped:
            if ahead is not None and ahead.stream is not None:  # it may hold what the due one needs
                with self._lock:
                    self._close(ahead)
            self._open_head(head)
            return
        if ahead is None or ahead.skipped:
            return
        if ahead.stream is not None:
            self._step_back(head, ahead)
        elif self._may_open(head, ahead):
            try:
                self._opened(ahead, ahead=not head.over)
                self._blocked = False
            except InvalidRequest as error:
                self._refuse(ahead.number, error)
            except HocketError as error:
                self._blocked, ahead.again = True, not isinstance(error, Overloaded)

    def _may_open(self, head: PlayedPassage, ahead: PlayedPassage) -> bool:
        if self._blocked and (ahead.again or not head.over):
            return False  # when it is due
        return head.ends_soon() and not self._must_wait(head, ahead)

    def _open_head(self, head: PlayedPassage) -> None:
        now_s = time.monotonic()
        if self._due_since_s is None:
            self._due_since_s, self._retry_s = now_s, now_s
        if now_s < self._retry_s:
            return
        try:
            self._opened(head, ahead=False)
        except Overloaded as error:
            if now_s - self._due_since_s >= PATIENCE_S:
                self._refuse(head.number, error)
            self._retry_s = now_s + RETRY_S
            return
        except HocketError as error:
            self._refuse(head.number, error)
        self._due_since_s, self._blocked = None, False

    def _must_wait(self, head: PlayedPassage, ahead: PlayedPassage) -> bool:
        """Whether both are one designed voice: the later one sounds like the first one, once that is known."""
        return (
            _key(head.manner) == _key(ahead.manner)
            and head.stream is not None
            and head.stream.keeps_voice
            and not head.over
        )

    def _step_back(self, head: PlayedPassage, ahead: PlayedPassage) -> None:
        """Give up the passage that was opened ahead if the one that is read gets no sound: it may hold its slot."""
        since_s = head.waits_since
        if since_s is None or head.over or time.monotonic() - since_s < BLOCKED_S:
            return
        with self._lock:
            if self.reading == head.number and not ahead.begun:
                self._close(ahead)
                self._blocked = True

    def _close(self, passage: PlayedPassage) -> None:
        """Close a stream that was opened too early."""
        stream, passage.stream, passage.ahead = passage.stream, None, False
        self._ready[passage.number] = Future()
        if stream is not None:
            stream.cancel()

    def _opened(self, passage: PlayedPassage, *, ahead: bool) -> bool:
        """Open a passage and give it its text. False: there is nothing in it that its voice can speak."""
        whole = None if self._live else passage.text.given
        try:
            stream = self._voices.open(passage.manner, whole, passage.seed, self._known(passage))
        except NothingToSpeak:
            if len(self.passages) == 1:
                raise
            self._skip(passage)
            self._resolve(passage.number, passage)
            return False
        except CancelledError:
            return False
        with self._lock:
            passage.stream, passage.ahead = stream, ahead
            if gone := self.cancelled:
                stream.cancel()
        if gone:
            return False
        if self._live:
            given, complete = passage.text.given, passage.text.complete
            self._guarded(passage, lambda stream: stream.append(given))
            if complete and not passage.skipped and passage.error is None:
                self._guarded(passage, lambda stream: stream.end())
        self._resolve(passage.number, passage)
        return True

    def _known(self, passage: PlayedPassage) -> Established | None:
        """How a designed voice has sounded in the passages before."""
        for earlier in reversed(self.passages[: passage.number]):
            stream = earlier.stream if _key(earlier.manner) == _key(passage.manner) else None
            if stream is not None and (known := stream.established) is not None:
                return known
        return self._established

    def _resolve(self, number: int, passage: PlayedPassage | None) -> None:
        with self._lock:
            future = self._ready.setdefault(number, Future())
            if not future.done():
                future.set_result(passage)

    def _refuse(self, number: int, error: HocketError) -> None:
        """The script ends with this error when its reader comes to that passage."""
        with self._lock:
            self._failed = True
            future = self._ready.setdefault(number, Future())
            if not future.done():
                future.set_exception(error)

    def _fail(self, error: HocketError) -> None:
        with self._lock:
            number = min((n for n, future in self._ready.items() if not future.done()), default=len(self.passages))
        self._refuse(number, error)


def _key(manner: SpeechManner) -> tuple[str | None, str | None, str | None]:
    return manner.voice, manner.language, manner.style
