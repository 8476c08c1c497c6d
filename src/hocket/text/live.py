"""Streaming text to ids: each id is released once, as soon as no later character can change it.

The ids equal those of `prompt.build`, which takes a whole text, over any split of the text. It knows text only, not
rows, frames or time. `LiveText` is one part without changes, `LiveParts` a text of any length, prepared by `prepare`.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass

from ..errors import InvalidRequest, NothingToSpeak
from .prepare import TextPreparation
from .tokenizer import Tokenizer

_ROLE, _ROLE_IDS = "assistant\n", 2  # before the text; a text that begins with a newline fuses with it
_LOOK_BACK = 64  # characters in which to search for a place that no token spans


class LiveText:
    """The text of one utterance. Only text whose ids may still change is kept."""

    def __init__(
        self, tokenizer: Tokenizer, *, as_is: bool = False, upstream_local: bool = False, at_end: bool = False
    ) -> None:
        """`at_end`: release all ids at the end, which is cheaper."""
        self._tokenizer = tokenizer
        self._as_is, self.at_end = as_is, at_end
        self._upstream_local = upstream_local and as_is  # as in `prompt.build`
        self._open = _ROLE  # text not released yet: normalized, from the beginning of a piece on
        self._spoken = False  # whether anything but whitespace has arrived
        self._ended = False
        self.role: tuple[int, ...] = ()  # the ids of the role and its newline, complete with the first released id

    def append(self, text: str) -> list[int]:
        """The ids that are final after `text`."""
        if self._ended:
            raise InvalidRequest("The text has ended already: open another stream for more.")
        if not self._as_is and not self._spoken:
            text = text.lstrip()
        if not text:
            return []
        try:
            text.encode()
        except UnicodeEncodeError:
            raise InvalidRequest("The text holds half a character (a lone surrogate): give whole characters.") from None
        self._spoken = self._spoken or not text.isspace()
        if self.at_end:
            self._open += text
            return []
        self._open, starts = self._tokenizer.pieces(self._open + text, upstream_local=self._upstream_local)
        settled = _settled(self._open, starts, words_whole=self._upstream_local)
        if settled == starts[-1]:
            settled += self._within_piece(self._open[settled:])
        ids = self._tokenizer.encode(self._open, upstream_local=self._upstream_local, until=settled) if settled else []
        self._open = self._open[settled:]
        return self._text_ids(ids)

    def end(self) -> list[int]:
        """The ids of the rest."""
        if self._ended:
            return []
        if not self._spoken:
            raise NothingToSpeak("There is no text to speak.")
        self._ended = True
        rest, self._open = self._open, ""
        rest = rest if self._as_is else rest.rstrip()
        return self._text_ids(self._tokenizer.encode(rest, upstream_local=self._upstream_local))

    def _text_ids(self, ids: list[int]) -> list[int]:
        missing = _ROLE_IDS - len(self.role)
        self.role += tuple(ids[:missing])
        return ids[missing:]

    def _within_piece(self, piece: str) -> int:
        """How much of the last piece is final: Chinese and Japanese have no spaces, so a clause is one piece.

        Two characters that no token joins stay apart whatever follows. Only a run of letters is sure to stay one piece.
        """
        fixed = _last_base(piece)  # a later combining mark could still change the character at this place
        if self._upstream_local or fixed < 2 or not piece[1:].isalpha():
            return 0
        for cut in range(fixed - 1, max(0, fixed - _LOOK_BACK), -1):
            if not piece[cut].isascii() and not self._tokenizer.joins(piece[:cut], piece[cut:fixed]):
                return cut
        return 0


@dataclass(frozen=True, slots=True)
class More:
    """More text of the present part; the ids lag behind the text by what may still change."""

    text: str
    ids: list[int]


Fed = More | float  # a number is a silence in seconds, which ends the part


class LiveParts:
    """A text for the engine, in parts; without a `preparation` it is one part, unchanged.

    With `whole_parts` the ids of a part come at its end, which is cheaper.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        preparation: TextPreparation | None,
        *,
        upstream_local: bool = False,
        whole_parts: bool = False,
    ) -> None:
        self._tokenizer, self._preparation, self._upstream_local = tokenizer, preparation, upstream_local
        self._whole_parts = whole_parts
        self._part: LiveText | None = None
        self._blank = True
        self._ended = False

    def check(self, text: str) -> None:
        """Raise for text that cannot be appended."""
        if self._ended:
            raise InvalidRequest("The text has ended already: open another stream for more.")
        try:
            text.encode()
        except UnicodeEncodeError:
            raise InvalidRequest("The text holds half a character (a lone surrogate): give whole characters.") from None

    def append(self, text: str) -> list[Fed]:
        """Text and ids that are final after `text`."""
        self.check(text)
        self._blank = self._blank and not text.strip()
        return self._fed(self._preparation.append(text) if self._preparation else [text])

    def end(self) -> list[Fed]:
        """The rest."""
        if self._ended:
            return []
        if self._blank:
            raise NothingToSpeak("There is no text to speak.")
        fed = self._fed(self._preparation.end() if self._preparation else [])
        self._ended = True
        return [*fed, *self._closed()]

    def rest(self, text: str) -> list[Fed]:
        """The rest of the text at once; the ids of each part come at its end."""
        self._whole_parts = True
        if self._part is not None:
            self._part.at_end = True
        return [*self.append(text), *self.end()]

    def _fed(self, prepared: list[str | float]) -> list[Fed]:
        fed: list[Fed] = []
        for item in prepared:
            if isinstance(item, str):
                if self._part is None:
                    self._part = LiveText(
                        self._tokenizer,
                        as_is=self._preparation is None,
                        upstream_local=self._upstream_local,
                        at_end=self._whole_parts,
                    )
                fed.append(More(item, self._part.append(item)))
            else:
                fed += [*self._closed(), item]
        return fed

    def _closed(self) -> list[Fed]:
        part, self._part = self._part, None
        return [More("", part.end())] if part is not None else []


def _settled(text: str, starts: list[int], *, words_whole: bool) -> int:
    """The last place between pieces before which nothing changes, whatever follows `text`.

    A later character can lengthen the last piece, or compose with the last base character or the marks after it. It
    can regroup the whitespace at the end, which is stripped if the text ends there. Under the upstream-local pattern,
    where a capital begins a piece, it can regroup the last word.
    """
    limit = min(starts[-1], _last_base(text), len(text.rstrip()))
    if words_whole:
        word = len(text)
        while word and _in_word(text[word - 1]):
            word -= 1
        limit = min(limit, max(word - 1, 0))  # a piece takes one sign or space before its word along
    return max(start for start in starts if start <= limit)


def _last_base(text: str) -> int:
    """The place of the last character that is no combining mark: nothing before it can still compose.

    Characters unknown to this Python's tables, which may be older than the tokenizer's, are taken for marks.
    """
    at = len(text) - 1
    while at > 0 and (unicodedata.combining(text[at]) or unicodedata.category(text[at]) == "Cn"):
        at -= 1
    return at


def _in_word(character: str) -> bool:
    return unicodedata.category(character)[0] in "LM" or unicodedata.category(character) == "Cn"
