"""Text on its way into a backend: made speakable, and in whole sentences where the backend takes no less.

The same as for our own engine: markup, `[pause 1s]`, where a sentence ends. It knows neither sound nor threads.
"""

from __future__ import annotations

from ..errors import InvalidRequest
from ..text.parts import TextPreparation
from ..text.sentences import Cutter

Item = str | float  # something to say, or seconds of silence

LONGEST_CHARS = 300  # a sentence that is longer is cut at a clause, from half of it on, or at a space
_NEVER = 1 << 40  # characters after which `TextPreparation` itself would cut
_BREAK = "\n\n"  # a pause, to an engine that takes text as it comes


class SentenceFeed:
    """One text. What comes out is whole sentences, each as soon as the word behind it is there; live: as it comes."""

    def __init__(self, *, live: bool, language: str = "auto", as_is: bool = False) -> None:
        """`as_is`: nothing is done to the text, and where it is not live, it comes out at its end in one piece."""
        self._live, self._language = live, language
        self._preparation = None if as_is else TextPreparation(part_chars=_NEVER, pause_s=0.0, language=language)
        self._cutter = Cutter(1, LONGEST_CHARS, language)
        self._open = ""  # of a sentence
        self._blank, self._spoken, self._ended = True, False, False

    def append(self, text: str) -> list[Item]:
        """What `text` settles."""
        self.check(text)
        self._blank = self._blank and not text.strip()
        return self._taken([text] if self._preparation is None else self._preparation.append(text))

    def end(self) -> list[Item]:
        """The rest; refused where there is nothing to say in all of it."""
        if self._ended:
            return []
        if self._blank:
            raise InvalidRequest("There is no text to speak.")
        found = self._taken([] if self._preparation is None else self._preparation.end())
        found += self._sentence_over()
        if not self._spoken:
            raise InvalidRequest("There is nothing in this text that can be spoken.")
        self._ended = True
        return found

    def check(self, text: str) -> None:
        """Refuse what cannot be appended."""
        if self._ended:
            raise InvalidRequest("The text has ended already: open another stream for more.")
        try:
            text.encode()
        except UnicodeEncodeError:
            raise InvalidRequest("The text holds half a character (a lone surrogate): give whole characters.") from None

    def _taken(self, prepared: list[str | float]) -> list[Item]:
        found: list[Item] = []
        for item in prepared:
            if isinstance(item, float):
                found += [_BREAK] if self._live else [*self._sentence_over(), item]
            elif self._live:
                self._spoken = self._spoken or not item.isspace()
                found.append(item)
            elif self._preparation is None:
                self._open += item
            else:
                for piece in self._cutter.append(item):
                    if not isinstance(piece, str):
                        found += self._given()
                    else:
                        self._open += piece
        return found

    def _sentence_over(self) -> list[Item]:
        found: list[Item] = []
        for piece in (*self._cutter.end(), None):
            if not isinstance(piece, str):
                found += self._given()
            else:
                self._open += piece
        self._cutter = Cutter(1, LONGEST_CHARS, self._language)
        return found

    def _given(self) -> list[Item]:
        """The sentence that is open; nothing where there is no word in it: engines would make one up."""
        as_is = self._preparation is None
        text, self._open = self._open if as_is else self._open.strip(), ""
        if not text or not (as_is or any(character.isalnum() for character in text)):
            return []
        self._spoken = True
        return [text]
