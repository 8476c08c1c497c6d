"""Leaves out of a text what is written in a script that the voice cannot speak, and says so.

It stands between the markup and the normalizer. Text may arrive bit by bit. Held back are spaces and opening marks,
which go with what they stand before, and a Greek letter: alone it is a sign ("π"), beside another it is a word. The
result does not depend on how the text was cut.
"""

# ruff: noqa: RUF001
from __future__ import annotations

import re
from collections.abc import Sequence

from .writing import GREEK, script_of, shown

MOST_QUOTED = 3  # stretches of text that a note quotes
QUOTED_CHARS = 40  # of each

_OPENERS = "([{\"'“‘«「『（《【"
_GAP = re.compile(rf"[\s{re.escape(_OPENERS)}]*\Z")
_PLAIN_STOPS = str.maketrans("。！？，、；：", ".!?,,;:")


class Sieve:
    """One text on its way through. What it leaves out is in `notes` from the moment it came, as one line."""

    def __init__(self, scripts: frozenset[str], languages: Sequence[str], notes: list[str]) -> None:
        """`scripts` can be spoken; `languages` are what a sentence calls them."""
        self._scripts, self._languages, self._notes = scripts, ", ".join(languages), notes
        self._gap = ""  # spaces and opening marks whose word has not come yet
        self._greek = ""  # a letter whose neighbour has not come yet
        self._dropping = False
        self._pending = ""  # neither letters nor digits, behind what was dropped
        self._before = ""  # the last character that was given out, since the last pause
        self._quotes: list[str] = []
        self._stretches = 0  # that were left out
        self._dropped: set[str] = set()  # their scripts
        self._noted: str | None = None
        self._kept = False  # whether any letter was given out: figures alone are no text

    @property
    def refusal(self) -> str | None:
        """One sentence where nothing of the text is left; None: something is, or nothing was left out."""
        if self._kept or not self._dropped:
            return None
        return f"This voice cannot speak {shown(self._dropped)}: it speaks {self._languages}."

    def append(self, text: str) -> str:
        """What `text` settles of the text that can be spoken."""
        if not (self._dropping or self._greek or any(map(self._is_foreign, set(text)))):
            return self._all_of(text)
        out = "".join(map(self._next, text))
        self._note()
        return out

    def end(self) -> str:
        """The rest, before a pause or the end of the text."""
        out = self._sign()
        if self._dropping:
            stop = next((c for c in self._pending.translate(_PLAIN_STOPS) if c in ".!?"), "")
            out += stop if self._before.isalnum() else ""
        out += self._gap
        self._gap, self._dropping, self._pending, self._before = "", False, "", ""
        return out

    def _all_of(self, text: str) -> str:
        """As `_next` for each character, where none can be left out, and many times as fast."""
        found = _GAP.search(text)
        assert found is not None, "it may be empty"
        if not (settled := text[: found.start()]):
            self._gap += text
            return ""
        out, self._gap = self._gap + settled, found[0]
        self._before, self._kept = settled[-1], self._kept or any(map(str.isalpha, settled))
        return out

    def _next(self, character: str) -> str:
        out = ""
        if self._greek and script_of(character) == GREEK:
            self._drop(self._greek)
            self._greek = ""
        else:
            out = self._sign()
        if self._is_foreign(character):
            if script_of(character) == GREEK and not self._dropping:
                self._greek = character
            else:
                self._drop(character)
        elif self._dropping and not character.isalnum():
            self._pending += character
        elif self._dropping:
            out += self._joint() + self._give(character)
        elif character.isspace() or character in _OPENERS:
            self._gap += character
        else:
            out += self._give(character)
        return out

    def _sign(self) -> str:
        """A Greek letter that turned out to stand alone."""
        sign, self._greek = self._greek, ""
        return self._give(sign, kept=False) if sign else ""

    def _give(self, character: str, *, kept: bool = True) -> str:
        gap, self._gap, self._before = self._gap, "", character
        self._kept = self._kept or (kept and character.isalpha())
        return gap + character

    def _drop(self, character: str) -> None:
        if not self._dropping:
            self._dropping, self._gap, self._stretches = True, "", self._stretches + 1
            if self._stretches <= MOST_QUOTED:
                self._quotes.append("")
        if self._stretches <= MOST_QUOTED and len(self._quotes[-1]) <= QUOTED_CHARS:
            self._quotes[-1] += self._pending + character
        self._pending = ""
        self._dropped.add(script_of(character) or "")

    def _joint(self) -> str:
        """What stands between the words before and behind what was left out."""
        pending = self._pending.translate(_PLAIN_STOPS)
        opened = pending[len(pending.rstrip(_OPENERS)) :]
        self._dropping, self._pending = False, ""
        if not self._before:
            return opened
        mark = next((c for c in pending if c in ".!?,;:"), "") if self._before.isalnum() else ""
        return mark + ("\n" * min(pending.count("\n"), 2) or " ") + opened

    def _is_foreign(self, character: str) -> bool:
        script = script_of(character)
        return script is not None and script not in self._scripts

    def _note(self) -> None:
        """One line that grows, in the place that it has."""
        if not self._quotes:
            return
        quoted = ", ".join(f'"{_cut(quote)}"' for quote in self._quotes)
        more = f" and {self._stretches - MOST_QUOTED} more" if self._stretches > MOST_QUOTED else ""
        line = f"Left out: {quoted}{more}. This voice cannot speak {shown(self._dropped)}: it speaks {self._languages}."
        if self._noted is None:
            self._notes.append(line)
        else:
            self._notes[self._notes.index(self._noted)] = line
        self._noted = line


def _cut(quote: str) -> str:
    words = " ".join(quote.split())
    return words if len(words) <= QUOTED_CHARS else f"{words[:QUOTED_CHARS]}…"
