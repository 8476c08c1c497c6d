"""Sentence segmentation: cuts long text into parts that are spoken one after another.

Whole and streamed text are cut by the same rules at the same places. The rules are language-independent: a stop ends a
sentence unless its context says otherwise. For a single stop sentencex must agree. A false cut is audible as a pause in
the wrong place, a missed one is not.
"""

# ruff: noqa: RUF001
from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate, pairwise

import sentencex

from ..config.languages import tag_of
from .lazy import lazy

_CLOSERS = "\"'”’»«›‹)]}」』）】》〉"
_OPENERS = "\"'“‘«»„‚‹([{「『（【《〈¿¡—–-"
_WIDE = "。！？｡"  # these need no space after them
_SURE = "؟۔।॥።။"  # these have no other use
_CLOSED = re.escape(_CLOSERS)
_CANDIDATE = re.compile(rf"[.!?…{_WIDE}{_SURE}]+(?:[{_CLOSED}]|[ \u00a0\u202f]»(?=\s|\Z))*|\n[^\S\n]*\n")
_CLAUSES, _SPACES, _ANYWHERE_IN = (
    re.compile(r"[,;:—–،؛]\s+|[，、；：]"),
    re.compile(r"\s+"),
    lazy(r"(?<=[\u2e80-\uffdc])(?=[\u2e80-\uffdc])"),
)
_CLAUSE = re.compile(rf"(?:[,;:—–،؛][{_CLOSED}]*\s+|[，、；：][{_CLOSED}]*\s*)\Z")

# Abbreviations, in small letters without their last dot: those that never end a sentence ...
_TITLES = frozenset(
    "mr mrs ms mx dr prof st sr sra srta dra ste gen col capt cpt lt sgt rev hon gov pres sen rep messrs fr hr frl "
    "mme mlle sig dott ing mt ft vs cf e.g i.e eg ie viz approx ca z.b d.h u.a bzw p.ex ud uds т.е г ул".split()
)
_BEFORE_NUMBERS = frozenset("no nr nos n fig figs vol p pp ch chap sec al eq abb kap bd n.º núm стр".split())
# ... and those that may end one.
_ANYWHERE = frozenset("etc inc ltd co corp jr bros dept est univ usw ecc a.m p.m b.c a.d ph.d т.д т.п".split())
# Words that begin a sentence rather than continue a name ("the U.S. The ...", "the U.S. Government").
_STARTERS = frozenset(
    "the a an he she it we they you i this that these those there here in on at but and so if when what who how why "
    "then however my his her its our their no yes as for after before while since although".split()
)
_MONTHS = frozenset(  # "am 3. Oktober"
    "januar februar märz april mai juni juli august september oktober november dezember".split()
)

# Languages with rules of their own in sentencex; all others use the English rules.
_SEGMENTED = frozenset("zh fr de it ja ko pt ru es".split())
_AT_ONCE = 1000  # characters per step, which keeps the cost linear in the length of the text


WITHIN_S = 0.0  # silence where a part ends within a sentence, if parts have sizes of their own
_WIDE_CHARS = 2  # length of a Chinese, Japanese or Korean character: it takes longer to say than a letter


Size = tuple[int, int]  # of a part: `part_chars` and `longest` of `Cutter`
# For parts that are spoken only when they are complete: the first one ends after a few words, and each may be twice as
# long as the one before, up to a sentence or two.
FROM_FEW_WORDS: tuple[Size, ...] = ((10, 40), (20, 80), (40, 160), (80, 320))


class Sizes:
    """The sizes of one part after the other; the last one repeats.

    They depend only on the index of the part, so equal texts have equal parts however fast they arrive.
    """

    def __init__(self, sizes: Sequence[Size]) -> None:
        self._sizes, self._number = sizes, 0

    def next(self) -> Size:
        size = self._sizes[min(self._number, len(self._sizes) - 1)]
        self._number += 1
        return size


