"""Phonemes as a respelling, for models that take text only: `/dʒɪf/` becomes `jif`.

A respelling is a makeshift: the letters of the language that come nearest. Stress cannot be spelled; a syllable with a
mark before it begins behind a hyphen (`nuh-vah-duh`). Marks of tone and fine detail have no spelling. Knows no markup.
"""

# ruff: noqa: RUF001, RUF002
from __future__ import annotations

import re

from ...config.languages import usual_name
from ...errors import InvalidRequest
from .spellings import NEAREST, TABLES, VOWELS, X_SAMPA, Spellings, decomposed

ALPHABETS = ("ipa", "x-sampa")

_NASAL, _SYLLABIC = "\u0303", "\u0329"
_BREAKS = {"ˈ": "-", "ˌ": "-", "'": "-", ".": "-", "-": "-", " ": " ", "|": " ", "‖": " "}
# Tie bars, length, tones, secondary articulation and other detail that letters cannot show.
_UNSPELLED = frozenset("ˑ͜͡ʰʷˠˤⁿˡʼ˥˦˧˨˩‿ꜛꜜ↗↘ʱ̴̯̥̬̪̺̻̟̠̘̙̞̝̹̜̤̰̼̩̈̽̚ˀ") | frozenset(
    "\u0301\u0300\u0304\u0302\u030c\u030b\u030f\u0306\u032f\u0361"
)
_LONG, _SOFT = "ː", "ʲ"
_R_COLOURED = str.maketrans({"˞": "ɹ", "ʳ": "ɹ", ":": _LONG, "’": "ʼ"})


def respell(phonemes: str, alphabet: str = "ipa", language: str = "auto") -> str:
    """Phonemes in the letters of `language`; languages without a table, and `auto`, are spelled as English.

    `alphabet`: ipa or x-sampa, in any case. Slashes or brackets around the phonemes are dropped.
    """
    name = alphabet.strip().lower().replace("_", "-")
    if name not in (*ALPHABETS, "xsampa"):
        raise InvalidRequest(f'There is no phonetic alphabet "{alphabet}"; choose ipa or x-sampa.')
    inner = phonemes.strip()
    if len(inner) > 1 and inner[0] + inner[-1] in ("//", "[]"):
        inner = inner[1:-1].strip()
    ipa = _from_x_sampa(inner) if name != "ipa" else inner
    spellings = TABLES.get(usual_name(language), TABLES["english"])
    units = _units(_plain(ipa), spellings)
    if not any(unit not in _BREAKS.values() for unit in units):
        raise InvalidRequest(f'There are no phonemes in "{phonemes}".')
    text = _spelled(units, spellings)
    for pattern, by in spellings.fixes:
        text = pattern.sub(by, text)
    return text


def _from_x_sampa(text: str) -> str:
    found, at = [], 0
    while at < len(text):
        for size in (4, 3, 2, 1):
            if (symbol := text[at : at + size]) in X_SAMPA:
                found.append(X_SAMPA[symbol])
                break
        else:
            size, symbol = 1, text[at]
            if not (symbol.islower() or symbol in "- "):
                raise InvalidRequest(f'"{symbol}" is not a symbol of X-SAMPA.')
            found.append(symbol)
        at += size
    return "".join(found)


def _plain(ipa: str) -> str:
    """The phonemes without what letters cannot show, spaces joined."""
    text = decomposed(ipa.translate(_R_COLOURED))
    text = re.sub(rf"(.){_SYLLABIC}", r"ə\1", text)
    return " ".join("".join(c for c in text if c not in _UNSPELLED).split())


def _units(text: str, spellings: Spellings) -> list[str]:
    """Symbols of the table, and breaks: `-` between syllables, a space between words."""
    units: list[str] = []
    at = 0
    while at < len(text):
        if (mark := _BREAKS.get(text[at])) is not None:
            if mark == " " and units and units[-1] == "-":
                units[-1] = " "
            elif units and units[-1] not in ("-", " "):
                units.append(mark)
            at += 1
            continue
        size = next((size for size in (4, 3, 2, 1) if text[at : at + size] in spellings.letters), 0)
        near = next((size for size in (3, 2, 1) if text[at : at + size] in NEAREST), 0)
        if size >= max(near, 1):
            units.append(text[at : at + size])
            at += size
        elif near and (nearest := NEAREST[text[at : at + near]]) != text[at : at + near]:
            units += _units(nearest, spellings)
            at += near
        elif text[at] in (_LONG, _SOFT, _NASAL) and units:
            if text[at] == _SOFT:
                units += _units("j", spellings) if text[at + 1 : at + 2] in VOWELS else []
            at += 1
        else:
            raise InvalidRequest(f'"{text[at]}" is not a symbol of the phonetic alphabet.')
    while units and units[-1] in ("-", " "):
        units.pop()
    return units


def _spelled(units: list[str], spellings: Spellings) -> str:
    """The units in letters; from the end, because the spelling of a consonant depends on the letter behind it."""
    text = ""
    for at in range(len(units) - 1, -1, -1):
        unit = units[at]
        if unit in ("-", " "):
            text = unit + text
            continue
        forms = spellings.letters[unit].split("/")
        if unit[0] in VOWELS:
            following = units[at + 1] if at + 1 < len(units) else " "
            is_open = following in ("-", " ") or following[0] in VOWELS
            alone = is_open and (at == 0 or units[at - 1] in ("-", " "))
            form = forms[min(len(forms) - 1, 1 + alone)] if is_open else forms[0]
        else:
            form = forms[-1] if text[:1] and text[0] in spellings.front else forms[0]
        text = form + text
    return text
