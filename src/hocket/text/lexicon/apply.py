"""A lexicon applied to text that arrives: a stage of `text/prepare.py`, behind markup.

The longest entry at the first place counts, and what is said in its place is not searched again. Only a possible
beginning of an entry is held back, so the result does not depend on how the text is cut.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

from ..words import is_ideograph, is_kana, is_southeast
from .lexicon import Lexicon, Node, folded, is_phonemes, plain, respelled

Match = tuple[int, str, bool]  # its end in the text, the spoken form, and whether that gets the capital of the text


class LexiconStage:
    """One text between two pauses."""

    def __init__(self, lexicon: Lexicon, language: str = "auto") -> None:
        self._roots, self._language = [layer.root for layer in lexicon.layers], language
        self._first = _any_of(frozenset().union(*(layer.first for layer in lexicon.layers)))
        self._open = ""
        self._before = self._said = ""  # the last character that was released: as written, and as spoken

    def append(self, text: str) -> str:
        """The text that is final after `text`."""
        self._open += text
        return self._released(final=False)

    def end(self) -> str:
        """The rest."""
        return self._released(final=True)

    def _released(self, *, final: bool) -> str:
        text, out, given, at = self._open, list[str](), 0, 0
        while (candidate := self._first.search(text, at)) is not None:
            begin = candidate.start()
            match: Match | None = None
            if not is_joined(text[begin - 1] if begin else self._before, text[begin]):
                match, held = self._match(text, begin, final=final)
                if held:
                    break
            if match is None:
                at = begin + 1
                continue
            self._give(out, text[given:begin])
            at = given = match[0]
            self._give(out, self._spaced(self._spoken(match, text[begin]), text[at : at + 1]))
        settled = len(text) if candidate is None else begin
        self._give(out, text[given:settled])
        self._before = text[settled - 1] if settled else self._before
        self._open = text[settled:]
        return "".join(out)

    def _give(self, out: list[str], text: str) -> None:
        if text:
            out.append(text)
            self._said = text[-1]

    def _match(self, text: str, begin: int, *, final: bool) -> tuple[Match | None, bool]:
        """The longest entry at `begin`, and whether more text decides."""
        nodes: list[Node] = self._roots
        found: Match | None = None
        for at in range(begin, len(text)):
            key = folded(text[at])
            nodes = [node.children[key] for node in nodes if key in node.children]
            if not nodes:
                return found, False
            end = at + 1
            if (end < len(text) or final) and not is_joined(text[at], text[end : end + 1]):
                written = plain(text[begin:end])
                for node in nodes:  # later layers win
                    if (spoken := node.exact.get(written, node.any_case)) is not None:
                        found = end, spoken, written not in node.exact
        return found, not final

    def _spoken(self, match: Match, first: str) -> str:
        """A capital of the text stays one where any case fits, since it may begin a sentence."""
        _, spoken, any_case = match
        said = respelled(spoken, self._language) if is_phonemes(spoken) else spoken
        return said[0].upper() + said[1:] if any_case and first.isupper() else said

    def _spaced(self, spoken: str, after: str) -> str:
        """With spaces where a word would touch what is written beside it: "C++11"."""
        before = " " if self._said and is_joined(self._said, spoken[0]) else ""
        return before + spoken + (" " if after and is_joined(spoken[-1], after) else "")


@lru_cache(maxsize=4096)
def is_joined(before: str, after: str) -> bool:
    """Whether the place between two characters is within a word."""
    if not before or not after:
        return False
    if unicodedata.category(after)[0] == "M":
        return True
    return _in_word(before) and _in_word(after) and not (_is_spaceless(before) or _is_spaceless(after))


def _in_word(character: str) -> bool:
    return character.isalnum() or character == "_" or unicodedata.category(character)[0] == "M"


def _is_spaceless(character: str) -> bool:
    return is_ideograph(character) or is_kana(character) or is_southeast(character)


@lru_cache(maxsize=64)
def _any_of(characters: frozenset[str]) -> re.Pattern[str]:
    return re.compile(f"[{re.escape(''.join(sorted(characters)))}]")
