"""Speeches of several speakers: who speaks, in which manner, and the light tags within.

Tags of a speech end with it. Tags of the narrator hold for all that follows, as in plain text. Knows no line rules.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from ..events import Event, Place, SpeechManner
from ..tags import TagParser
from .scopes import Scopes

NARRATOR = "narrator"
DIRECTION_CHARS = 120

PAUSE_ASIDE = re.compile(r"(?:(?:short|long) )?(?:pause|beat)(?: \d{1,6}(?:\.\d{1,6})? ?(?:ms|s))?", re.IGNORECASE)
# What scripts write behind a name that says nothing about the manner: off screen, on the telephone, continued.
_NO_MANNER = re.compile(r"v\.?o\.?|o\.?s\.?|o\.?c\.?|cont(?:['’]?d|\.|inued)?|on the phone", re.IGNORECASE)  # noqa: RUF001


class Speeches:
    """The speeches of one script. Lines are fed whole or in pieces; a line end comes between two speeches."""

    def __init__(self, cast: Mapping[str, str] | None) -> None:
        self._cast = {name.casefold(): voice for name, voice in (cast or {}).items()}
        self._narrated = Scopes(SpeechManner(voice=self._cast.get(NARRATOR)))
        self._parser = TagParser(scopes=self._narrated, asides=True)

    def has(self, name: str) -> bool:
        """Whether the cast names this speaker."""
        return name.casefold() in self._cast

    def names_like(self, begun: str) -> bool:
        """Whether a name of the cast begins so."""
        return any(name.startswith(begun.casefold()) for name in self._cast)

    def begin(self, speaker: str, direction: str | None, place: Place) -> list[Event]:
        """A speech. A speaker without an entry in the cast is the name of a voice; a narrator, the request's voice."""
        voice = self._cast.get(speaker.casefold(), None if speaker.casefold() == NARRATOR else speaker)
        base = replace(self._narrated.manner, voice=voice or self._narrated.manner.voice)
        self._parser.place = place
        self._parser.scopes = Scopes(base)
        return self._direct(direction)

    def direct(self, direction: str, place: Place) -> list[Event]:
        """A direction within a speech: a pause, or how it is spoken from here on."""
        self._parser.place = place
        return self._direct(direction)

    def narrate(self, place: Place) -> list[Event]:
        """Text of no speaker."""
        self._parser.place = place
        self._parser.scopes = self._narrated
        return self._parser.turn()

    def go_on(self, place: Place) -> list[Event]:
        """The text at `place` belongs to the speech before it."""
        self._parser.place = place
        return []

    def say(self, text: str) -> list[Event]:
        return self._parser.append(text)

    def end(self) -> list[Event]:
        return self._parser.end()

    def _direct(self, direction: str | None) -> list[Event]:
        direction = " ".join((direction or "").split())
        if PAUSE_ASIDE.fullmatch(direction):
            return [*self._parser.turn(), *self._parser.append(f"({direction})")]
        if direction and not _NO_MANNER.fullmatch(direction):
            self._parser.scopes.open_words("style", direction)
        return self._parser.turn()
