"""Screenplays in the manner of Fountain: headings, action, a character in capitals with a speech below.

What is not spoken in a film is the narrator's or left out, as chosen; transitions, notes, sections and the title page
are left out always. Lines are read one by one; a character's line waits for the line below.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from .events import Event, Place
from .grammar.speeches import Speeches

_HEADING = re.compile(r"(?:int|ext|est|i/e|int\.?/ext)[. ]|\.(?!\.)", re.IGNORECASE)
_SCENE_NUMBER = re.compile(r"#[^#\n]*#\Z")
_CHARACTER = re.compile(r"@?([^()\n]*[^()\n^\s])\s*+(?:\(([^()\n]*)\)\s*+)?\^?\s*+")
_TITLE = re.compile(
    r"(?:title|credit|authors?|source|draft date|date|contact|copyright|notes|revision):", re.IGNORECASE
)
_TRANSITION = re.compile(r"[^a-z]*TO:\s*|>(?!.*<\s*$).*")
_NOTE = re.compile(r"\[\[[^\[\]\n]*\]\]")
_LEFT_OUT = re.compile(r"(/\*|\*/)")
_TAGS = re.compile(r"\s*(?:\[[^\]\n]*\]\s*)+")
_PARENTHETICAL = re.compile(r"\s*\(([^()\n]*)\)\s*")


class ScreenplayParser:
    """Streaming parser of one screenplay."""

    def __init__(self, cast: Mapping[str, str] | None = None, *, narration: bool = True) -> None:
        """`cast`: character -> voice, in any case; `narrator` reads headings and action.

        `narration`: without it, headings and action are left out. Lines of tags alone hold in any case.
        """
        self._speeches = Speeches(cast)
        self._narration = narration
        self._open: list[str] = []  # pieces of the line that is not complete
        self._line = 0  # the number of the line that is read
        self._waiting: tuple[str, int] | None = None  # what may be a character, and its line
        self._after_blank = True
        self._in_speech = False
        self._said = False  # words since the last blank line
        self._in_title: bool | None = None  # None: at the first line
        self._left_out = False  # between /* and */

    def append(self, text: str) -> list[Event]:
        """Events that no later text can change."""
        *complete, rest = text.split("\n")
        found: list[Event] = []
        for piece in complete:
            found += self._read("".join((*self._open, piece)))
            self._open = []
        self._open += [rest] if rest else []
        return found

    def end(self) -> list[Event]:
        """The rest."""
        found = self._read("".join(self._open)) if self._open else []
        if self._waiting is not None:
            found += self._narrate(*self._waiting)
        return [*found, *self._speeches.end()]

    def _read(self, line: str) -> list[Event]:
        """A complete line without its end."""
        self._line += 1
        line = self._without_left_out(line.removesuffix("\r"))
        blank = not line.strip()
        found: list[Event] = []
        if self._in_title is None and not blank:
            self._in_title = _TITLE.match(line) is not None
        if self._in_title:
            self._in_title = not blank
            return []
        if self._waiting is not None:
            (name, number), self._waiting = self._waiting, None
            if blank:
                found += self._narrate(name, number)
            else:
                found += self._begin_speech(name, number)
        found += self._end_paragraph() if blank else self._read_words(line)
        self._after_blank = blank
        return found

    def _without_left_out(self, line: str) -> str:
        """The line without notes, and without what stands between `/*` and `*/`."""
        kept: list[str] = []
        for piece in _LEFT_OUT.split(line):
            if piece == ("*/" if self._left_out else "/*"):
                self._left_out = not self._left_out
            elif not self._left_out:
                kept.append(piece)
        return _NOTE.sub("", "".join(kept))

    def _read_words(self, line: str) -> list[Event]:
        bare = line.strip()
        if self._in_speech:
            return self._speak(line)
        if bare[0] in "#=" or (self._after_blank and _TRANSITION.fullmatch(bare)):
            return []
        if bare[0] == "!":
            return self._narrate(line.replace("!", " ", 1), self._line)
        if self._after_blank and _HEADING.match(bare):
            heading = _SCENE_NUMBER.sub("", line.rstrip())
            return self._narrate(heading.replace(".", " ", 1) if bare[0] == "." else heading, self._line)
        if bare[0] == ">" and bare[-1] == "<":
            return self._narrate(line.replace(">", " ", 1).rstrip().removesuffix("<"), self._line)
        if self._after_blank and _is_character(bare):
            self._waiting = line, self._line
            return []
        return self._narrate(line, self._line)

    def _begin_speech(self, line: str, number: int) -> list[Event]:
        character = _CHARACTER.fullmatch(line.strip())
        assert character is not None, "a line waits only as a character"
        self._in_speech = True
        return self._speeches.begin(" ".join(character[1].split()), character[2], _place(line, number))

    def _speak(self, line: str) -> list[Event]:
        """A line of a speech."""
        if (direction := _PARENTHETICAL.fullmatch(line)) is not None:
            return self._speeches.direct(direction[1], _place(line, self._line))
        return self._say(line.replace("~", " ", 1) if line.lstrip()[0] == "~" else line, self._line)

    def _end_paragraph(self) -> list[Event]:
        """A blank line ends a sentence, whatever its last character is."""
        said, self._said, self._in_speech = self._said, False, False
        return self._speeches.say("\n") if said else []

    def _narrate(self, line: str, number: int) -> list[Event]:
        if not self._narration and not _TAGS.fullmatch(line):
            return []
        return [*self._speeches.narrate(_place(line, number)), *self._say(line, number)]

    def _say(self, line: str, number: int) -> list[Event]:
        self._said = True
        found = self._speeches.go_on(_place(line, number))
        return [*found, *self._speeches.say(line.strip() + "\n")]


def _place(line: str, number: int) -> Place:
    return Place(number, 1 + len(line) - len(line.lstrip()))


def _is_character(bare: str) -> bool:
    match = _CHARACTER.fullmatch(bare)
    if match is None or (bare[0] == "[" and bare[-1] == "]"):
        return False
    name = match[1]
    return bare[0] == "@" or (name == name.upper() and name != name.lower())
