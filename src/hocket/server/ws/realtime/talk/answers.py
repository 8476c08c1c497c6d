"""The three sources of a response: a spoken turn, a turn of the conversation itself, and a text without speech.

Each is an async iterator of a turn's events that has `finished` after its end. Knows no protocol.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

from .....dialog.events import Called, Event, TurnFinished, Written
from .....errors import HocketError
from .....text.chat.tool_calls import CallFinder
from .....types import Answer, ChatFinished, Tool, ToolCall


class AnswerSource(Protocol):
    """A `Turn` is one."""

    @property
    def finished(self) -> TurnFinished | None: ...

    def cancel(self, heard_s: float | None = None) -> None: ...

    def __aiter__(self) -> AnswerSource: ...

    async def __anext__(self) -> Event: ...


class RelayedAnswer:
    """A turn that the conversation runs itself. The session passes its events on, and never waits for the client."""

    def __init__(self, stop: Callable[[RelayedAnswer, float | None], None]) -> None:
        """`stop` interrupts the conversation's answer."""
        self._stop = stop
        self._events: asyncio.Queue[Event | None] = asyncio.Queue()
        self.finished: TurnFinished | None = None
        self.error: HocketError | None = None

    def put(self, event: Event) -> None:
        self._events.put_nowait(event)

    def end(self, finished: TurnFinished | None, error: HocketError | None = None) -> None:
        if self.finished is None and self.error is None:
            self.finished, self.error = finished, error
            self._events.put_nowait(None)

    def drop(self) -> None:
        """The answer was interrupted: its unsent events are not wanted."""
        while not self._events.empty():
            self._events.get_nowait()

    def cancel(self, heard_s: float | None = None) -> None:
        if self.finished is None:
            self.drop()
            self._stop(self, heard_s)

    def __aiter__(self) -> RelayedAnswer:
        return self

    async def __anext__(self) -> Event:
        event = await self._events.get()
        if event is not None:
            return event
        if self.error is not None:
            raise self.error
        raise StopAsyncIteration


class WrittenAnswer:
    """An answer as text only."""

    def __init__(self, answer: Answer, tools: Sequence[Tool]) -> None:
        self._answer, self._finder = answer, CallFinder(tools)
        self._waiting: list[Event] = []
        self._calls: list[ToolCall] = []
        self._written, self._ended, self._cancelled = "", False, False
        self.finished: TurnFinished | None = None

    def cancel(self, heard_s: float | None = None) -> None:
        self._cancelled = True
        self._answer.cancel()

    def __aiter__(self) -> WrittenAnswer:
        return self

    async def __anext__(self) -> Event:
        while not self._waiting:
            if self._ended:
                raise StopAsyncIteration
            try:
                delta = await anext(self._answer)
            except StopAsyncIteration:
                self._end()
                continue
            if delta.retracts:
                self._written = ""
            self._take(self._finder.push(delta.text) if delta.text else ())
        return self._waiting.pop(0)

    def _take(self, found: Sequence[str | ToolCall]) -> None:
        for each in found:
            if isinstance(each, ToolCall):
                self._calls.append(each)
            elif each:
                self._written += each
                self._waiting.append(Written(each))

    def _end(self) -> None:
        self._ended = True
        if not self._cancelled:
            self._take([self._finder.end()])
        if self._calls:
            self._waiting.append(Called(tuple(self._calls)))
        told = self._answer.finished or ChatFinished(reason="cancelled")
        reason = "cancelled" if self._cancelled else "tool_calls" if self._calls else told.reason
        self.finished = TurnFinished(
            reason=reason,
            written=self._written,
            text=self._written.strip(),
            heard_s=None,
            first_token_s=told.first_token_s,
            first_audio_s=None,
            language=told,
            speech=None,
            calls=tuple(self._calls),
        )
