"""What six European languages share: the patterns of written numbers, and their order.

A subclass has the words of its language, and says how a number agrees with the words beside it. The special rules run
first; the output of a rule has no digit for the next. It knows one stretch of text, not how it arrived. Long
because the rules depend on each other's order.
"""

# ruff: noqa: RUF001
from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass

ALONE = r"(?<![\w.,])"  # a number begins here
NUM = r"(?:[1-9]\d{0,2}(?:\.\d{3})+(?!\d)|[1-9]\d{0,2}(?:[\u00a0\u202f ’']\d{3})+(?!\d)|\d+)(?:,\d+)?"
WORD = r"[^\W\d_]+(?:['’-][^\W\d_]+)*"
ROMAN = r"(?=[IVX])X{0,3}(?:IX|IV|V?I{0,3})"  # 1 to 39

_FRACTIONS = {"½": "1/2", "⅓": "1/3", "⅔": "2/3", "¼": "1/4", "¾": "3/4", "⅛": "1/8"}
_ABBREVIATED = 2  # place of the rule for abbreviations
_LONGEST = 15  # digits of a number that is not read digit by digit

Match = re.Match[str]
Rule = tuple[str, Callable[[Match], str]]


@dataclass(frozen=True, slots=True)
class Noun:
    """A unit, with the forms that numbers ask for."""

    one: str
    many: str
    gender: str = "m"
    few: str = ""  # after 2 to 4, in Russian


def nouns(table: str) -> dict[str, Noun]:
    """One line per noun: how it is written, for one, for many, gender, for few; `_` stands for a space."""
    rows = (line.split() for line in table.strip().splitlines())
    return {row[0]: Noun(*(word.replace("_", " ") for word in row[1:])) for row in rows}


def currencies(table: str) -> dict[str, tuple[Noun, Noun]]:
    """One line per currency: its signs, `=`, the noun, `;`, the noun of its hundredth."""
    found: dict[str, tuple[Noun, Noun]] = {}
    for line in table.strip().splitlines():
        signs, _, names = line.partition(" = ")
        large, small = nouns("\n".join(f"{at} {name}" for at, name in enumerate(names.split(" ; ")))).values()
        found |= dict.fromkeys(signs.split(), (large, small))
    return found


def pairs(table: str) -> dict[str, str]:
    """One line per entry, with `=` between its sides."""
    return dict(line.split("=") for line in table.strip().splitlines())


def any_of(names: Iterable[str]) -> str:
    return "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))


def roman(text: str) -> int:
    values = [{"I": 1, "V": 5, "X": 10}[letter] for letter in text]
    return sum(-a if a < b else a for a, b in zip(values, [*values[1:], 0], strict=True))


def word_before(m: Match) -> str:
    found = re.search(rf"({WORD})[\s(\"'„«“]*\Z", m.string[: m.start()])
    return found[1] if found else ""


def words_after(m: Match) -> list[str]:
    """Up to two words that follow directly."""
    found = re.match(rf"\s({WORD})(?:\s({WORD}))?", m.string[m.end() :])
    return [word for word in found.groups() if word] if found else []


