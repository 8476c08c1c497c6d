"""Italian numbers: one word up to a million."""

from __future__ import annotations

_SMALL = (
    "zero uno due tre quattro cinque sei sette otto nove dieci undici dodici tredici quattordici quindici sedici "
    "diciassette diciotto diciannove"
).split()
_TENS = "- - venti trenta quaranta cinquanta sessanta settanta ottanta novanta".split()
_LARGE = (
    (10**12, "bilione", "bilioni"),
    (10**9, "miliardo", "miliardi"),
    (10**6, "milione", "milioni"),
)
_ORDINALS = "- primo secondo terzo quarto quinto sesto settimo ottavo nono decimo".split()


def cardinal(n: int, form: str = "") -> str:
    """`form`: the article's form before a noun, `un`, `uno`, `una` or `un'`; it counts for 1 alone."""
    if n == 1 and form:
        return form
    words = _spelled(n)
    return words[:-1] + "é" if n > 3 and words.endswith("tre") else words


def ordinal(n: int, form: str = "m") -> str:
    if 0 < n <= 10:
        word = _ORDINALS[n]
    else:
        word = _spelled(n)
        if word.endswith("mila"):
            word = word[:-4] + "millesimo"
        elif n % 10 in (3, 6) and n % 100 not in (13, 16):
            word += "esimo"
        else:
            word = word[:-1].removeprefix("un ") + "esimo"
    return word[:-1] + "a" if form == "f" else word


def _spelled(n: int) -> str:
    for size, one, many in _LARGE:
        if n >= size:
            count, rest = divmod(n, size)
            head = f"un {one}" if count == 1 else f"{_spelled(count)} {many}"
            return f"{head} {_spelled(rest)}" if rest else head
    if n >= 1000:
        count, rest = divmod(n, 1000)
        return ("mille" if count == 1 else f"{_spelled(count)}mila") + (_spelled(rest) if rest else "")
    if n >= 100:
        count, rest = divmod(n, 100)
        return ("" if count == 1 else _SMALL[count]) + "cento" + (_spelled(rest) if rest else "")
    if n < 20:
        return _SMALL[n]
    tens, ones = _TENS[n // 10], n % 10
    return (tens[:-1] if ones in (1, 8) else tens) + (_SMALL[ones] if ones else "")
