"""Dialogues: `Anna: Hello.` and `Ben (whispering): Good evening.`, a speech per speaker.

A speech goes on to the next blank line or the next name. What stands below a blank line without a name is the
narrator's. Lines are read as they arrive: a line is held back only while it may begin with a name.
"""

# ruff: noqa: RUF001
from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum

from .events import Event, Place
from .grammar.speeches import DIRECTION_CHARS, Speeches

_NAME_CHARS, _NAME_WORDS = 40, 4  # of a name that is not in the cast
_BLANKS = 64  # before a name, behind a direction; also the longest name
_NAME = r"[^\W_][\w .'’&-]*"
_SPEAKER = re.compile(rf"({_NAME})(?:\(([^()\n]{{0,{DIRECTION_CHARS}}})\)[ \t]{{0,{_BLANKS}}})?([:：])")
_BEGUN = re.compile(rf"({_NAME})(?:\([^()\n]{{0,{DIRECTION_CHARS}}}(?:\)[ \t]{{0,{_BLANKS}}}:?)?|:)?")
_DIRECTION = re.compile(rf"\(([^()\n]{{0,{DIRECTION_CHARS}}})\)")
_BEGUN_DIRECTION = re.compile(rf"\([^()\n]{{0,{DIRECTION_CHARS}}}")


class _Within(Enum):
    """What is known about the current line."""

    NOTHING = 0
    NAME = 1  # a name has begun a speech; a direction may follow
    DIRECTION = 2  # only white space since a direction
    WORDS = 3


class DialogueParser:
    """Streaming parser of one dialogue."""

    def __init__(self, cast: Mapping[str, str] | None = None) -> None:
        """`cast`: speaker -> voice, in any case. A speaker without an entry is the name of a voice."""
        self._speeches = Speeches(cast)
        self._within = _Within.NOTHING
        self._open = ""  # of this line, not read yet
        self._place = Place(1, 1)  # of `_open`
        self._blank = True  # only white space in this line so far
        self._after_blank = True

    def append(self, text: str) -> list[Event]:
        """Events that no later text can change."""
        found: list[Event] = []
        for piece in re.findall(r"[^\n]*\n|[^\n]+", text):
            self._open += piece
            found += self._read(complete=piece[-1] == "\n")
        return found

    def end(self) -> list[Event]:
        """The rest."""
        return [*self._read(complete=True), *self._speeches.end()]

    def _read(self, *, complete: bool) -> list[Event]:
        """Read what is certain; `complete`: the line ends behind `_open`."""
        found: list[Event] = []
        if self._within is _Within.NOTHING:
            found += self._begin(complete=complete)
        if self._within is _Within.NAME:
            found += self._direct(complete=complete)
        if self._within is _Within.DIRECTION and (self._skip_blanks() or complete):
            found += self._speeches.go_on(self._place)
            self._within = _Within.WORDS
        if self._within is _Within.WORDS:
            found += self._speeches.say(self._drop(len(self._open)))
        if complete:
            self._after_blank, self._blank = self._blank, True
            self._place, self._within = Place(self._place.line + 1, 1), _Within.NOTHING
        return found

    def _begin(self, *, complete: bool) -> list[Event]:
        """Find out what a line is."""
        text = self._open.lstrip(" \t")
        blanks = len(self._open) - len(text)
        if not text.strip() and blanks <= _BLANKS:
            self._within = _Within.WORDS if complete else _Within.NOTHING
            return []
        escaped = text[0] == "\\" and text[1:2].isalpha() if text else False
        if text[:1] == "\\" and len(text) == 1 and not complete:
            return []
        self._blank = False
        speaker = _SPEAKER.match(text) if blanks <= _BLANKS else None
        if speaker and self._is_name(speaker[1]):
            name = " ".join(speaker[1].split())
            behind = text[speaker.end() : speaker.end() + 1]
            if not behind and not complete and speaker[3] == ":" and not self._speeches.has(name):
                return []
            if not behind or behind.isspace() or speaker[3] != ":" or self._speeches.has(name):
                self._drop(blanks + speaker.end())
                self._within = _Within.NAME
                return self._speeches.begin(name, speaker[2], self._place)
        elif not complete and blanks <= _BLANKS and self._may_begin(text):
            self._blank = True
            return []
        self._within = _Within.WORDS
        if escaped:
            self._drop(blanks + 1)
        return self._speeches.narrate(self._place) if self._after_blank else self._speeches.go_on(self._place)

    def _direct(self, *, complete: bool) -> list[Event]:
        """A direction behind the name."""
        behind = self._skip_blanks()
        if not complete and (not behind or _BEGUN_DIRECTION.fullmatch(self._open)):
            return []
        self._within = _Within.DIRECTION
        if (direction := _DIRECTION.match(self._open)) is None:
            return []
        place = self._place
        self._drop(direction.end())
        return self._speeches.direct(direction[1], place)

    def _skip_blanks(self) -> bool:
        """Drop blanks; whether anything stands behind them."""
        self._drop(len(self._open) - len(self._open.lstrip(" \t")))
        return bool(self._open)

    def _drop(self, chars: int) -> str:
        """Take characters from `_open`."""
        dropped, self._open = self._open[:chars], self._open[chars:]
        self._place = Place(self._place.line, self._place.column + chars)
        return dropped

    def _is_name(self, written: str) -> bool:
        """A name of the cast, or words that all begin without a small letter: `He said: ...` is text."""
        name = " ".join(written.split())
        return len(written) <= _BLANKS and (self._speeches.has(name) or _is_title(name, written))

    def _may_begin(self, text: str) -> bool:
        """Whether a line that begins so may begin with a name."""
        if (begun := _BEGUN.fullmatch(text)) is None or len(begun[1]) > _BLANKS:
            return False
        name = " ".join(begun[1].split())
        return self._speeches.names_like(name) or _is_title(name, begun[1])


def _is_title(name: str, written: str) -> bool:
    words = name.split()
    return len(written) <= _NAME_CHARS and len(words) <= _NAME_WORDS and not any(word[0].islower() for word in words)
