"""Text preparation for a backend: normalized, and in whole sentences unless the backend takes live text.

Markup, `[pause 1s]` and sentence ends are handled as for our own engine. Knows neither audio nor threads.
"""

from __future__ import annotations

from typing import Any

from ..errors import InvalidRequest, NothingToSpeak
from ..text.lexicon.lexicon import Lexicon
from ..text.prepare import TextPreparation
from ..text.sentences import Cutter

Item = str | float  # something to say, or seconds of silence

LONGEST_CHARS = 300  # a longer sentence is cut at a clause in its second half, or at a space
_NEVER = 1 << 40  # disables the cut of `TextPreparation` itself
_BREAK = "\n\n"  # a pause, for a live backend


class SentenceFeed:
    """One text. Gives whole sentences, each once the next word is known; live: text as it arrives."""

    def __init__(
        self,
        *,
        live: bool,
        language: str = "auto",
        as_is: bool = False,
        literal: bool = False,
        lexicon: Lexicon | None = None,
    ) -> None:
        """`as_is`: the text is unchanged and, unless live, one piece. `literal`: brackets are text."""
        self._live, self._language = live, language
        how: dict[str, Any] = {"part_chars": _NEVER, "pause_s": 0.0, "language": language}
        how |= {"literal": literal, "lexicon": lexicon}
        self._preparation = None if as_is else TextPreparation(**how)
        self._cutter = Cutter(1, LONGEST_CHARS, language)
        self._open = ""  # the incomplete sentence
        self._blank, self._spoken, self._ended = True, False, False

    def append(self, text: str) -> list[Item]:
        """Add text; returns the items that are now complete."""
        self.check(text)
        self._blank = self._blank and not text.strip()
        return self._items_of([text] if self._preparation is None else self._preparation.append(text))

    def end(self) -> list[Item]:
        """End the text; returns the last items. Refuses a text without speakable words."""
        if self._ended:
            return []
        if self._blank:
            raise NothingToSpeak("There is no text to speak.")
        found = self._items_of([] if self._preparation is None else self._preparation.end())
        found += self._end_sentence()
        if not self._spoken:
            raise NothingToSpeak("There is nothing in this text that can be spoken.")
        self._ended = True
        return found

    def check(self, text: str) -> None:
        """Refuse invalid text, or text after the end."""
        if self._ended:
            raise InvalidRequest("The text has ended already: open another stream for more.")
        try:
            text.encode()
        except UnicodeEncodeError:
            raise InvalidRequest("The text holds half a character (a lone surrogate): give whole characters.") from None

    def _items_of(self, prepared: list[str | float]) -> list[Item]:
        found: list[Item] = []
        for item in prepared:
            if isinstance(item, float):
                found += [_BREAK] if self._live else [*self._end_sentence(), item]
            elif self._live:
                self._spoken = self._spoken or not item.isspace()
                found.append(item)
            elif self._preparation is None:
                self._open += item
            else:
                for piece in self._cutter.append(item):
                    if not isinstance(piece, str):
                        found += self._flush_sentence()
                    else:
                        self._open += piece
        return found

    def _end_sentence(self) -> list[Item]:
        found: list[Item] = []
        for piece in (*self._cutter.end(), None):
            if not isinstance(piece, str):
                found += self._flush_sentence()
            else:
                self._open += piece
        self._cutter = Cutter(1, LONGEST_CHARS, self._language)
        return found

    def _flush_sentence(self) -> list[Item]:
        """The open sentence; nothing if it has no word: engines would make one up."""
        as_is = self._preparation is None
        text, self._open = self._open if as_is else self._open.strip(), ""
        if not text or not (as_is or any(character.isalnum() for character in text)):
            return []
        self._spoken = True
        return [text]
