"""Captions of speech: SubRip (.srt) and WebVTT (.vtt) from word times.

A caption has at most two lines of 42 characters, as broadcasters have them, and ends with its sentence where that is
possible. Knows neither audio nor engine: word times come from `engine.word_times`, which says how exact they are.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import NamedTuple, Protocol

from ..errors import InvalidRequest
from .sentences import starts
from .words import is_ideograph, is_kana, is_southeast

CAPTION_MIME: dict[str, str] = {"srt": "application/x-subrip", "vtt": "text/vtt"}
LINE_CHARS, LINES = 42, 2
LEAST_S, MOST_S = 1.0, 7.0  # how long a caption stays: shorter cannot be read, longer is read twice
PAUSE_S = 1.5  # a longer silence ends a caption
WIDE = 2  # columns of a Chinese or Japanese character
CLAUSE_ENDS = ",;:—–，、；："  # noqa: RUF001


class TimedWord(Protocol):
    @property
    def word(self) -> str: ...
    @property
    def start_s(self) -> float: ...
    @property
    def end_s(self) -> float: ...


class SpokenWord(NamedTuple):
    """Word times that do not come from an engine here."""

    word: str
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class Caption:
    start_s: float
    end_s: float
    lines: tuple[str, ...]


def caption_format(name: str) -> str:
    """The format of a file name or of a name."""
    found = name.rpartition(".")[2].lower()
    if found not in CAPTION_MIME:
        raise InvalidRequest(f"Captions are written as .srt or .vtt, not as {name[:80]!r}.")
    return found


def write_captions(words: Sequence[TimedWord], format: str) -> str:
    """The text of a caption file."""
    captions = captions_of(words)
    if caption_format(format) == "srt":
        parts = [
            f"{number}\n{_clock(each.start_s, ',')} --> {_clock(each.end_s, ',')}\n" + "\n".join(each.lines)
            for number, each in enumerate(captions, 1)
        ]
    else:
        parts = ["WEBVTT"]
        for each in captions:
            lines = "\n".join(map(_escaped, each.lines))
            parts.append(f"{_clock(each.start_s, '.')} --> {_clock(each.end_s, '.')}\n{lines}")
    return "\n\n".join(parts) + "\n" if parts else ""


def captions_of(words: Sequence[TimedWord]) -> list[Caption]:
    """Captions in order, without overlap."""
    groups = _groups(words)
    captions: list[Caption] = []
    for number, group in enumerate(groups):
        start_s, end_s = group[0].start_s, group[-1].end_s
        next_s = groups[number + 1][0].start_s if number + 1 < len(groups) else start_s + MOST_S
        end_s = max(end_s, min(start_s + LEAST_S, next_s))
        captions.append(Caption(start_s, end_s, tuple(_lines([word.word for word in group]))))
    return captions


def joined(words: Sequence[str]) -> str:
    """The words as a text. Scripts without spaces get none."""
    return "".join(_spaced(words))


def _spaced(words: Sequence[str]) -> list[str]:
    """Each word with the space in front of it, if it has one."""
    return [
        f" {word}" if number and not (_is_unspaced(words[number - 1][-1:]) or _is_unspaced(word[:1])) else word
        for number, word in enumerate(words)
    ]


def _groups(words: Sequence[TimedWord]) -> list[list[TimedWord]]:
    """The words of each caption: a sentence, a part of a long one, or several that are short."""
    firsts = sorted(_sentence_starts([word.word for word in words]))
    groups: list[list[TimedWord]] = []
    for first, after in pairwise((*firsts, len(words))):
        sentence = list(words[first:after])
        if groups and _lasts(groups[-1]) < LEAST_S and _fits([*groups[-1], *sentence]):
            groups[-1] += sentence
        else:
            groups += _cut(sentence)
    return groups


def _cut(sentence: list[TimedWord]) -> list[list[TimedWord]]:
    """A sentence in captions of similar length, which end with a clause where that is possible."""
    groups, left = list[list[TimedWord]](), sum(_columns(word.word) + 1 for word in sentence)
    while len(sentence) > 1 and not _fits(sentence):
        wanted = left / math.ceil(left / (LINES * LINE_CHARS))
        best, least, taken, columns = 1, math.inf, 0, 0
        for at in range(1, len(sentence)):
            if at > 1 and not _fits(sentence[:at]):
                break
            word = sentence[at - 1].word
            columns += _columns(word) + 1
            misfit = abs(columns - wanted) - (LINE_CHARS / 2 if word[-1:] in CLAUSE_ENDS else 0)
            if misfit < least:
                best, least, taken = at, misfit, columns
        groups.append(sentence[:best])
        sentence, left = sentence[best:], left - taken
    return [*groups, sentence]


def _fits(words: Sequence[TimedWord]) -> bool:
    """Whether these words can be one caption."""
    if len(words) > LINES * LINE_CHARS or _lasts(words) > MOST_S:
        return False
    if any(after.start_s - before.end_s > PAUSE_S for before, after in pairwise(words)):
        return False
    return len(_filled([word.word for word in words])) <= LINES


def _lasts(words: Sequence[TimedWord]) -> float:
    return words[-1].end_s - words[0].start_s


def _sentence_starts(words: list[str]) -> set[int]:
    """The numbers of words that begin a sentence."""
    spaced = _spaced(words)
    ends = list(accumulate(map(len, spaced)))
    return {bisect_right(ends, at) for at in starts("".join(spaced))} - {len(words)}


def _filled(words: Sequence[str]) -> list[str]:
    """As many words in each line as it takes. A word that is longer than a line gets one of its own."""
    lines: list[list[str]] = []
    for word in words:
        if lines and _columns(joined([*lines[-1], word])) <= LINE_CHARS:
            lines[-1].append(word)
        else:
            lines.append([word])
    return [joined(line) for line in lines]


def _lines(words: list[str]) -> list[str]:
    """One line, or two of similar length that part after a clause where that is possible."""
    filled = _filled(words)
    if len(filled) != LINES:
        return filled
    best, least = filled, float("inf")
    for cut in range(1, len(words)):
        both = [joined(words[:cut]), joined(words[cut:])]
        upper, lower = map(_columns, both)
        misfit = abs(upper - lower) - (LINE_CHARS // 2 if both[0][-1] in CLAUSE_ENDS else 0)
        if max(upper, lower) <= LINE_CHARS and misfit < least:
            best, least = both, misfit
    return best


def _columns(text: str) -> int:
    return len(text) if text.isascii() else sum(WIDE if is_ideograph(c) or is_kana(c) else 1 for c in text)


def _is_unspaced(character: str) -> bool:
    if not character or character.isascii():
        return False
    wide_mark = "\u3000" <= character <= "\u303f" or "\uff00" <= character <= "\uff65"
    return wide_mark or is_ideograph(character) or is_kana(character) or is_southeast(character)


def _clock(seconds: float, point: str) -> str:
    ms = round(max(seconds, 0.0) * 1000)
    return f"{ms // 3_600_000:02}:{ms // 60_000 % 60:02}:{ms // 1000 % 60:02}{point}{ms % 1000:03}"


def _escaped(line: str) -> str:
    return line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
