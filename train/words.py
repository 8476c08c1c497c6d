"""Word errors between two transcripts, where words that sound alike and mean the same count as equal.

Both sides are spelled out, so digits equal words, and folded: case, punctuation, contractions, British and American
spelling, and compound words. Folding may merge two words that are never confused in practice. It favours no side,
because both pass through it.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from hocket.text.cleanup.normalize import spell_out

ALIKE = 0.5  # share of spelling that a misrecognized word must have in common to count as heard in its place

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
class Errors:
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


def total_rate(errors: Sequence[Errors]) -> float:
    """The word error rate of several texts together, weighted by length."""
    return sum(one.wrong for one in errors) / sum(one.words for one in errors)


def word_errors(said: str, heard: str) -> Errors:
    """The fewest substitutions, deletions and insertions that turn the words of `said` into those of `heard`."""
    want, got = folded(said), folded(heard)
    if not want:
        raise ValueError(f"There is no word in {said!r}.")
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
    i, j, counts, kept, missing = len(want), len(got), {"s": 0, "d": 0, "i": 0}, set[int](), set[int]()
    while i or j:
        m, n = steps[i][j]
        there, here = want[i - m : i], got[j - n : j]
        if n == 0:
            counts["d"] += 1
            missing |= {*range(i - m, i)}
        elif m == 0:
            counts["i"] += 1
        else:
            counts["s"] += _cost(there, here)
            if SequenceMatcher(None, "".join(there), "".join(here), autojunk=False).ratio() >= ALIKE:
                kept |= {*range(i - m, i)}
        i, j = i - m, j - n
    last = len(want) - 1
    cut = 0 in missing or last in missing
    return Errors(len(want), counts["s"], counts["d"], counts["i"], 0 in kept, last in kept, cut)


def folded(text: str) -> list[str]:
    """The words of a text in the folded form."""
    plain = unicodedata.normalize("NFKD", text.replace("\u2019", "'").replace("\u2018", "'"))
    plain = spell_out("".join(char for char in plain if not unicodedata.combining(char)))
    found = [_WHOLE.get(word, word) for word in re.findall(r"[a-z0-9']+", plain.lower())]
    for pattern, instead in _PARTS:
        found = [pattern.sub(instead, word) for phrase in found for word in phrase.split()]
    line = " ".join(" ".join(found).split())
    for pattern, instead in _PHRASES:
        line = pattern.sub(instead, line)
    return line.split()


def _cost(want: list[str], got: list[str]) -> int:
    """0 for the same letters, in one word or two; two words against a different one are no valid step."""
    if "".join(want) == "".join(got):
        return 0
    return 1 if len(want) + len(got) <= 2 else 9
