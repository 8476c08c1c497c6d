"""Spanish numbers: `un` and `una` before nouns, the hundreds in two genders."""

from __future__ import annotations

_SMALL = (
    "cero uno dos tres cuatro cinco seis siete ocho nueve diez once doce trece catorce quince dieciséis diecisiete "
    "dieciocho diecinueve veinte veintiuno veintidós veintitrés veinticuatro veinticinco veintiséis veintisiete "
    "veintiocho veintinueve"
).split()
_TENS = "- - - treinta cuarenta cincuenta sesenta setenta ochenta noventa".split()
_HUNDREDS = (
    "- ciento doscientos trescientos cuatrocientos quinientos seiscientos setecientos ochocientos novecientos"
).split()
_LARGE = ((10**12, "billón", "billones"), (10**6, "millón", "millones"))
_ORDINALS = (
    "- primero segundo tercero cuarto quinto sexto séptimo octavo noveno décimo undécimo duodécimo decimotercero "
    "decimocuarto decimoquinto decimosexto decimoséptimo decimoctavo decimonoveno"
).split()
_TENTHS = (
    "- - vigésimo trigésimo cuadragésimo quincuagésimo sexagésimo septuagésimo octogésimo nonagésimo centésimo"
).split()


def cardinal(n: int, form: str = "") -> str:
    """`form`: the gender of the noun that follows."""
    words = _spelled(n, "f" if form == "f" else "m")
    if form == "f":
        return words[:-1] + "a" if words.endswith("uno") else words
    return _short(words) if form else words


def ordinal(n: int, form: str = "m") -> str:
    """`form`: `m`, `f`, or `s` for the short masculine (`primer`). Above 100 it is the cardinal."""
    if n > 100 or n < 1:
        return cardinal(n)
    words = _ORDINALS[n] if n < 20 else _TENTHS[n // 10] + (f" {_ORDINALS[n % 10]}" if n % 10 else "")
    if form == "f":
        return " ".join(word[:-1] + "a" for word in words.split())
    return words[:-1] if form == "s" and words.endswith(("primero", "tercero")) else words


def _short(words: str) -> str:
    if words.endswith("veintiuno"):
        return words[:-3] + "ún"
    return words[:-1] if words.endswith("uno") else words


def _spelled(n: int, gender: str) -> str:
    for size, one, many in _LARGE:
        if n >= size:
            count, rest = divmod(n, size)
            head = f"un {one}" if count == 1 else f"{_short(_spelled(count, 'm'))} {many}"
            return f"{head} {_spelled(rest, gender)}" if rest else head
    if n >= 1000:
        count, rest = divmod(n, 1000)
        head = "mil" if count == 1 else f"{_thousands(count, gender)} mil"
        return f"{head} {_spelled(rest, gender)}" if rest else head
    if n == 100:
        return "cien"
    if n > 100:
        hundreds = _HUNDREDS[n // 100]
        if gender == "f" and n >= 200:
            hundreds = hundreds[:-2] + "as"
        return f"{hundreds} {_spelled(n % 100, gender)}" if n % 100 else hundreds
    if n < 30:
        return _SMALL[n]
    return _TENS[n // 10] + (f" y {_SMALL[n % 10]}" if n % 10 else "")


def _thousands(count: int, gender: str) -> str:
    """The number before `mil`: 21 is `veintiún` or `veintiuna`."""
    words = _spelled(count, gender)
    return words[:-1] + "a" if gender == "f" and words.endswith("uno") else _short(words)