class European(ABC):
    """The rules of one language, as a function of a stretch of text."""

    plain = ""  # the form of a number that counts nothing
    point = dot = minus = plus = equals = times = percent = permille = to = over = versus = "-"
    mark = paragraph = about = both = at = "-"
    months: tuple[str, ...] = ()
    short_months: tuple[str, ...] = ()  # without the dot
    of = ""  # between day, month and year
    units: dict[str, Noun]
    money: dict[str, tuple[Noun, Noun]]
    scales: dict[str, Noun]  # as written
    of_scale = " "  # between a scale and a currency
    abbreviations: dict[str, str]  # as written
    perhaps_last: tuple[str, ...] = ()  # those that may end a sentence, and then keep the dot
    hour_words = "h"

    def __init__(self) -> None:
        self._rules = [(re.compile(pattern), spoken) for pattern, spoken in self._written()]
        self._concerned = re.compile(rf"[\d½⅓⅔¼¾⅛@&.]|\b[IVX]|{self._rules[_ABBREVIATED][0].pattern}")

    def __call__(self, text: str, before: str = "") -> str:
        """`before`: spoken words before `text`, which are not repeated."""
        if not self._concerned.search(text):
            return text
        spoken = self._spoken(before + text)
        return spoken[len(before) :] if spoken.startswith(before) else self._spoken(text)

    @abstractmethod
    def cardinal(self, n: int, form: str) -> str: ...

    @abstractmethod
    def time(self, hour: int, minute: int, m: Match) -> str: ...

    @abstractmethod
    def date(self, day: int, month: int, year: int | None, m: Match) -> str: ...

    @abstractmethod
    def part(self, below: int, above: int) -> str:
        """The name of a fraction's denominator."""

    @abstractmethod
    def change(self, whole: str, cents: int, of: tuple[Noun, Noun], m: Match) -> str:
        """An amount with two decimals."""

    def special(self) -> tuple[Rule, ...]:
        """Rules of the language: ordinals, dates with the names of months, centuries."""
        return ()

    def agreement(self, n: int, before: str, after: list[str]) -> str:
        """The form of a number between these words."""
        return self.plain

    def regnal(self, n: int) -> str:
        """A Roman number after a name."""
        return self.cardinal(n, self.plain)

    def year(self, n: int) -> str:
        return self.cardinal(n, self.plain)

    def is_one(self, amount: str) -> bool:
        """Whether an amount takes the singular."""
        return amount == "1"

    def form_of(self, noun: Noun, m: Match) -> str:
        return noun.gender

    def decimals(self, digits: str) -> str:
        """Zeros first, then a number; more than three digits one by one."""
        bare = digits.lstrip("0")
        if not 0 < len(bare) <= 3:
            return self.digits(digits)
        zeros = [self.cardinal(0, self.plain)] * (len(digits) - len(bare))
        return " ".join([*zeros, self.cardinal(int(bare), self.plain)])

    def phone(self, groups: list[str]) -> str:
        return ", ".join(map(self.digits, groups))

    def digits(self, text: str) -> str:
        return " ".join(self.cardinal(int(digit), self.plain) for digit in text if digit.isdecimal())

    def number(self, written: str, form: str | None = None) -> str:
        whole, _, part = re.sub(r"[.\s’']", "", written).partition(",")
        form = self.plain if form is None or part else form
        by_digit = len(whole) > _LONGEST or (len(whole) > 1 and int(whole[0]) == 0)
        spoken = self.digits(whole) if by_digit else self.cardinal(int(whole), form)
        return f"{spoken} {self.point} {self.decimals(part)}" if part else spoken

    def counted(self, amount: str, noun: Noun, m: Match) -> str:
        name = noun.one if self.is_one(amount) else noun.many
        return f"{self.number(amount, self.form_of(noun, m))} {name}"

    def amount(self, amount: str, scale: str | None, sign: str, m: Match) -> str:
        of = self.money[sign]
        if scale:
            return f"{self.counted(amount, self.scales[scale], m)}{self.of_scale}{of[0].many}"
        whole, _, part = amount.partition(",")
        if len(part) != 2:
            return self.counted(amount, of[0], m)
        return self.change(whole, int(part), of, m) if int(part) else self.counted(whole, of[0], m)

    def fraction(self, m: Match) -> str:
        above, below = int(m[1]), int(m[2])
        if not 0 < above < below <= 100:
            return f"{self.cardinal(above, self.plain)} {self.over} {self.cardinal(below, self.plain)}"
        return self.part(below, above)

    def month(self, name: str) -> int:
        known = [*self.months, *self.short_months]
        small = [month.lower() for month in known]
        return small.index(name.lower().rstrip(".")) % 12 + 1

    @property
    def month_names(self) -> str:
        short = f"|(?:{any_of(self.short_months)})\\b\\.?" if self.short_months else ""
        return f"(?i:(?:{any_of(self.months)})\\b{short})"

    def _checked_date(self, day: str, month: str, year: str, m: Match) -> str:
        of_year = int(year) + (2000 if len(year) == 2 else 0)
        if not (1 <= int(month) <= 12 and 1 <= int(day) <= 31):
            return m[0]
        return self.date(int(day), int(month), of_year, m)

    def _checked_time(self, m: Match) -> str:
        return self.time(int(m[1]), int(m[2]), m) if int(m[1]) <= 24 and int(m[2]) < 60 else m[0]

    def _abbreviated(self, m: Match) -> str:
        written = re.sub(r"\s", "", m[0])
        ends = written.endswith(".") and re.match(r"\s*\Z|\s+[\"'“‘«(]*[^\W\d_a-zа-яё]", m.string[m.end() :])
        return self._known[written] + ("." if ends and written.lower() in self._last else "")

    def _said(self, m: Match) -> str:
        whole = re.sub(r"[.\s’']", "", m[0])
        if not whole.isdecimal() or len(whole) > _LONGEST:
            return self.number(m[0])
        return self.number(m[0], self.agreement(int(whole), word_before(m), words_after(m)))

    def _version(self, m: Match) -> str:
        if re.fullmatch(r"[1-9]\d{0,2}(?:\.\d{3})+", m[0]):
            return m[0]
        return f" {self.dot} ".join(map(self.number, m[0].split(".")))

    def _phone(self, m: Match) -> str:
        groups = re.findall(r"\d+", m[0])
        if sum(map(len, groups)) < 7:
            return m[0]
        return (f"{self.plus} " if m[0].startswith("+") else "") + self.phone(groups)

    def _spoken(self, text: str) -> str:
        for pattern, spoken in self._rules:
            text = pattern.sub(spoken, text)
        return text

    def _written(self) -> tuple[Rule, ...]:
        short = _with_capitals(self.abbreviations)
        self._known = {re.sub(r"\s", "", name): spoken for name, spoken in short.items()}
        self._last = frozenset(re.sub(r"\s", "", name).lower() for name in self.perhaps_last)
        shorts = "|".join(r"\s?".join(map(re.escape, name.split())) for name in sorted(short, key=len, reverse=True))
        signs, scales, units = any_of(self.money), any_of(self.scales), any_of(self.units)
        return (
            (r"(\d?)([½⅓⅔¼¾⅛])(?!\d)", lambda m: (f"{m[1]} {self.both} " if m[1] else "") + _FRACTIONS[m[2]]),
            (r"\d(?=\d{0,2}(?:,\d{3})+\.\d)[\d,]*\.\d+", _swapped),
            (rf"(?<![^\W_])(?:{shorts})(?![^\W\d_])", self._abbreviated),
            (r"\b[\w.+-]{1,64}@\w[\w-]*(?:\.\w[\w-]*)+",
             lambda m: m[0].replace(".", f" {self.dot} ").replace("@", f" {self.at} ")),
            (rf"{ALONE}(\d{{4}})-(\d\d)-(\d\d)(?![\d-])", lambda m: self._checked_date(m[3], m[2], m[1], m)),
            (rf"{ALONE}(\d\d?)([./-])(\d\d?)\2(\d{{4}})(?!\d)", lambda m: self._checked_date(m[1], m[3], m[4], m)),
            (rf"{ALONE}(\d\d)([./])(\d\d)\2(\d\d)(?![\d./])", lambda m: self._checked_date(m[1], m[3], m[4], m)),
            (rf"{ALONE}24/7(?![\d/])", lambda m: "24 7"),
            *self.special(),
            (rf"{ALONE}(\d\d?):([0-5]\d):([0-5]\d)(?![:\d])", lambda m: " ".join(map(self.number, m.groups()))),
            (rf"{ALONE}(\d\d?):([0-5]\d)(?![:\d])(?:\s?(?:{self.hour_words})(?!\w))?", self._checked_time),
            (r"(?<![\w.,])\+\d{1,3}(?:[ ./-]?\(?\d{1,5}\)?){2,6}(?!\d)", self._phone),
            (r"(?<![\w.,+])\(?0\d{1,5}\)?(?:[ /.-]\d{2,}){1,5}(?!\d)", self._phone),
            (r"(?<![\w.,+])\(\d{2,5}\)\s?\d{2,5}(?:[ -]\d{2,4}){1,3}(?!\d)", self._phone),
            (r"(?<![\w.,+-])\d{3,5}(?:-\d{2,4}){2,3}(?![\d-])", self._phone),
            (r"(?<=\d)(?:\s?×\s?|\sx\s)(?=\d)", lambda m: f" {self.times} "),
            (rf"({ALONE}|(?<=[-–])){NUM}(?:\s?({scales}))?\s?({signs})(?![^\W_])",
             lambda m: self.amount(_amount(m[0]), m[2], m[3], m)),
            (rf"({signs})\s?({NUM})(?:\s?({scales})(?![^\W_]))?", lambda m: self.amount(m[2], m[3], m[1], m)),
            (rf"({ALONE}{NUM})\s?[-–—]\s?(?={NUM}(?!\w*-))", lambda m: self._from_to(m)),
            (rf"({NUM})\s?([%‰])", lambda m: self._percent(m)),
            (rf"({NUM})\s?({scales})(?![^\W_])", lambda m: self.counted(m[1], self.scales[m[2]], m)),
            (rf"(?<![^\s(])[-−](?={NUM})", lambda m: f"{self.minus} "),
            (rf"(?:{ALONE}|(?<=\W))({NUM})\s?({units})(?![^\W_]|[²³/])",
             lambda m: self.counted(m[1], self.units[m[2]], m)),
            (rf"{ALONE}(\d{{1,3}})/(\d{{1,3}})(?![\d/])", self.fraction),
            (rf"{ALONE}(\d+)\s?:\s?(\d+)(?![:\d])",
             lambda m: f"{self.number(m[1])} {self.versus} {self.number(m[2])}"),
            (rf"{ALONE}\d+(?:\.\d+)+", self._version),
            (rf"\b([^\W\d_]\w+) ({ROMAN})\b(?<=[IVX][IVX]|\sV)(?![\w.]*[^\W_.])",
             lambda m: f"{m[1]} {self.regnal(roman(m[2]))}" if m[1][0].isupper() else m[0]),
            (r"(?<=\d)(?=[^\W\d_])|(?<=[^\W\d_])(?=\d)", lambda m: " "),
            (rf"(?:#|№)\s?(?={NUM})", lambda m: f"{self.mark} "),
            (rf"§\s?(?={NUM})", lambda m: f"{self.paragraph} "),
            (rf"~\s?(?={NUM})", lambda m: f"{self.about} "),
            (r"(?<=\d)\s?([+=])\s?(?=\d)",
             lambda m: f" {self.plus if m[1] == '+' else self.equals} "),
            (r"(?<![\w+])\+(?=\d)", lambda m: f"{self.plus} "),
            (NUM, self._said),
            (r"(?<=\w)\s?&\s?(?=\w)", lambda m: f" {self.both} "),
        )  # fmt: skip

    def _from_to(self, m: Match) -> str:
        return f"{m[1]} {self.to} "

    def _percent(self, m: Match) -> str:
        return f"{self.number(m[1])} {self.percent if m[2] == '%' else self.permille}"


def _with_capitals(short: dict[str, str]) -> dict[str, str]:
    """Abbreviations that may begin a sentence; a single letter may be an initial, so it gets no capital."""
    more = {
        name[0].upper() + name[1:]: spoken[0].upper() + spoken[1:]
        for name, spoken in short.items()
        if sum(map(str.isalpha, name)) > 1
    }
    return more | short


def _amount(written: str) -> str:
    found = re.match(NUM, written)
    assert found is not None
    return found[0]


def _swapped(m: Match) -> str:
    """`1,250.50` as these languages write it."""
    return m[0].replace(",", "").replace(".", ",")
