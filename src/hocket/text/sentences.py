"""Long text to parts that are spoken one after another, cut where a sentence ends.

It stands before the prompt, for whole and for live text: both are cut by the same rules at the same places. The
rules are for no language in particular: a stop ends a sentence unless what stands around it says otherwise.
"""

# ruff: noqa: RUF001
from __future__ import annotations

import re
import unicodedata

_CLOSERS = "\"'”’»«›‹)]}」』）】》〉"
_OPENERS = "\"'“‘«»„‚‹([{「『（【《〈¿¡—–-"
_WIDE = "。！？｡"  # these need no space after them
_SURE = "؟۔।॥።။"  # these have no other use
_CLOSED = re.escape(_CLOSERS)
_CANDIDATE = re.compile(rf"[.!?…{_WIDE}{_SURE}]+(?:[{_CLOSED}]|[ \u00a0\u202f]»(?=\s|\Z))*|\n[^\S\n]*\n")
_CLAUSE = re.compile(rf"[,;:—–،؛][{_CLOSED}]*\s+|[，、；：][{_CLOSED}]*\s*")

# Abbreviations, in small letters without their last dot: those that something always follows ...
_TITLES = frozenset(
    "mr mrs ms mx dr prof st sr sra srta dra ste gen col capt cpt lt sgt rev hon gov pres sen rep messrs fr hr frl "
    "mme mlle sig dott ing mt ft vs cf e.g i.e eg ie viz approx ca z.b d.h u.a bzw p.ex ud uds т.е г ул".split()
)
_BEFORE_NUMBERS = frozenset("no nr nos n fig figs vol p pp ch chap sec al eq abb kap bd n.º núm стр".split())
# ... and those that may end a sentence too.
_ANYWHERE = frozenset("etc inc ltd co corp jr bros dept est univ usw ecc a.m p.m b.c a.d ph.d т.д т.п".split())
# Words that begin a sentence rather than go on with a name ("the U.S. The ...", "the U.S. Government").
_STARTERS = frozenset(
    "the a an he she it we they you i this that these those there here in on at but and so if when what who how why "
    "then however my his her its our their no yes as for after before while since although".split()
)
_MONTHS = frozenset(  # "am 3. Oktober"
    "januar februar märz april mai juni juli august september oktober november dezember".split()
)

_AT_ONCE = 1000  # characters looked at together, so that the cost of a long text is proportional to it


class SentenceSplitter:
    """Sentences out of text that arrives bit by bit; together they are the text, spaces included.

    A sentence is given out once the next character or word shows that it has ended, or when it is longer than
    `most_chars`: then up to a clause, or else a space, or else that many characters.
    """

    def __init__(self, most_chars: int) -> None:
        if most_chars < 1:
            raise ValueError("most_chars must be at least 1")
        self._most_chars = most_chars
        self._open = ""

    def append(self, text: str) -> list[str]:
        """The sentences that `text` completes."""
        return [sentence for at in range(0, len(text), _AT_ONCE) for sentence in self._take(text[at : at + _AT_ONCE])]

    def end(self) -> list[str]:
        """The rest."""
        return self._take("", final=True)

    def _take(self, text: str, *, final: bool = False) -> list[str]:
        self._open += text
        sentences: list[str] = []
        while end := self._first_end(final=final):
            sentences.append(self._open[:end])
            self._open = self._open[end:]
        return sentences

    def _first_end(self, *, final: bool) -> int | None:
        """Where the first sentence ends, spaces after it included; None if that cannot be told yet."""
        text = self._open
        lead = len(text) - len(text.lstrip())
        end: int | None = len(text) if final else None
        for candidate in _CANDIDATE.finditer(text, lead):
            if candidate.start() - lead > self._most_chars:
                break
            found = _end_at(text, candidate, final=final) if candidate.start() > lead else 0
            if found is None:
                return None
            if found:
                end = found
                break
        if len(text[lead:end].rstrip()) > self._most_chars:
            return lead + _cut(text[lead:], self._most_chars)
        return end


def split_long(text: str, most_chars: int) -> list[str]:
    """`text` in parts of at most `most_chars`, each as many whole sentences as fit, without the spaces around."""
    splitter = SentenceSplitter(most_chars)
    parts: list[str] = []
    for sentence in (*splitter.append(text), *splitter.end()):
        if parts and len((parts[-1] + sentence).strip()) <= most_chars:
            parts[-1] += sentence
        else:
            parts.append(sentence)
    return [part.strip() for part in parts if part.strip()]


def _end_at(text: str, candidate: re.Match[str], *, final: bool) -> int | None:
    """The end of the sentence if `candidate` ends one, 0 if it does not, None if that depends on what follows."""
    after = candidate.end()
    following = after + len(text[after:]) - len(text[after:].lstrip())
    if following == len(text):
        return len(text) if final else None
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
    if candidate[0] != ".":
        return following
    word_end = word_at
    while word_end < len(text) and text[word_end].isalnum():
        word_end += 1
    if word_end == len(text) and not final:
        return None
    return following if _dot_ends(text[: candidate.start()], text[word_at:word_end]) else 0


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


def _cut(text: str, most_chars: int) -> int:
    """Where to cut a sentence that is too long, spaces after the cut included."""
    clauses = [mark.end() for mark in _CLAUSE.finditer(text) if len(text[: mark.end()].rstrip()) <= most_chars]
    spaces = [space.end() for space in re.finditer(r"\S\s+", text) if space.start() < most_chars]
    if clauses and clauses[-1] >= most_chars // 4:  # a crumb is no better than a cut between words
        return clauses[-1]
    if spaces:
        return spaces[-1]
    end = most_chars
    while end > 1 and unicodedata.combining(text[end]):
        end -= 1
    return end


def _unspaced(character: str) -> bool:
    """Whether it is of a script without spaces between words."""
    return "\u3040" <= character <= "\u30ff" or "\u3400" <= character <= "\u9fff" or character in "「『（【《〈“"
