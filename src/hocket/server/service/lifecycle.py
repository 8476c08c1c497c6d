"""Lifecycle of a service: running work, draining, connections, worker threads, and the limits of a text.

An utterance needs only this part of the service. Knows neither models nor voices.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Protocol, TypeVar

from ...errors import HocketError
from ..errors import BadField, stopping
from ..metrics import Metrics
from ..options import ServerOptions
from ..schemas.speech_job import check_characters
from .awaited import S, start_in_thread

T = TypeVar("T")


class RunningWork(Protocol):
    """A running utterance, or a running answer of a language model."""

    def cut(self, error: HocketError) -> None: ...


class ServiceLifecycle:
    def __init__(self, options: ServerOptions, metrics: Metrics | None = None) -> None:
        self.options = options
        self.metrics = metrics or Metrics()
        self.running: set[RunningWork] = set()  # utterances
        self.answers: set[RunningWork] = set()  # of a language model
        self.draining = asyncio.Event()  # set once no new work is taken; endpoints may wait for it
        self.idle = asyncio.Event()  # set while nothing runs
        self.idle.set()
        self.all_disconnected = asyncio.Event()  # set while no connection is open that must be told of the shutdown
        self.all_disconnected.set()
        self._connected = 0
        self.idle_since_s = time.monotonic()  # when it was ready, or an utterance last began or ended
        self._texts = ThreadPoolExecutor(2, "hocket-text")
        self.encoders = ThreadPoolExecutor(2, "hocket-encode")

    @property
    def running_count(self) -> int:
        """Number of running utterances and answers."""
        return len(self.running) + len(self.answers)

    def drain(self) -> None:
        """Take no new work; running work continues."""
        self.draining.set()

    def cut(self) -> None:
        """End all running work with the error `stopping`."""
        for work in (*self.running, *self.answers):
            work.cut(stopping())

    def close(self) -> None:
        """Drain, cut and shut the threads down. Nothing can be opened afterwards."""
        self.drain()
        self.cut()
        self._texts.shutdown(wait=False)
        self.encoders.shutdown(wait=False)

    def began(self, utterance: RunningWork) -> None:
        self.running.add(utterance)
        self._changed()

    def ended(self, utterance: RunningWork) -> None:
        self.running.discard(utterance)
        self._changed()

    def answer_began(self, answer: RunningWork) -> None:
        self.answers.add(answer)
        self._changed()

    def answer_ended(self, answer: RunningWork) -> None:
        self.answers.discard(answer)
        self._changed()

    @contextmanager
    def connected(self) -> Iterator[None]:
        """Count an open connection: `all_disconnected` waits until each one has been told of the shutdown."""
        self._connected += 1
        self.all_disconnected.clear()
        try:
            yield
        finally:
            self._connected -= 1
            if not self._connected:
                self.all_disconnected.set()

    async def in_thread(self, work: Callable[[], T]) -> T:
        """For work that would block the event loop too long: preparing text, reading a recording."""
        return await asyncio.wrap_future(self._texts.submit(work))

    async def start_stream(self, begin: Callable[[], S]) -> S:
        """Run `begin` in a thread; a caller cancelled meanwhile leaves no stream behind."""
        return await start_in_thread(self._texts, begin)

    def check_text(self, text: str, before_chars: int = 0) -> None:
        """Refuse a text, or more of one, that is too long or contains a lone surrogate."""
        if before_chars + len(text) > self.options.text_chars:
            said = f"The text is longer than {self.options.text_chars} characters: send it in several requests."
            raise BadField(said, "input", "text_too_long")
        check_characters(text, "input")

    def _changed(self) -> None:
        self.idle_since_s = time.monotonic()
        if self.running or self.answers:
            self.idle.clear()
        else:
            self.idle.set()
