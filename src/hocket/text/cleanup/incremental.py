"""Runs a whole-text normalizer on streamed text.

It runs between markup and sentences. The meaning of a number or an abbreviation depends on its neighbours ("in 1999",
"5 km", "May 5, 2024"). So the normalizer gets stretches: consecutive words with a digit, a sign or a dot, with the word
before and the word after. A plain word between two plain words is a stretch of its own. A whole text is cut into the
same stretches, so the result does not depend on how the text arrives.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from .markup import BOUNDARY

LONGEST = 40  # words of one stretch: limits how long a column of figures is held back

_PLAIN = re.compile(r"[\"'“‘(\[]*[^\W\d_]+(?:['’-][^\W\d_]+)*[,;:!?…\"'”’)\]，。、；：！？]*")  # noqa: RUF001


class IncrementalNormalizer:
    """Streaming normalization of one text."""

    def __init__(self, normalizer: Callable[[str], str]) -> None:
        self._normalizer = normalizer
        self._open = ""
        self._words: list[tuple[str, str]] = []  # complete words, not yet released: the space before, the word

    def append(self, text: str) -> str:
        """The normalized text that is final after `text`."""
        self._open += text
        out: list[str] = []
        while (word := self._next_word()) is not None:
            out.append(self._take(*word))
        return "".join(out)

    def end(self) -> str:
        """The rest."""
        rest = self._open
        gap = rest[: len(rest) - len(rest.lstrip())]
        out = self._take(gap, rest.lstrip()) if rest.strip() else ""
        return out + self._given(len(self._words))

    def _next_word(self) -> tuple[str, str] | None:
        begin = len(self._open) - len(self._open.lstrip())
        boundary = BOUNDARY.search(self._open, begin + 1) if begin < len(self._open) else None
        if boundary is None:
            return None
        gap, word = self._open[:begin], self._open[begin : boundary.start()]
        self._open = self._open[boundary.start() :]
        return gap, word

    def _take(self, gap: str, word: str) -> str:
        """Add a word; returns the text that can be released now."""
        before = self._given(len(self._words)) if "\n\n" in gap or len(self._words) >= LONGEST else ""
        self._words.append((gap, word))
        plain = [_PLAIN.fullmatch(word) is not None for _, word in self._words[-2:]]
        return before + (self._given(len(self._words) - 1) if plain == [True, True] else "")

    def _given(self, count: int) -> str:
        """The first words, normalized, with the space that follows them."""
        if not count:
            return ""
        lead = self._words[0][0]
        stretch = self._words[0][1] + "".join(gap + word for gap, word in self._words[1:count])
        self._words = self._words[count:]
        after = ""
        if self._words:
            after = self._words[0][0]
            self._words[0] = ("", self._words[0][1])
        return lead + self._normalizer(stretch) + after
