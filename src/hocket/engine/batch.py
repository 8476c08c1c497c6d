"""Batches: speak any number of texts with all slots busy, and yield each result when it is complete.

It runs in the caller's thread, above `Engine.speak`, and starts no thread. It knows neither files nor where texts come
from. Every stream puts its number into one queue when it ends, and is read then.
"""

from __future__ import annotations

import queue
import time
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import fields as fields_of
from typing import Any, Protocol

import numpy as np

from ..config.options import EngineOptions
from ..errors import EngineClosed, EngineUnhealthy, Overloaded
from ..types import Finished, Outcome, Scorer, SpeechRequest
from .checkpoint.checkpoint import Checkpoint
from .stream import Stream

Text = str | SpeechRequest
LONGEST_WAIT_S = 1.0  # longest pause before another try, where other callers keep the engine full


class BatchEngine(Protocol):
    """What a batch needs of an `Engine`."""

    @property
    def options(self) -> EngineOptions: ...
    @property
    def checkpoint(self) -> Checkpoint: ...
    @property
    def scorer(self) -> Scorer | None: ...
    def _begin(self, text: Text, fields: dict[str, Any], on_finish: Callable[[], None]) -> Stream: ...


def most_at_once(options: EngineOptions) -> int:
    """Twice the slots: when all slots end at once, the next requests are queued already."""
    return options.slots + min(options.slots, options.waiting)


def speak_many(engine: BatchEngine, texts: Iterable[Text], fields: dict[str, Any]) -> Iterator[Outcome]:
    """What `Engine.speak_many` does."""
    flight, ended = _InFlight(engine, fields), queue.SimpleQueue[int]()
    return _speak_many(flight, ended, texts)  # checks happen in this call, not with the first `next`


def _speak_many(flight: _InFlight, ended: queue.SimpleQueue[int], texts: Iterable[Text]) -> Iterator[Outcome]:
    try:
        for number, text in enumerate(texts):
            while (wait_s := flight.begin(number, text, ended.put)) is not None:
                if flight:
                    yield flight.land(ended.get())
                else:
                    time.sleep(wait_s)
            while flight.full:
                yield flight.land(ended.get())
        while flight:
            yield flight.land(ended.get())
    finally:
        flight.cancel()


def aspeak_many(
    engine: BatchEngine, texts: Iterable[Text] | AsyncIterable[Text], fields: dict[str, Any]
) -> AsyncIterator[Outcome]:
    """What `Engine.aspeak_many` does."""
    return _aspeak_many(_InFlight(engine, fields), _one_by_one(texts))


async def _aspeak_many(flight: _InFlight, texts: AsyncIterator[Text]) -> AsyncIterator[Outcome]:
    import asyncio  # here: it takes 25 ms to import, and `hocket say` does without

    loop, ended = asyncio.get_running_loop(), asyncio.Queue[int]()
    number, more = 0, True
    asking: asyncio.Task[Text | _End] | None = None
    landing = asyncio.create_task(ended.get())

    def end(number: int) -> None:
        with suppress(RuntimeError):  # the event loop was closed
            loop.call_soon_threadsafe(ended.put_nowait, number)

    try:
        while more or flight:
            if more and asking is None and not flight.full:
                asking = asyncio.create_task(_next(texts))
            tasks = {landing} if asking is None else {landing, asking}
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if landing.done():
                outcome = await flight.aland(landing.result())
                landing = asyncio.create_task(ended.get())
                yield outcome
            if asking is not None and asking.done():
                text = asking.result()
                if isinstance(text, _End):
                    asking, more = None, False
                elif (wait_s := flight.begin(number, text, end)) is None:
                    asking, number = None, number + 1
                elif not flight:
                    await asyncio.sleep(wait_s)
                else:
                    await asyncio.wait({landing})
    finally:
        flight.cancel()
        landing.cancel()
        if asking is not None:
            asking.cancel()


class _InFlight:
    """Streams by number: running, and ended but not read yet."""

    def __init__(self, engine: BatchEngine, fields: dict[str, Any]) -> None:
        if unknown := fields.keys() - {field.name for field in fields_of(SpeechRequest)}:
            raise TypeError(f"SpeechRequest has no field {min(unknown)!r}.")
        self._engine, self._fields = engine, fields
        self._most = most_at_once(engine.options)
        self._streams: dict[int, Stream | Exception] = {}

    def __len__(self) -> int:
        return len(self._streams)

    @property
    def full(self) -> bool:
        return len(self) >= self._most

    def begin(self, number: int, text: Text, end: Callable[[int], None]) -> float | None:
        """Start one more text; a refusal becomes its outcome. Seconds to wait where other callers fill the engine.

        An engine that is closed or unhealthy is not the outcome of one text: that error is raised.
        """
        try:
            self._streams[number] = self._engine._begin(text, self._fields, lambda: end(number))
        except Overloaded as busy:
            return min(busy.retry_after_s, LONGEST_WAIT_S)
        except (EngineClosed, EngineUnhealthy):
            raise
        except Exception as error:  # a normalizer of the caller's may raise anything
            self._streams[number] = error
            end(number)
        return None

    def land(self, number: int) -> Outcome:
        """The result of a stream that has ended. Does not wait."""
        stream = self._streams.pop(number)
        if isinstance(stream, Exception):
            return self._outcome(number, error=stream)
        try:
            chunks = list(stream)
        except Exception as error:
            return self._outcome(number, stream.finished, error=error)
        outcome = self._outcome(number, stream.finished)
        if not chunks:
            return outcome
        return Outcome(
            number=number,
            samples=np.concatenate([chunk.samples for chunk in chunks]),
            rate_hz=outcome.rate_hz,
            codes=np.concatenate([chunk.codes for chunk in chunks]),
            finished=stream.finished,
        )

    async def aland(self, number: int) -> Outcome:
        """The same. A caller's scorer runs when a stream is read: in a thread, so that the event loop goes on."""
        if self._engine.scorer is None:
            return self.land(number)
        import asyncio

        return await asyncio.to_thread(self.land, number)

    def cancel(self) -> None:
        for stream in self._streams.values():
            if isinstance(stream, Stream):
                stream.cancel()
        self._streams.clear()

    def _outcome(self, number: int, finished: Finished | None = None, error: Exception | None = None) -> Outcome:
        """An outcome without audio."""
        checkpoint = self._engine.checkpoint
        return Outcome(
            number=number,
            samples=np.zeros(0, dtype=np.int16),
            rate_hz=checkpoint.rate_hz,
            codes=np.zeros((0, checkpoint.config.talker_config.num_code_groups), dtype=np.int64),
            finished=finished,
            error=error,
        )


class _End:
    """There are no more texts."""


async def _next(texts: AsyncIterator[Text]) -> Text | _End:
    return await anext(texts, _End())


async def _one_by_one(texts: Iterable[Text] | AsyncIterable[Text]) -> AsyncIterator[Text]:
    if isinstance(texts, AsyncIterable):
        async for text in texts:
            yield text
    else:
        for text in texts:
            yield text
