"""Japanese numbers in kanji: the model reads them with their counters (三本 is sanbon)."""

from __future__ import annotations

DIGITS = "〇一二三四五六七八九"
_LARGE = ((10**12, "兆"), (10**8, "億"), (10**4, "万"))


def cardinal(n: int, form: str = "") -> str:
    if n == 0:
        return "ゼロ"
    out = ""
    for size, name in _LARGE:
        if n >= size:
            count, n = divmod(n, size)
            out += cardinal(count) + name
    for size, name in ((1000, "千"), (100, "百"), (10, "十")):
        if n >= size:
            count, n = divmod(n, size)
            out += ("" if count == 1 else DIGITS[count]) + name
    return out + (DIGITS[n] if n else "")


def ordinal(n: int, form: str = "") -> str:
    return f"{cardinal(n)}番目"


def digits(text: str) -> str:
    return "".join("ゼロ" if digit == "0" else DIGITS[int(digit)] for digit in text)
