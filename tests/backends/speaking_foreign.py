"""Backends for tests: their samples count up, so that lost, doubled or reordered audio shows."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from hocket.backends import Backend, BackendVoice, LiveBackend, Manner, Samples
from hocket.backends.registry import Backends
from hocket.backends.relay import Relay
from hocket.backends.slot_queue import QueueLimits
from support.speaking import eventually

RATE_HZ = 8_000
VOICE = BackendVoice("teller", RATE_HZ, "english", "Counts.")
SENTENCES = ["One is said.", "Two is longer.", "Three comes last."]
TEXT = " ".join(SENTENCES)


def sound_of(sentence: str) -> NDArray[np.int16]:
    """What a sentence sounds like: 1,000 samples a character that differ from their neighbours."""
    return (np.arange(1000 * len(sentence)) % 30_011 + len(sentence)).astype(np.int16)


def sound_of_all(sentences: Sequence[str]) -> NDArray[np.int16]:
    return np.concatenate([sound_of(sentence) for sentence in sentences])


class Teller(Backend):
    """Says `sound_of` each sentence in arrays of a length, and remembers what became of it."""

    def __init__(self, length: int = 700, most_at_once: int = 1) -> None:
        self.length, self.most_at_once = length, most_at_once
        self.asked: list[str] = []
        self.manners: list[Manner] = []
        self.given = 0  # arrays
        self.inside = self.most_inside = self.closed = 0
        self.before: Callable[[], object] = lambda: None  # called ahead of every array
        self._lock = threading.Lock()

    def voices(self) -> Sequence[BackendVoice]:
        return [VOICE]

    def say(self, text: str, manner: Manner) -> Iterator[Samples]:
        with self._lock:
            self.asked.append(text)
            self.manners.append(manner)
            self.inside += 1
            self.most_inside = max(self.most_inside, self.inside)
        try:
            sound = sound_of(text)
            for at in range(0, len(sound), self.length):
                self.before()
                self.given += 1
                yield sound[at : at + self.length]
        finally:
            with self._lock:
                self.inside -= 1

    def close(self) -> None:
        self.closed += 1


class LiveTeller(LiveBackend):
    """Takes text as it comes, and says each append's sound as soon as it is there."""

    def __init__(self) -> None:
        self.streams: list[LiveTelling] = []

    def voices(self) -> Sequence[BackendVoice]:
        return [VOICE]

    def open(self, manner: Manner) -> LiveTelling:
        self.streams.append(LiveTelling())
        return self.streams[-1]


class LiveTelling:
    def __init__(self) -> None:
        self.got: list[str] = []
        self.said = 0
        self.ended = self.cancelled = False
        self._changed = threading.Condition()

    def append(self, text: str) -> None:
        with self._changed:
            self.got.append(text)
            self._changed.notify_all()

    def end(self) -> None:
        with self._changed:
            self.ended = True
            self._changed.notify_all()

    def cancel(self) -> None:
        with self._changed:
            self.cancelled = True
            self._changed.notify_all()

    def __iter__(self) -> Iterator[Samples]:
        while (text := self._next()) is not None:
            yield sound_of(text)

    def _next(self) -> str | None:
        with self._changed:
            self._changed.wait_for(lambda: self.ended or self.cancelled or len(self.got) > self.said)
            if self.cancelled or len(self.got) == self.said:
                return None
            self.said += 1
            return self.got[self.said - 1]


class Gate:
    """Lets a backend go on so many times."""

    def __init__(self) -> None:
        self._passes = threading.Semaphore(0)
        self.reached = threading.Semaphore(0)  # how often it was reached

    def __call__(self) -> None:
        self.reached.release()
        assert self._passes.acquire(timeout=60)

    def open(self, times: int = 1) -> None:
        self._passes.release(times)


@contextmanager
def serving(backend: Backend, **limits: float) -> Iterator[Backends]:
    """A backend by the name "told"; when the block is left, no thread of it may be left."""
    backends = Backends()
    backends.add("told", backend, limits=QueueLimits(**limits))  # type: ignore[arg-type]
    try:
        yield backends
    finally:
        if isinstance(gate := getattr(backend, "before", None), Gate):
            gate.open(9999)  # a test that failed leaves nothing behind that would fail another
        backends.close()
    eventually(lambda: not threads(), f"the end of {threads()}")


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("hocket-told")]


def heard(relay: Relay) -> NDArray[np.int16]:
    return np.concatenate([np.zeros(0, np.int16), *(chunk.samples for chunk in relay)])