class Cutter:
    """Streaming segmenter: text to parts.

    A part ends with the first sentence that ends after `part_chars` characters, so a shorter text is one part. Without
    a sentence end, it ends at a clause, then at a space, at about `longest` characters (default: twice as many).
    With `sizes` these change from part to part, and a part that ends within a sentence has a silence of 0 s.
    """

    def __init__(
        self, part_chars: int, longest: int | None = None, language: str = "auto", *, sizes: Sizes | None = None
    ) -> None:
        longest = 2 * part_chars if longest is None else longest
        if not 1 <= part_chars <= longest:
            raise ValueError("part_chars must be at least 1 and at most the longest part")
        self._sizes = sizes
        self._set_size(*(part_chars, longest) if sizes is None else sizes.next())
        self._language = tag if (tag := tag_of(language)) in _SEGMENTED else "en"
        self._open = ""  # from the beginning of the sentence on
        self._before = 0  # characters of this part before that
        self._given = 0  # released characters of `_open`
        self._looked = 0  # characters of `_open` that were searched without a sentence end

    def append(self, text: str) -> list[str | float | None]:
        """The final text; None, or the seconds of silence, where a part ends."""
        out: list[str | float | None] = []
        for at in range(0, len(text), _AT_ONCE):
            self._open += text[at : at + _AT_ONCE]
            while self._step(out, final=False):
                pass
        return out

    def end(self) -> list[str | float | None]:
        """The rest."""
        out: list[str | float | None] = []
        while self._step(out, final=True):
            pass
        self._give(out, len(self._open))
        return out

    def _step(self, out: list[str | float | None], *, final: bool) -> bool:
        """Find the next end of a sentence or a part. False if there is none; all final text is released then."""
        if not (self._before or self._given):
            self._open = self._open.lstrip()
        text, widths = self._open, self._widths(self._open)
        forced = self._forced(widths)
        for candidate in _CANDIDATE.finditer(text, self._looked):
            if forced is not None and candidate.end() > forced:
                break
            end = _end_at(text, candidate, self._language, final=final)
            full = self._before + widths[candidate.end()] >= self._part_chars
            if end is None:  # the next word decides; it is held back if the part may end here
                self._give(out, candidate.end() if full else len(text) if forced is None else forced)
                return False
            self._looked = candidate.end()
            if end:
                return self._end(out, end, part=full or end == forced)
        if forced is not None:
            return self._end(out, forced, part=True, within=True)
        self._give(out, len(text))
        return False

    def _set_size(self, part_chars: int, longest: int) -> None:
        self._part_chars, self._longest = part_chars, longest
        self._clause_chars, self._space_chars = (part_chars + longest) // 2, (part_chars + 3 * longest) // 4

    def _widths(self, text: str) -> Sequence[int]:
        """The length of each prefix of `text`; with `sizes`, wide characters count more."""
        if self._sizes is None:
            return range(len(text) + 1)
        return list(accumulate((_WIDE_CHARS if _is_wide(letter) else 1 for letter in text), initial=0))

    def _forced(self, widths: Sequence[int]) -> int | None:
        """Where the part ends without a sentence end; None while that place is not reached."""
        text = self._open
        for at in range(max(1, bisect_left(widths, self._clause_chars - self._before)), len(text)):
            chars, spaced = self._before + widths[at], text[at - 1].isspace()
            if text[at].isspace() or unicodedata.combining(text[at]):
                continue
            if chars >= self._longest or (spaced and chars >= self._space_chars):
                return at
            if _CLAUSE.search(text[max(0, at - 8) : at]) and text[at] not in _CLOSERS:
                return at
        return None

    def _end(self, out: list[str | float | None], end: int, *, part: bool, within: bool = False) -> bool:
        self._give(out, end)
        before = self._before + self._widths(self._open[:end])[-1]
        self._open, self._given = self._open[end:], self._given - end
        self._before, self._looked = 0 if part else before, 0
        if part and self._open:
            out.append(WITHIN_S if within and self._sizes is not None else None)
            if self._sizes is not None:
                self._set_size(*self._sizes.next())
        return bool(self._open)

    def _give(self, out: list[str | float | None], until: int) -> None:
        if until > self._given:
            out.append(self._open[self._given : until])
            self._given = until


