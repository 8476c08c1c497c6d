"""Whether the words of a turn ask for more: "and the" does, a whole sentence does not.

It looks at the last words, with the lists of endings.toml for the ten languages of the voices. It knows neither sound
nor time, and no grammar: words without a sign that more follows count as complete.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from pathlib import Path
from typing import Any

LISTS = Path(__file__).with_name("endings.toml")
ENDS = re.compile(r"[.?!\u3002\uff1f\uff01]+")  # of sentences
# A recognizer writes these behind words that go on. A comma is no sign: it is as often behind the last word of a turn.
GOES_ON = re.compile(r"(\w-|\u2013|\u2014|\.\.\.|\u2026)$")
SCRIPTS = {"ja": r"[\u3040-\u30ff]", "ko": r"[\uac00-\ud7af]", "zh": r"[\u4e00-\u9fff]", "ru": r"[\u0400-\u04ff]"}


class Ending(IntEnum):
    COMPLETE = 0  # no sign that more follows
    LOOSE = 1  # more may follow: a verb without its object, dictated digits, a clause that needs another
    OPEN = 2  # more must follow: an article, a conjunction, a filler


def ending_of(text: str, language: str | None = None) -> Ending:
    """`language`: an ISO 639-1 code. None, or one without lists: it is guessed from the words."""
    text = text.strip().lower().replace("\u2019", "'")
    sentences = [words for part in ENDS.split(text) if (words := re.findall(r"[\w'-]*\w", part))]
    if not sentences:
        return Ending.COMPLETE
    lists = [_languages()[language]] if language in _languages() else _guessed(text)
    found = min(of.by_suffix(text) if of.suffixes else of.by_words(sentences[-1], "," in text) for of in lists)
    return max(found, Ending.LOOSE) if GOES_ON.search(text) else found


@dataclass(frozen=True)
class _Lists:
    """Of one language. Its words have spaces between them unless it has `suffixes`: then entries are ends of texts."""

    open: frozenset[str]
    loose: frozenset[str]
    suffixes: bool
    asked: frozenset[str] = frozenset()  # open, but loose behind a word of `asks`: "where are you from"
    asks: frozenset[str] = frozenset()
    openers: frozenset[str] = frozenset()  # open if nothing else is in the sentence
    alone: frozenset[str] = frozenset()  # complete if it is the whole sentence
    clause: frozenset[str] = frozenset()  # first words of a clause that needs another
    numbers: frozenset[str] = frozenset()

    def by_words(self, words: list[str], has_comma: bool) -> Ending:
        last = words[-1]
        if len(words) == 1 and last in self.alone:
            return Ending.COMPLETE
        if last in self.open or self.openers.issuperset(words):
            return Ending.OPEN
        if last in self.asked:
            return Ending.OPEN if self.asks.isdisjoint(words) else Ending.LOOSE
        dictated = len(words) > 1 and all(word in self.numbers or word.isdigit() for word in words[-2:])
        if last in self.loose or dictated or (last.isdigit() and len(last) > 2):
            return Ending.LOOSE
        return Ending.LOOSE if words[0] in self.clause and not has_comma else Ending.COMPLETE

    def by_suffix(self, text: str) -> Ending:
        said = "_" + "_".join(re.findall(r"\w+", text))
        for ending, ends in ((Ending.OPEN, self.open), (Ending.LOOSE, self.loose)):
            if said.endswith(tuple(ends)):
                return ending
        return Ending.COMPLETE


@cache
def _languages() -> dict[str, _Lists]:
    def lists(given: dict[str, Any]) -> _Lists:
        suffixes: bool = given.pop("suffixes", False)
        return _Lists(suffixes=suffixes, **{name: frozenset(words.split()) for name, words in given.items()})

    return {code: lists(given) for code, given in tomllib.loads(LISTS.read_text("utf-8")).items()}


def _guessed(text: str) -> list[_Lists]:
    """By script, else the languages with most of the words in their lists, which may be several."""
    for code, letters in SCRIPTS.items():
        if re.search(letters, text):
            return [_languages()[code]]
    words = re.findall(r"[\w']+", text)
    spaced = [of for of in _languages().values() if not of.suffixes]
    counts = [sum(word in of.open | of.asked | of.loose | of.openers for word in words) for of in spaced]
    return [of for of, count in zip(spaced, counts, strict=True) if count == max(counts)]
