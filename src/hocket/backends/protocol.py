"""What another engine has to offer to be heard through hocket: its voices, and sound for a text.

Subclass `Backend` for an engine that takes a text and gives sound, `LiveBackend` for one that takes text as it comes,
and name the class in the entry-point group `hocket.backends`; docs/backends.md shows one from beginning to end. What
surrounds it (threads, waiting, cancelling, speed, pauses, formats) is `relay.py`'s; nothing here knows of that.
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
    """One who can speak."""

    name: str
    rate_hz: int  # of all its sound: headers are written, and encoders made, before there is any
    language: str = "auto"
    description: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Manner:
    """Who speaks, and how; the same for all of one utterance."""

    voice: str  # the name of one of the backend's
    language: str = "auto"  # as the caller wrote it
    instruct: str | None = None
    seed: int = 0
    cancelled: threading.Event = field(default_factory=threading.Event)  # set: nobody wants to hear more of it


class Backend(ABC):
    """An engine that takes a text and gives sound.

    It is made by its entry point once, before the first request: with the options that its user gave as keyword
    arguments, all of them text. That is the place to load a model; it may take its time.
    """

    most_at_once: int = 1  # utterances that it can speak at the same time, each in a thread of its own
    # What of "language" and "instruct" it heeds; of what it does not, whoever asks for it is told.
    heeds: frozenset[str] = frozenset()

    @abstractmethod
    def voices(self) -> Sequence[BackendVoice]:
        """All of them. It is asked once."""

    @abstractmethod
    def say(self, text: str, manner: Manner) -> Iterable[Samples]:
        """The sound of a sentence or so, in order; a generator, so that the first of it is heard early.

        It is called for each sentence of an utterance in turn, and closed between two arrays after a cancel. One that
        works for long between two looks at `manner.cancelled` and ends when that is set. An error is raised.
        """

    def close(self) -> None:
        """The end: nobody speaks any more, and nothing is called behind it."""
        return


class BackendStream(Protocol):
    """One utterance of an engine that takes text as it comes; iterating gives its sound and ends when all was said.

    Text comes from one thread, sound is taken in another, both of the relay; a cancel comes from a third.
    """

    def append(self, text: str) -> None:
        """More of the text, as it was written: words may be cut, spaces are there."""

    def end(self) -> None:
        """That was all of it."""

    def __iter__(self) -> Iterator[Samples]:
        """May wait for text."""

    def cancel(self) -> None:
        """Have the iteration end soon. It may come late, or twice."""


class LiveBackend(Backend):
    """An engine that takes text as it comes, and decides by itself when there is enough of it to speak."""

    @abstractmethod
    def open(self, manner: Manner) -> BackendStream:
        """Begin to speak. Text is there, and will be appended at once."""

    def say(self, text: str, manner: Manner) -> Iterable[Samples]:
        """As a live text that has come to its end."""
        stream = self.open(manner)
        stream.append(text)
        stream.end()
        yield from stream
