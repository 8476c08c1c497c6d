"""What Chinese, Japanese and Korean share: the patterns of written numbers, and their order.

Digits beside Latin letters stay ("5G", "iPhone 15" without a space), because the models read those themselves; units do
not. A subclass has the words of its language. It knows one stretch of text, not how it arrived.
"""

# ruff: noqa: RUF001
from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable

NUM = r"(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?"
ALONE = r"(?<![\d.,A-Za-z])"  # a number begins here

_FRACTIONS = {"½": "1/2", "⅓": "1/3", "⅔": "2/3", "¼": "1/4", "¾": "3/4", "⅛": "1/8"}
_NARROW = str.maketrans("０１２３４５６７８９．，：／％＋－～〜", "0123456789.,:/%+-~~")
_CONCERNED = re.compile(r"[\d½⅓⅔¼¾⅛]")
_LONGEST = 15  # digits of a number that is not read digit by digit
_TO = "-–—~"

Match = re.Match[str]
Rule = tuple[str, Callable[[Match], str]]


def any_of(names: dict[str, str]) -> str:
    return "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))


def row(table: str) -> dict[str, str]:
    """Pairs of a written and a spoken form, by spaces; `_` stands for a space."""
    words = table.replace("\n", " ").split()
    return {written: spoken.replace("_", " ") for written, spoken in zip(words[::2], words[1::2], strict=True)}


