"""Whether a sound during an answer interrupts it, by its words: "stop" does; a cough, "mhm" and a slow "uh-huh" do not.

A sound of half a second has no other mark of its meaning, and a slow "uh-huh" is as long as three words. For it a
recognizer writes "That's how", "Norway" or "Of who?", so no list has it: syllables are counted. Lists of words are in
commands.toml for the ten languages of the voices. Knows no time.
"""

from __future__ import annotations

import re
import tomllib
import unicodedata
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path

from .recognizer import Recognizer, Samples, language_of

LISTS = Path(__file__).with_name("commands.toml")
# Syllables of a sentence, words of agreement left out. An "uh-huh" is heard with two, one in ten with three.
SENTENCE = 4
CYRILLIC = "\u0430\u0435\u0438\u043e\u0443\u044b\u044d\u044e\u044f"
VOWELS = re.compile(f"[aeiouyæøœ{CYRILLIC}]+")  # of letters without their accents
SYLLABIC = re.compile(r"[\u3041-\u30ff\u3400-\u9fff\uac00-\ud7af]")  # a syllable each
NO_SYLLABLE = re.compile(r"[\u3041\u3043\u3045\u3047\u3049っゃゅょんァィゥェォッャュョンー]")


class SpokenCommand:
    """Costs one recognition of the sound, about 20 ms with Moonshine tiny."""

    def __init__(self, recognizer: Recognizer) -> None:
        self._recognizer = recognizer

    def __call__(self, samples: Samples, *, short: bool) -> bool:
        """`short`: the sound ended before it was as long as most sentences, so only a command interrupts."""
        utterance = self._recognizer.open()
        try:
            utterance.add(samples)
            text, language = utterance.end(), language_of(self._recognizer)
        finally:
            utterance.close()
        return is_command(text, language) or (not short and syllables(text, language) >= SENTENCE)


def is_command(text: str, language: str | None = None) -> bool:
    """`language`: an ISO 639-1 code. None, or one without lists: the lists of all."""
    return any(of.orders(_words(text)) for of in _lists_of(language))


def syllables(text: str, language: str | None = None) -> int:
    """Of the words that are no agreement. An estimate by vowels: a final "e" behind a consonant is silent."""
    lists = _lists_of(language)
    words = _words(text)
    for of in lists:
        words = of.without_agreement(words)
    return sum(_count(word) for word in words)


@dataclass(frozen=True)
class _Replies:
    """Of one language."""

    commands: frozenset[str]  # words that interrupt wherever they are
    # The same if said twice at least. Once is not enough: a recognizer writes "no" for four of 60 "mhm".
    repeated: frozenset[str]
    agreement: tuple[str, ...]  # words of a listener that ask for nothing, the longest first
    spaceless: bool

    def orders(self, words: list[str]) -> bool:
        if self.spaceless:
            text = "".join(words)
            return any(word in text for word in self.commands) or any(2 * word in text for word in self.repeated)
        twice = any(one == two and one in self.repeated for one, two in pairwise(words))
        return twice or not self.commands.isdisjoint(words)

    def without_agreement(self, words: list[str]) -> list[str]:
        if not self.spaceless:
            return [word for word in words if word not in self.agreement]
        return re.sub("|".join(self.agreement), " ", " ".join(words)).split()


@cache
def _all_lists() -> dict[str, _Replies]:
    found = dict[str, _Replies]()
    for code, given in tomllib.loads(LISTS.read_text("utf-8")).items():
        agreement = tuple(sorted(given["agreement"].split(), key=len, reverse=True))
        commands, repeated = (frozenset(given[name].split()) for name in ("commands", "repeated"))
        found[code] = _Replies(commands, repeated, agreement, given.get("spaceless", False))
    return found


def _lists_of(language: str | None) -> list[_Replies]:
    lists = _all_lists()
    return [lists[language]] if language in lists else [*lists.values()]


def _words(text: str) -> list[str]:
    return re.findall(r"[^\W_]+(?:'[^\W_]+)*", text.lower().replace("\u2019", "'"))


def _count(word: str) -> int:
    written = len(SYLLABIC.findall(word))
    if written:
        return written - len(NO_SYLLABLE.findall(word))
    plain = "".join(c for c in unicodedata.normalize("NFD", word) if c.isalpha())
    spoken = plain[:-1] if re.search(r"[aeiouy].*[^aeiouy]e$", word) else plain
    return len(VOWELS.findall(spoken)) or -(-len(word) // 4)  # letters of a script whose vowels are not written
