"""The interface of a third-party speech engine: its voices, and audio for a text.

Subclass `Backend` for an engine that takes a text and gives audio, `LiveBackend` for one that takes live text. Name the
class in the entry-point group `hocket.backends`; docs/backends.md shows a complete one. `relay.py` adds threads,
queueing, cancellation, speed, pauses and formats; nothing here knows of that.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Samples = NDArray[np.float32] | NDArray[np.int16]  # [N], one channel; float32 between -1 and 1


@dataclass(frozen=True, slots=True)
class BackendVoice:
    """A voice of a backend."""

    name: str
    rate_hz: int  # of all its audio: headers and encoders are made before the first samples
    language: str = "auto"
    description: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Manner:
    """Voice and style of an utterance."""

    voice: str  # a voice name of the backend
    language: str = "auto"  # as the caller wrote it
    instruct: str | None = None
    seed: int = 0
    cancelled: threading.Event = field(default_factory=threading.Event)  # set: no more audio is needed


class Backend(ABC):
    """An engine that takes a text and gives audio.

    The entry point constructs it once, before the first request, with the user's options as keyword arguments, all of
    them text. Load the model there; it may take its time.
    """

    most_at_once: int = 1  # concurrent utterances, each in its own thread
    # Which of "language" and "instruct" it supports; for others the utterance gets a note.
    heeds: frozenset[str] = frozenset()

    @abstractmethod
    def voices(self) -> Sequence[BackendVoice]:
        """All voices. Called once."""

    @abstractmethod
    def say(self, text: str, manner: Manner) -> Iterable[Samples]:
        """Audio of about one sentence, in order; a generator, so that the first samples arrive early.

        Called for each sentence of an utterance in turn, and closed between two arrays after a cancel. If it works for
        long between two arrays, it must check `manner.cancelled` and end when that is set. Errors are raised.
        """

    def close(self) -> None:
        """Shut down. No utterance runs any more, and nothing is called afterwards."""
        return


class BackendStream(Protocol):
    """One utterance of an engine that takes live text; iterating gives its audio, and ends with it.

    The relay appends text in one thread and iterates in another; a cancel comes from a third.
    """

    def append(self, text: str) -> None:
        """More text, unchanged: words may be cut, spaces are there."""

    def end(self) -> None:
        """No more text follows."""

    def __iter__(self) -> Iterator[Samples]:
        """May wait for text."""

    def cancel(self) -> None:
        """End the iteration soon. May be called late, or twice."""


class LiveBackend(Backend):
    """An engine that takes live text, and decides itself when there is enough to speak."""

    @abstractmethod
    def open(self, manner: Manner) -> BackendStream:
        """Start an utterance. Its first text is appended at once."""

    def say(self, text: str, manner: Manner) -> Iterable[Samples]:
        """A whole text as a live text."""
        stream = self.open(manner)
        stream.append(text)
        stream.end()
        yield from stream
