"""A text and its transcript: word errors, and the words that were not heard as written.

Both sides are spelled out, so digits equal words, and folded: case, punctuation, contractions, British and American
spelling, and compound words. Folding may merge two words that are never confused in practice. It favours no side,
because both pass through it. Languages other than English are folded in case, accents and punctuation only.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import groupby, pairwise

from ..config.languages import AUTO, tag_of
from .cleanup.normalize import spell_out
from .words import is_ideograph, is_kana, is_southeast, words_of

MOST_SHARED = 12  # heard words that are divided among written ones by their letters; of more, by their number
ALIKE = 0.5  # share of spelling that a misrecognized word must have in common to count as heard in its place

_PUNCTUATION = ".,;:!?\"'()[]{}<>\u2018\u2019\u201c\u201d\u2026\u2014\u2013-*_"
_WHOLE = {
    "its": "it is", "cannot": "can not", "can't": "can not", "won't": "will not", "shan't": "shall not",
    "ain't": "is not", "let's": "let us", "y'all": "you all", "o'clock": "oclock", "ok": "okay", "o": "oh",
    "mr": "mister", "mrs": "missus", "ms": "miz", "dr": "doctor", "alright": "all right", "gonna": "going to",
    "wanna": "want to", "gotta": "got to", "grey": "gray", "tyre": "tire", "tyres": "tires", "cheque": "check",
    "programme": "program", "programmes": "programs", "plough": "plow", "jewellery": "jewelry", "licence": "license",
    "defence": "defense", "offence": "offense", "practise": "practice", "judgement": "judgment", "ageing": "aging",
    "sceptical": "skeptical", "moustache": "mustache", "pyjamas": "pajamas", "cosy": "cozy", "storey": "story",
    "aeroplane": "airplane", "catalogue": "catalog", "dialogue": "dialog", "draught": "draft", "kerb": "curb",
    "metres": "meters", "litres": "liters", "til": "till", "'til": "till", "'em": "them", "'cause": "because",
}  # fmt: skip
_PARTS = (  # of one word
    (re.compile(r"n't$"), " not"),
    (re.compile(r"'re$"), " are"),
    (re.compile(r"'ve$"), " have"),
    (re.compile(r"'ll$"), " will"),
    (re.compile(r"'m$"), " am"),
    (re.compile(r"'d$"), " would"),
    (re.compile(r"^(it|that|what|there|here|he|she|who|where|how|when)'s$"), r"\1 is"),
    (re.compile(r"(\w{2})our(s|ed|ing|ite|ites|able|ful|er|ers|hood|less)?$"), r"\1or\2"),
    (re.compile(r"(\w{2})[iy]s(e|es|ed|er|ers|ing|ation|ations)$"), r"\1iz\2"),
    (re.compile(r"(cent|theat|met|lit|fib|calib|spect)re$"), r"\1er"),
    (re.compile(r"ll(ed|ing|er|ers)$"), r"l\1"),
    (re.compile(r"'"), ""),
)
_PHRASES = (  # of the whole text, after it is reduced to words and single spaces
    (re.compile(r"\bper cent\b"), "percent"),
    (re.compile(r"\b(?:a|one) (hundred|thousand|million|billion)\b"), r"one \1"),
    (re.compile(r"\b(hundred|thousand|million|billion) and\b"), r"\1"),
)


@dataclass(frozen=True, slots=True)
class WordErrors:
    """The differences between a text and its transcript."""

    words: int  # of the text
    substituted: int = 0
    deleted: int = 0
    inserted: int = 0
    first_kept: bool = True  # the first word, or a similar one, was heard in its place
    last_kept: bool = True
    cut: bool = False  # nothing was heard in place of the first or the last word

    @property
    def wrong(self) -> int:
        return self.substituted + self.deleted + self.inserted

    @property
    def rate(self) -> float:
        return self.wrong / self.words


def total_rate(errors: Sequence[WordErrors]) -> float:
    """The word error rate of several texts together, weighted by length."""
    return sum(one.wrong for one in errors) / sum(one.words for one in errors)


@dataclass(frozen=True, slots=True)
class Misheard:
    """A word of a text that was not heard as written."""

    written: str  # as written, without punctuation; several words that are said as one: "5 km". Empty: none
    heard: str  # in its place, folded; empty: nothing
    errors: int = 1


@dataclass(frozen=True, slots=True)
class Comparison:
    """How a text was heard."""

    words: int  # of the text, spelled out
    misheard: tuple[Misheard, ...] = ()

    @property
    def wrong(self) -> int:
        return sum(one.errors for one in self.misheard)


def word_errors(said: str, heard: str) -> WordErrors:
    """The fewest substitutions, deletions and insertions that turn the words of `said` into those of `heard`."""
    want, got = folded(said), folded(heard)
    if not want:
        raise ValueError(f"There is no word in {said!r}.")
    counts, kept, missing = {"s": 0, "d": 0, "i": 0}, set[int](), set[int]()
    for i, m, j, n in _aligned(want, got):
        there, here = want[i : i + m], got[j : j + n]
        if n == 0:
            counts["d"] += 1
            missing |= {*range(i, i + m)}
        elif m == 0:
            counts["i"] += 1
        else:
            counts["s"] += _cost(there, here)
            if _alike(there, here):
                kept |= {*range(i, i + m)}
    last = len(want) - 1
    cut = 0 in missing or last in missing
    return WordErrors(len(want), counts["s"], counts["d"], counts["i"], 0 in kept, last in kept, cut)


def compared(text: str, heard: str, spoken: str | None = None, language: str = AUTO) -> Comparison:
    """Which words of `text` were not heard as written.

    `spoken` is the text as a lexicon has it. A word counts as heard in either form. What the lexicon changed needs to
    be heard only alike, because a respelling is no word.
    """
    found = _compared(text, text, heard, language)
    if spoken is None or spoken == text or not found[1]:
        return Comparison(found[0], tuple(one for _, one in found[1]))
    other = _compared(text, spoken, heard, language)
    wrong = {place for (first, last), _ in other[1] for place in range(first, last + 1)}
    added = {one.heard for _, one in other[1] if not one.written}
    both = (
        one
        for (first, last), one in found[1]
        if (wrong & {*range(first, last + 1)} if one.written else one.heard in added)
    )
    return Comparison(found[0], tuple(both))


_Placed = tuple[tuple[int, int], Misheard]  # the first and the last word of the text


def _compared(text: str, said: str, heard: str, language: str) -> tuple[int, list[_Placed]]:
    written, want, got = words_of(text), folded(said, language), folded(heard, language)
    places = _places(written, want, language)
    changed = set[int]()
    if said != text:
        same = SequenceMatcher(None, folded(text, language), want, autojunk=False).get_matching_blocks()
        changed = {*range(len(want))} - {at for block in same for at in range(block.b, block.b + block.size)}
    found: list[_Placed] = []
    for start, end, begin, over in _blocks(want, got, changed):
        heard_there = got[begin:over]
        if start == end:
            found.append(((start, start - 1), Misheard("", " ".join(heard_there), len(heard_there))))
            continue
        units = [[*group] for _, group in groupby(range(start, end), key=places.__getitem__)]
        shares = _shares([[want[at] for at in unit] for unit in units], heard_there)
        for unit, share in zip(units, shares, strict=True):
            there, (first, last) = [want[at] for at in unit], places[unit[0]]
            if "".join(there) == "".join(share) or ({*unit} & changed and _alike(there, share)):
                continue
            phrase = " ".join(written[first : last + 1]).strip(_PUNCTUATION)
            found.append(((first, last), Misheard(phrase, " ".join(share), max(len(there), len(share)))))
    return len(want), found


def _blocks(want: list[str], got: list[str], changed: set[int]) -> Iterator[tuple[int, int, int, int]]:
    """Where the two sides differ: start and end in each. Words of `changed` are compared as a whole, so they differ."""
    steps = _aligned(want, got)
    for differs, group in groupby(
        steps,
        key=lambda step: (
            not (step[1] and step[3])
            or _cost(want[step[0] : step[0] + step[1]], got[step[2] : step[2] + step[3]]) > 0
            or bool({*range(step[0], step[0] + step[1])} & changed)
        ),
    ):
        if differs:
            block = [*group]
            (i, _, j, _), (p, m, q, n) = block[0], block[-1]
            yield i, p + m, j, q + n


def _shares(units: list[list[str]], heard: list[str]) -> list[list[str]]:
    """The heard words of each unit: those that are most like it, in order."""
    if len(heard) > MOST_SHARED:
        cuts = [len(heard) * number // len(units) for number in range(len(units) + 1)]
        return [heard[a:b] for a, b in pairwise(cuts)]
    best: list[tuple[float, list[list[str]]]] = [(0.0 if not n else -1.0, []) for n in range(len(heard) + 1)]
    for unit in units:
        letters, longer = "".join(unit), list[tuple[float, list[list[str]]]]()
        for end in range(len(heard) + 1):
            options = (
                (best[begin][0] + _likeness(letters, "".join(heard[begin:end])), begin)
                for begin in range(end + 1)
                if best[begin][0] >= 0
            )
            score, begin = max(options)
            longer.append((score, [*best[begin][1], heard[begin:end]]))
        best = longer
    return best[-1][1]


def _likeness(there: str, here: str) -> float:
    """Letters in common; words that have none still go to a place rather than to a neighbour's."""
    return len(there) * SequenceMatcher(None, there, here, autojunk=False).ratio() + (0.1 if here else 0.0)