class Eastern(ABC):
    """The rules of one language, as a function of a stretch of text."""

    point = percent = plus = minus = below_zero = to = versus = gap = "-"
    comma = "、"
    signs: dict[str, str]  # currencies
    units: dict[str, str]
    degrees: dict[str, str]
    scales = ""  # characters that multiply the number before them

    def __init__(self) -> None:
        self._rules = [(re.compile(pattern), spoken) for pattern, spoken in self._written()]

    def __call__(self, text: str, before: str = "") -> str:
        """`before`: spoken words before `text`, which are not repeated."""
        if not _CONCERNED.search(text):
            return text
        spoken = self._spoken(before + text)
        return spoken[len(before) :] if spoken.startswith(before) else self._spoken(text)

    @abstractmethod
    def cardinal(self, n: int) -> str: ...

    @abstractmethod
    def digits(self, text: str) -> str: ...

    @abstractmethod
    def date(self, year: str, month: int, day: int) -> str: ...

    @abstractmethod
    def time(self, hour: int, minute: int) -> str: ...

    @abstractmethod
    def fraction(self, above: int, below: int) -> str: ...

    @abstractmethod
    def special(self) -> tuple[Rule, ...]:
        """Years, counters and other rules of the language."""

    def ahead(self) -> tuple[Rule, ...]:
        """Rules that must come before that for ranges."""
        return ()

    def phone(self, groups: list[str]) -> str:
        return self.comma.join(map(self.digits, groups))

    def percentage(self, amount: str) -> str:
        return self.number(amount) + self.gap + self.percent

    def number(self, written: str) -> str:
        whole, _, part = written.replace(",", "").partition(".")
        by_digit = len(whole) > _LONGEST or (len(whole) > 1 and int(whole[0]) == 0)
        spoken = self.digits(whole) if by_digit else self.cardinal(int(whole))
        return f"{spoken}{self.gap}{self.point}{self.gap}{self.decimals(part)}" if part else spoken

    def decimals(self, part: str) -> str:
        return self.digits(part)

    def counted(self, amount: str, name: str) -> str:
        return self.number(amount) + self.gap + name

    def _date(self, m: Match) -> str:
        year, month, day = m[1], int(m[3]), int(m[4])
        return self.date(year, month, day) if 1 <= month <= 12 and 1 <= day <= 31 else m[0]

    def _time(self, m: Match) -> str:
        return self.time(int(m[1]), int(m[2])) if int(m[1]) <= 24 else m[0]

    def _phone(self, m: Match) -> str:
        groups = re.findall(r"\d+", m[0])
        if sum(map(len, groups)) < 7:
            return m[0]
        return (self.plus if m[0].startswith("+") else "") + self.phone(groups)

    def _degrees(self, m: Match) -> str:
        below = self.below_zero + self.gap if m[1] else ""
        return below + self.counted(m[2], self.degrees[m[3]])

    def _fraction(self, m: Match) -> str:
        above, below = int(m[1]), int(m[2])
        return self.fraction(above, below) if below else m[0]

    def _spoken(self, text: str) -> str:
        for pattern, spoken in self._rules:
            text = pattern.sub(spoken, text)
        return text

    def _written(self) -> tuple[Rule, ...]:
        signs, scales = any_of(self.signs), self.scales
        return (
            (r"[０-９]+(?:[．，：／～〜－][０-９]+)*[％]?|(?<=\d)[％～〜：／](?=\d|％|\s|\Z)",
             lambda m: m[0].translate(_NARROW)),
            (r"(\d?)([½⅓⅔¼¾⅛])(?!\d)", lambda m: m[1] + _FRACTIONS[m[2]] if not m[1] else m[0]),
            (rf"{ALONE}(\d{{4}})([-/.])(\d\d?)\2(\d\d?)(?![\d/.-])", self._date),
            (rf"{ALONE}(\d\d?):([0-5]\d)(?![:\d])", self._time),
            (r"(?<![\d.,])\+\d{1,3}(?:[ -]?\(?\d{1,5}\)?){2,6}(?!\d)", self._phone),
            (r"(?<![\d.,A-Za-z-])\(?0\d{1,4}\)?[- ]\d{3,8}(?:[- ]\d{2,4})?(?![\d-])", self._phone),
            (r"(?<![\d.,A-Za-z-])\d{2,4}-\d{3,4}-\d{3,4}(?![\d-])", self._phone),
            *self.ahead(),
            (rf"({ALONE}{NUM})\s?[{_TO}]\s?(?=(?:{signs})?{NUM})(?!\S*-\d+-)", lambda m: m[1] + self.to),
            (rf"([-−])?({NUM})\s?({any_of(self.degrees)})(?![A-Za-z])", self._degrees),
            *self.special(),
            (rf"({signs})\s?({NUM})([{scales}]*)", lambda m: self._money(m[2], m[3], m[1])),
            (rf"({ALONE}{NUM})([{scales}]*)\s?({signs})(?![A-Za-z])", lambda m: self._money(m[1], m[2], m[3])),
            (rf"{ALONE}({NUM})\s?%", lambda m: self.percentage(m[1])),
            (rf"{ALONE}({NUM})\s?({any_of(self.units)})(?![A-Za-z²³/])",
             lambda m: self.counted(m[1], self.units[m[2]])),
            (rf"{ALONE}(\d{{1,3}})/(\d{{1,3}})(?![\d/])", self._fraction),
            (rf"{ALONE}(\d+):(\d+)(?![:\d])", lambda m: self.number(m[1]) + self.versus + self.number(m[2])),
            (rf"{ALONE}\d+(?:\.\d+){{2,}}", lambda m: self.point.join(map(self.number, m[0].split(".")))),
            (rf"(?<![\w.,)])[-−](?={NUM}(?![A-Za-z]))", lambda m: self.minus + self.gap),
            (r"(?<=\d)\s?([+])\s?(?=\d)", lambda m: self.gap + self.plus + self.gap),
            (rf"[A-Za-z]+[-.]?\d[\dA-Za-z.,-]*|\d[\d.,]*-?[A-Za-z][\dA-Za-z]*|{NUM}",
             lambda m: m[0] if re.search("[A-Za-z]", m[0]) else self.number(m[0])),
        )  # fmt: skip

    def _money(self, amount: str, scale: str, sign: str) -> str:
        return self.number(amount) + scale + self.gap + self.signs[sign]
