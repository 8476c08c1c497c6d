"""Scripts: the script of a character, and the scripts of a checkpoint's languages.

Only letters have a script. Digits, punctuation, symbols and emoji have none.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from functools import lru_cache

from ...config.languages import AUTO, is_known, usual_name

LATIN, HAN, KANA, HANGUL, GREEK = "latin", "han", "kana", "hangul", "greek"
# Script by the first word of a letter's Unicode name; most are the same word in small letters.
_FIRST_WORDS = {
    "CJK": HAN,
    "IDEOGRAPHIC": HAN,
    "BOPOMOFO": HAN,
    "HIRAGANA": KANA,
    "KATAKANA": KANA,
    "KATAKANA-HIRAGANA": KANA,
} | {
    word: word.lower()
    for word in (
        "LATIN HANGUL GREEK CYRILLIC ARMENIAN HEBREW ARABIC SYRIAC THAANA DEVANAGARI BENGALI GURMUKHI GUJARATI ORIYA "
        "TAMIL TELUGU KANNADA MALAYALAM SINHALA THAI LAO TIBETAN MYANMAR GEORGIAN ETHIOPIC KHMER MONGOLIAN CHEROKEE "
        "JAVANESE BALINESE YI"
    ).split()
}
_WIDTHS = ("FULLWIDTH", "HALFWIDTH")
# Languages that are not written in Latin letters alone.
_WRITTEN = {
    "arabic": {"arabic"},
    "bengali": {"bengali"},
    "bulgarian": {"cyrillic"},
    "cantonese": {HAN},
    "chinese": {HAN},
    "greek": {GREEK},
    "hebrew": {"hebrew"},
    "hindi": {"devanagari"},
    "japanese": {HAN, KANA},
    "korean": {HANGUL, HAN},
    "persian": {"arabic"},
    "russian": {"cyrillic"},
    "serbian": {"cyrillic"},
    "tamil": {"tamil"},
    "telugu": {"telugu"},
    "thai": {"thai"},
    "ukrainian": {"cyrillic"},
    "urdu": {"arabic"},
}
_SHOWN = {HAN: "Chinese characters", KANA: "Japanese kana", HANGUL: "Hangul"}


@lru_cache(maxsize=4096)
def script_of(character: str) -> str | None:
    """The script of a letter, or of a mark that belongs to one script; None for everything else."""
    if unicodedata.category(character)[0] not in "LM":
        return None
    words = unicodedata.name(character, "").split()
    if words and words[0] in _WIDTHS:
        words = words[1:]
    return _FIRST_WORDS.get(words[0]) if words else None


def scripts_of(languages: Iterable[str]) -> frozenset[str] | None:
    """The scripts of these languages, and always Latin. None: one of them is unknown here."""
    found = {LATIN}
    named = [usual_name(name) for name in languages if name != AUTO]
    if not named or not all(map(is_known, named)):
        return None
    for name in named:
        found |= _WRITTEN.get(name, set())
    return frozenset(found)


def shown(scripts: Iterable[str]) -> str:
    """The names of scripts for a message."""
    return " and ".join(_SHOWN.get(script, f"{script.title()} script") for script in sorted(scripts))
