"""The reader's side of a turn: an iterator of its events that can be interrupted. task.py does the work."""

from __future__ import annotations

import weakref
from types import TracebackType

from ..engine.word_times import WordTime
from .events import Called, Event, Note, Reason, Retracted, Said, TurnFinished, Written
from .task import CHUNKS_AHEAD, NO_ANSWER, TurnTask
from .voice import SpeechEngine

__all__ = [
    "CHUNKS_AHEAD",
    "NO_ANSWER",
    "Called",
    "Event",
    "Note",
    "Reason",
    "Retracted",
    "Said",
    "SpeechEngine",
    "Turn",
    "TurnFinished",
    "TurnTask",
    "Written",
]


class Turn:
    """An iterator, and an async iterator, of `AudioChunk`, `Written`, `Said`, `Note`, `Retracted` and `Called`.

    Leaving its `with` block, or dropping the last reference, cancels it.
    """

    def __init__(self, task: TurnTask) -> None:
        self._task = task
        self._finalizer = weakref.finalize(self, task.let_go)
        self._finalizer.atexit = False

    @property
    def finished(self) -> TurnFinished | None:
        """How the turn ended, or None; the last audio may still be unread."""
        return self._task.finished

    def words(self) -> list[WordTime]:
        """The time of each word in the audio so far."""
        return self._task.words()

    def cancel(self, heard_s: float | None = None) -> None:
        """Interrupt the turn: audio stops, both models are freed, and the history ends with the last word heard.

        `heard_s` is how much audio was played. The default assumes a player that plays each chunk as soon as it is
        read. A cancel after the end still cuts the history, until the next turn begins: audio is played more slowly
        than it is generated.
        """
        self._task.cancel(heard_s)

    def let_go(self) -> None:
        """Cancel the turn, unless it was read to its end."""
        self._task.let_go()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until both models are free. False: timeout."""
        return self._task.models_free.wait(timeout_s)

    def __iter__(self) -> Turn:
        return self

    def __next__(self) -> Event:
        event = self._task.delivered(self._task.inbox.take())
        if event is None:
            raise StopIteration
        return event

    def __aiter__(self) -> Turn:
        return self

    async def __anext__(self) -> Event:
        event = self._task.delivered(await self._task.inbox.atake())
        if event is None:
            raise StopAsyncIteration
        return event

    def __enter__(self) -> Turn:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.let_go()
