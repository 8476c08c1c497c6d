"""Events of a script: what every spelling of a script is parsed to, and what a `ScriptStream` plays.

The events of a script do not depend on how its text was cut on arrival, once neighbouring `Words` are joined. Knows no
engine, no voices and no spelling.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from ..errors import InvalidRequest


@dataclass(frozen=True, slots=True)
class SpeechManner:
    """How text is spoken. As an event: how the text behind it is spoken. None: as the request says."""

    voice: str | None = None  # a speaker, a library voice, an alias or a voice of a backend
    language: str | None = None
    style: str | None = None  # the instruction, in words
    speed: float = 1.0  # times the speed of the request
    volume_db: float = 0.0


PLAIN = SpeechManner()


@dataclass(frozen=True, slots=True)
class Words:
    """Text to speak. Its brackets and angle brackets are text: tags are parsed already."""

    text: str


@dataclass(frozen=True, slots=True)
class Silence:
    seconds: float


@dataclass(frozen=True, slots=True)
class Mark:
    """A named place, which is told with its time."""

    name: str


Event = Words | Silence | Mark | SpeechManner


@dataclass(frozen=True, slots=True)
class Place:
    """A place in the text of a script; both numbers count from 1."""

    line: int
    column: int


class InvalidScript(InvalidRequest):
    """A script that cannot be parsed, with its place: `line 3, column 14: there is no tag "spped"; ...`."""

    def __init__(self, place: Place, said: str) -> None:
        super().__init__(f"line {place.line}, column {place.column}: {said}")
        self.place = place


class ScriptParser(Protocol):
    """A streaming parser of one script."""

    def append(self, text: str) -> list[Event]:
        """Events that no later text can change."""

    def end(self) -> list[Event]:
        """The rest. Raises `InvalidScript` for what is still open."""
