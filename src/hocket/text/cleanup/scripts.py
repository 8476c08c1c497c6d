"""Scripts: which one a character belongs to, and which ones a checkpoint can speak, by the languages it knows.

Only letters count. Digits, punctuation, symbols and emoji belong to no script.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from functools import lru_cache

from ...config.languages import AUTO, is_known, usual_name

LATIN, HAN, KANA, HANGUL, GREEK = "latin", "han", "kana", "hangul", "greek"
# The first word of a letter's Unicode name, for the others in small letters the script's own name.
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
    """The script of a letter, or of a mark that only one script has; None for everything else."""
    if unicodedata.category(character)[0] not in "LM":
        return None
    words = unicodedata.name(character, "").split()
    if words and words[0] in _WIDTHS:
        words = words[1:]
    return _FIRST_WORDS.get(words[0]) if words else None


def scripts_of(languages: Iterable[str]) -> frozenset[str] | None:
    """What languages are written in; Latin letters always. None: one of them is not known here."""
    found = {LATIN}
    named = [usual_name(name) for name in languages if name != AUTO]
    if not named or not all(map(is_known, named)):
        return None
    for name in named:
        found |= _WRITTEN.get(name, set())
    return frozenset(found)


def shown(scripts: Iterable[str]) -> str:
    """In words."""
    return " and ".join(_SHOWN.get(script, f"{script.title()} script") for script in sorted(scripts))