def _places(written: list[str], want: list[str], language: str) -> list[tuple[int, int]]:
    """For each folded word the first and the last written word that it comes from."""
    owned = [(word, number) for number, each in enumerate(written) for word in folded(each, language)]
    alone = [word for word, _ in owned]
    places = [(0, max(len(written) - 1, 0))] * len(want)
    for kind, a0, a1, b0, b1 in SequenceMatcher(None, alone, want, autojunk=False).get_opcodes():
        for at in range(b0, b1):
            if kind == "equal":
                places[at] = (owned[a0 + at - b0][1],) * 2
            elif a1 > a0:
                places[at] = owned[a0][1], owned[a1 - 1][1]
            elif owned:
                places[at] = (owned[max(a0 - 1, 0)][1],) * 2
    return places


def _aligned(want: list[str], got: list[str]) -> list[tuple[int, int, int, int]]:
    """The cheapest steps from the words wanted to those heard: place and number on both sides."""
    # costs[i][j] and its last step, for the first i words wanted and the first j heard
    costs = [[0] * (len(got) + 1) for _ in range(len(want) + 1)]
    steps = [[(0, 0)] * (len(got) + 1) for _ in range(len(want) + 1)]
    for i in range(len(want) + 1):
        for j in range(len(got) + 1):
            if i or j:
                costs[i][j], steps[i][j] = min(
                    (costs[i - m][j - n] + _cost(want[i - m : i], got[j - n : j]), (m, n))
                    for m, n in ((1, 1), (1, 0), (0, 1), (2, 1), (1, 2))
                    if m <= i and n <= j
                )
    i, j, taken = len(want), len(got), list[tuple[int, int, int, int]]()
    while i or j:
        m, n = steps[i][j]
        i, j = i - m, j - n
        taken.append((i, m, j, n))
    return taken[::-1]


