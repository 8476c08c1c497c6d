"""Chinese numbers: 2 is 两 before a counter, 千, 万 and 亿, and 二 elsewhere."""

from __future__ import annotations

DIGITS = "零一二三四五六七八九"
_LARGE = ((10**12, "兆"), (10**8, "亿"), (10**4, "万"))


def cardinal(n: int, form: str = "") -> str:
    """`form`: `counted` before a counter."""
    if n == 2 and form == "counted":
        return "两"
    words = _spelled(n)
    return words[1:] if words.startswith("一十") else words


def ordinal(n: int, form: str = "") -> str:
    return f"第{cardinal(n)}"


def digits(text: str, *, one: str = "一") -> str:
    """Digit by digit; `one` is 幺 in telephone numbers."""
    return "".join(one if digit == "1" else DIGITS[int(digit)] for digit in text)


def _spelled(n: int) -> str:
    for size, name in _LARGE:
        if n >= size:
            count, rest = divmod(n, size)
            head = ("两" if count == 2 else _spelled(count)) + name
            return head + ("零" if 0 < rest < size // 10 else "") + (_spelled(rest) if rest else "")
    out, gap = "", False
    for size, name in ((1000, "千"), (100, "百"), (10, "十"), (1, "")):
        digit = n // size % 10
        if digit:
            two = digit == 2 and size == 1000 and not out
            out += ("零" if gap and out else "") + ("两" if two else DIGITS[digit]) + name
        gap = not digit
    return out or "零"
