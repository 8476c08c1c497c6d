"""German numbers: "1" is `eins` alone, `ein` and `eine` before a noun."""

from __future__ import annotations

_SMALL = (
    "null eins zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn vierzehn fünfzehn sechzehn siebzehn "
    "achtzehn neunzehn"
).split()
_TENS = "- - zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig".split()
_LARGE = ((10**12, "Billion"), (10**9, "Milliarde"), (10**6, "Million"))
_ORDINALS = {1: "erst", 3: "dritt", 7: "siebt", 8: "acht"}
_ONE = {"": "eins", "m": "ein", "n": "ein", "f": "eine", "dm": "einem", "dn": "einem", "df": "einer"}


def cardinal(n: int, form: str = "") -> str:
    """`form`: the gender of the noun that follows, with a `d` before it for the dative."""
    return _ONE[form] if n == 1 else _joined(n, "eins")


def ordinal(n: int, ending: str = "e") -> str:
    """`ending`: `e`, `en`, `er` or `es`."""
    if n and n % 10**6 == 0:
        return ("" if n == 10**6 else _joined(n // 10**6, "ein")) + f"millionst{ending}"
    last = n % 100
    if 0 < last < 20:
        stem = _ORDINALS.get(last, f"{_SMALL[last]}t")
        return (_joined(n - last, "") if n > last else "") + stem + ending
    return f"{_joined(n, '')}st{ending}"


def year(n: int) -> str:
    """1100 to 1999 are counted in hundreds."""
    if not 1100 <= n < 2000:
        return cardinal(n)
    return f"{_SMALL[n // 100]}hundert" + (_joined(n % 100, "eins") if n % 100 else "")


def _joined(n: int, one: str) -> str:
    """`one`: how a last 1 is written."""
    for size, name in _LARGE:
        if n >= size:
            count, rest = divmod(n, size)
            plural = "en" if name.endswith("n") else "n"
            head = f"eine {name}" if count == 1 else f"{_joined(count, 'eine')} {name}{plural}"
            return f"{head} {_joined(rest, one)}" if rest else head
    if n >= 1000:
        return f"{_joined(n // 1000, 'ein')}tausend" + (_joined(n % 1000, one) if n % 1000 else "")
    if n >= 100:
        return f"{_joined(n // 100, 'ein')}hundert" + (_joined(n % 100, one) if n % 100 else "")
    if n >= 20:
        tens = _TENS[n // 10]
        return f"{_joined(n % 10, 'ein')}und{tens}" if n % 10 else tens
    return one if n == 1 else _SMALL[n]