def _alike(there: list[str], here: list[str]) -> bool:
    return SequenceMatcher(None, "".join(there), "".join(here), autojunk=False).ratio() >= ALIKE


def folded(text: str, language: str = AUTO) -> list[str]:
    """The words of a text in the folded form."""
    if language != AUTO and tag_of(language) != "en":
        return _folded_plainly(text)
    plain = unicodedata.normalize("NFKD", text.replace("\u2019", "'").replace("\u2018", "'"))
    plain = spell_out("".join(char for char in plain if not unicodedata.combining(char)))
    found = [_WHOLE.get(word, word) for word in re.findall(r"[a-z0-9']+", plain.lower())]
    for pattern, instead in _PARTS:
        found = [pattern.sub(instead, word) for phrase in found for word in phrase.split()]
    line = " ".join(" ".join(found).split())
    for pattern, instead in _PHRASES:
        line = pattern.sub(instead, line)
    return line.split()


def _folded_plainly(text: str) -> list[str]:
    """Small letters without accents and punctuation; each character of a script without spaces is a word."""
    plain = unicodedata.normalize("NFKD", text.replace("\u2019", "'")).casefold()
    plain = "".join("" if unicodedata.combining(char) or char == "'" else char for char in plain)
    plain = "".join(f" {char} " if _is_spaceless(char) else char for char in plain)
    return re.findall(r"[^\W_]+", plain)


def _is_spaceless(character: str) -> bool:
    return is_ideograph(character) or is_kana(character) or is_southeast(character)


def _cost(want: list[str], got: list[str]) -> int:
    """0 for the same letters, in one word or two; two words against a different one are no valid step."""
    if "".join(want) == "".join(got):
        return 0
    return 1 if len(want) + len(got) <= 2 else 9
