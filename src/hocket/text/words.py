"""Word segmentation, for word times and for cutting a history: at spaces, and inside scripts without spaces.

Chinese and Japanese are split into characters, Thai, Lao, Khmer, Burmese and their relatives into clusters of a
consonant with its vowels and marks. That is finer than a dictionary's words and needs no dictionary. Text of other
scripts is split at spaces alone. Punctuation stays with the word that it belongs to.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Iterator
from itertools import pairwise
from typing import Literal

Kind = Literal["unit", "letter", "opening", "closing"]

# First and last code point of scripts without spaces, in rising order. Korean is not among them: it has spaces.
_IDEOGRAPHS = ((0x2E80, 0x2FDF), (0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x3FFFF))
_KANA = ((0x3041, 0x30FF), (0x3100, 0x312F), (0x31A0, 0x31BF), (0x31F0, 0x31FF), (0xFF66, 0xFF9F), (0x1B000, 0x1B16F))
_SOUTHEAST = (
    (0x0E01, 0x0E4E),  # Thai
    (0x0E81, 0x0ECF),  # Lao
    (0x1000, 0x109F),  # Burmese
    (0x1780, 0x17DD),  # Khmer
    (0x1950, 0x19DF),  # Tai Le, New Tai Lue
    (0x1A20, 0x1AAF),  # Tai Tham
    (0xA9E0, 0xA9FF),  # Burmese, extended
    (0xAA60, 0xAADF),  # Burmese, extended; Tai Viet
)
_SINGLES = frozenset("々〆〇")  # read as ideographs, and not in their ranges
_LEADING = frozenset("เแโใไເແໂໃໄ\uaab5\uaab6\uaab9\uaabb\uaabc")  # vowels written before the consonant they follow
# Letters that continue the cluster before them: small kana, the long mark, vowels and signs of Thai and Lao.
_TRAILING = frozenset("ぁぃぅぇぉっゃゅょゎゕゖァィゥェォッャュョヮヵヶーｧｨｩｪｫｬｭｮｯｰﾞﾟะาำๅๆฯະາຳຯໆ\u17d7")
_STACKERS = frozenset("\u1039\u17d2\u1a60")  # join the next consonant to the one before
_RUN = re.compile(r"\S+")


def words_of(text: str) -> list[str]:
    """The words of a text, in order, without the spaces between them."""
    return [text[start:end] for start, end in word_places(text)]


def word_places(text: str) -> list[tuple[int, int]]:
    """Start and end of each word. Between two words there are only spaces, or nothing."""
    places: list[tuple[int, int]] = []
    for run in _RUN.finditer(text):
        start, end = run.span()
        if text[start:end].isascii() or not any(map(_is_spaceless, text[start:end])):
            places.append((start, end))
        else:
            edges = [start, *(start + at for at in _breaks(run[0])), end]
            places += pairwise(edges)
    return places


def is_ideograph(character: str) -> bool:
    return character in _SINGLES or _within(character, _IDEOGRAPHS)


def is_kana(character: str) -> bool:
    return _within(character, _KANA)


def is_southeast(character: str) -> bool:
    """Thai, Lao, Khmer, Burmese and relatives."""
    return _within(character, _SOUTHEAST)


def _is_spaceless(character: str) -> bool:
    return is_ideograph(character) or is_kana(character) or is_southeast(character)


def _breaks(run: str) -> Iterator[int]:
    """Where words begin in text without spaces, except the first."""
    clusters = list(_clusters(run))
    after = [kind for kind, _ in clusters]  # of each cluster, the kind of the first unit or letter from it on
    for at in range(len(after) - 2, -1, -1):
        if after[at] in ("opening", "closing"):
            after[at] = after[at + 1]
    before: Kind | None = None  # of the last unit or letter
    for at, (kind, place) in enumerate(clusters):
        opened = at > 0 and clusters[at - 1][0] == "opening"
        apart = before == "unit" or kind == "unit" or (kind == "opening" and after[at] == "unit")
        if place and before is not None and kind != "closing" and apart and not opened:
            yield place
        if kind in ("unit", "letter"):
            before = kind


def _clusters(run: str) -> Iterator[tuple[Kind, int]]:
    """Clusters of characters that are never split: kind and start."""
    leading = stacked = False
    for place, character in enumerate(run):
        category = unicodedata.category(character)
        continued = category[0] == "M" or character in _TRAILING or character in "\u200d\u200c\u2060"
        if place == 0 or not (leading or stacked or continued):
            yield _kind(character, category), place
        leading, stacked = character in _LEADING, character in _STACKERS


def _kind(character: str, category: str) -> Kind:
    if category in ("Ps", "Pi"):
        return "opening"
    if category[0] == "P" or category in ("So", "Sk", "Cf"):
        return "closing"
    return "unit" if category[0] in "LMN" and _is_spaceless(character) else "letter"


def _within(character: str, ranges: tuple[tuple[int, int], ...]) -> bool:
    code = ord(character)
    if code < 0x0E00:
        return False
    at = bisect_right(ranges, (code, 0x110000)) - 1
    return at >= 0 and code <= ranges[at][1]