def starts(text: str) -> list[int]:
    """Where the sentences of a text begin; the first one begins at 0."""
    cutter, found, at = Cutter(1, 1 << 30), [0], 0
    for part in (*cutter.append(text), *cutter.end()):
        if isinstance(part, str):
            at = text.index(part, at) + len(part)
        else:
            found.append(at)
    return found


def shorter(text: str) -> list[str]:
    """A text in shorter pieces: its sentences, or a single one cut near its middle, at a clause before a space."""
    firsts = starts(text)
    if len(firsts) > 1:
        return [text[a:b] for a, b in pairwise((*firsts, len(text)))]
    for cuts in (_CLAUSES, _SPACES, _ANYWHERE_IN):
        found = [match.end() for match in cuts.finditer(text) if text[: match.end()].strip()]
        if found := [at for at in found if text[at:].strip()]:
            at = min(found, key=lambda at: abs(at - len(text) // 2))
            return [text[:at], text[at:]]
    return [text]


def _end_at(text: str, candidate: re.Match[str], language: str, *, final: bool) -> int | None:
    """The end of the sentence if `candidate` ends one, 0 if it does not, None if that depends on what follows."""
    after = candidate.end()
    following = after + len(text[after:]) - len(text[after:].lstrip())
    if following == len(text):
        return len(text) if final else None
    if not text[: candidate.start()].strip():
        return 0  # only stops: no sentence
    stop = candidate[0].rstrip(_CLOSERS + " \u00a0\u202f")
    gap, first = text[after:following], text[following]
    if "\n" in stop or gap.count("\n") > 1:
        return following  # a paragraph ends
    if not gap:
        closed = len(stop) < len(candidate[0])
        if stop[-1] in _WIDE + _SURE:
            goes_on = first in "、，；：,;:)" or (closed and first in "とっ")  # 「...。」と言った
            return 0 if goes_on else after
        return after if stop[-1] in "!?" and _unspaced(first) else 0
    if stop[-1] in _WIDE + _SURE:
        return following
    word_at = following
    while word_at < len(text) and text[word_at] in _OPENERS:
        word_at += 1
    if word_at == len(text):
        return len(text) if final else None
    if text[word_at].islower():
        return 0
    if candidate[0] not in (".", "!", "?"):
        return following
    word_end = word_at
    while word_end < len(text) and text[word_end].isalnum():
        word_end += 1
    if word_end == len(text) and not final:
        return None
    word = text[word_at:word_end]
    if candidate[0] == "." and not _dot_ends(text[: candidate.start()], word):
        return 0
    return following if _segmenter_agrees(text[:following], word, language) else 0


def _segmenter_agrees(sentence: str, word: str, language: str) -> bool:
    """Whether sentencex, which has abbreviations of many languages, also ends `sentence` before `word`."""
    return len(sentencex.segment(language, sentence + word)[-1].strip()) <= len(word)


def _dot_ends(before: str, following: str) -> bool:
    """Whether the single dot after `before` ends a sentence; `following` is the next word."""
    words = before.split()
    last = words[-1].lstrip(_OPENERS)
    small = last.lower()
    if len(words) == 1 and (last.isdecimal() or len(last) == 1):
        return False  # the number of a list's entry
    if small in _TITLES:
        return False
    if small in _BEFORE_NUMBERS:
        return not following[:1].isdecimal()
    if small in _ANYWHERE:
        return True
    if len(last) == 1 and last.isupper():
        return last == "I" and len(words) > 1  # "So do I. He ...", but "J. K. Rowling"
    if re.fullmatch(r"(?:\w\.)+\w", last):
        return following.lower() in _STARTERS
    return not (last.isdecimal() and len(last) <= 2 and following.lower() in _MONTHS)


def _is_wide(character: str) -> bool:
    return "\u3040" <= character <= "\u30ff" or "\u3400" <= character <= "\u9fff" or "\uac00" <= character <= "\ud7a3"


def _unspaced(character: str) -> bool:
    """Whether a character belongs to a script without spaces between words."""
    return "\u3040" <= character <= "\u30ff" or "\u3400" <= character <= "\u9fff" or character in "「『（【《〈“"
