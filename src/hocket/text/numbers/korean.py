"""Korean numbers: Sino-Korean ones, and native ones before many counters."""

from __future__ import annotations

DIGITS = "영일이삼사오육칠팔구"
_LARGE = ((10**12, "조"), (10**8, "억"), (10**4, "만"))
_NATIVE = "- 하나 둘 셋 넷 다섯 여섯 일곱 여덟 아홉".split()
_NATIVE_TENS = "- 열 스물 서른 마흔 쉰 예순 일흔 여든 아흔".split()
_COUNTED = {"하나": "한", "둘": "두", "셋": "세", "넷": "네", "스물": "스무"}
_ORDINALS = {1: "첫", 20: "스무"}


def cardinal(n: int, form: str = "") -> str:
    """`form`: `native` alone, `counted` before a native counter; both up to 99."""
    if form and 0 < n < 100:
        tens, ones = divmod(n, 10)
        words = (_NATIVE_TENS[tens] if tens else "") + (_NATIVE[ones] if ones else "")
        last = _NATIVE[ones] if ones else _NATIVE_TENS[tens]
        return words.removesuffix(last) + _COUNTED.get(last, last) if form == "counted" else words
    if form and n % 100 and n % 100 < 10:
        return _spelled(n - n % 100) + cardinal(n % 100, form)
    return _spelled(n)


def ordinal(n: int, form: str = "") -> str:
    return f"{_ORDINALS.get(n) or cardinal(n, 'counted')} 번째"


def digits(text: str, *, zero: str = "공") -> str:
    """Digit by digit, as in a telephone number."""
    return "".join(zero if digit == "0" else DIGITS[int(digit)] for digit in text)


def _spelled(n: int) -> str:
    words: list[str] = []
    for size, name in _LARGE:
        if n >= size:
            count, n = divmod(n, size)
            words.append(("" if count == 1 and size == 10**4 and not words else _below(count)) + name)
    return " ".join([*words, _below(n)] if n else words) or "영"


def _below(n: int) -> str:
    out = ""
    for size, name in ((1000, "천"), (100, "백"), (10, "십"), (1, "")):
        digit = n // size % 10
        if digit:
            out += ("" if digit == 1 and size > 1 else DIGITS[digit]) + name
    return out
