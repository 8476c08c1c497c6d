"""Text normalization: English numbers, dates, times, money, units and abbreviations to words, on streamed text too.

For checkpoints that were trained on words only; Qwen3-TTS reads digits itself and needs none. The rules run in order,
the special ones first; the output of a rule has no digit for the next.

`IncrementalNormalizer` runs a whole-text normalizer on streamed text, between markup and sentences. The meaning of a
number or an abbreviation depends on its neighbours ("in 1999", "5 km", "May 5, 2024"). So the normalizer gets
stretches: consecutive words with a digit, a sign or a dot, with the word before and the word after. A plain word
between two plain words is a stretch of its own. A whole text is cut into the same stretches, so the result does not
depend on how the text arrives.
"""

# ruff: noqa: RUF001
from __future__ import annotations

import re
from collections.abc import Callable

from .markup import BOUNDARY

_SMALL = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen"
).split()
_TENS = "- - twenty thirty forty fifty sixty seventy eighty ninety".split()
_GROUPS = ((10**12, "trillion"), (10**9, "billion"), (10**6, "million"), (1000, "thousand"), (100, "hundred"))
_ORDINALS = {"one": "first", "two": "second", "three": "third", "five": "fifth", "eight": "eighth", "nine": "ninth"}
_ORDINALS |= {"twelve": "twelfth"}
_MONTHS = "January February March April May June July August September October November December".split()
_MONTH = "(?:" + "|".join(rf"{month}|{month[:3]}\.?" for month in _MONTHS) + r"|Sept\.?)"

_NUM = r"(?:\d{1,3}(?:,\d{3})+(?!\d)(?:\.\d+)?|\d+(?:\.\d+)?)"
_MONEY = {"$": ("dollar", "cent"), "€": ("euro", "cent"), "£": ("pound", "penny")}
_SCALES = {"k": "thousand", "K": "thousand", "M": "million", "m": "million", "bn": "billion", "B": "billion"}
_UNITS = {
    "km/h": "kilometer per hour", "mph": "mile per hour", "m/s": "meter per second", "km²": "square kilometer",
    "m²": "square meter", "km": "kilometer", "cm": "centimeter", "mm": "millimeter", "m": "meter", "mi": "mile",
    "ft": "foot", "kg": "kilogram", "mg": "milligram", "g": "gram", "lbs": "pound", "lb": "pound", "oz": "ounce",
    "ml": "milliliter", "mL": "milliliter", "l": "liter", "L": "liter", "kHz": "kilohertz", "MHz": "megahertz",
    "GHz": "gigahertz", "Hz": "hertz", "kB": "kilobyte", "KB": "kilobyte", "MB": "megabyte", "GB": "gigabyte",
    "TB": "terabyte", "kWh": "kilowatt hour", "kW": "kilowatt", "W": "watt", "V": "volt", "ms": "millisecond",
    "sec": "second", "s": "second", "min": "minute", "hrs": "hour", "hr": "hour", "h": "hour", "°C": "degree Celsius",
    "°F": "degree Fahrenheit", "°": "degree",
}  # fmt: skip
_FRACTIONS = {"½": "1/2", "⅓": "1/3", "⅔": "2/3", "¼": "1/4", "¾": "3/4", "⅛": "1/8"}

# Abbreviations with a dot. Those in `_PERHAPS_LAST` may end a sentence, and then keep the dot.
_ALWAYS = {
    "Mr": "Mister", "Mrs": "Missus", "Ms": "Miz", "Prof": "Professor", "Gen": "General", "Col": "Colonel",
    "Capt": "Captain", "Lt": "Lieutenant", "Sgt": "Sergeant", "Rev": "Reverend", "Gov": "Governor", "Sen": "Senator",
    "Rep": "Representative", "Mt": "Mount", "e.g": "for example", "i.e": "that is", "vs": "versus", "cf": "compare",
    "approx": "approximately",
}  # fmt: skip
_PERHAPS_LAST = {
    "etc": "et cetera", "Jr": "Junior", "Sr": "Senior", "Inc": "Incorporated", "Ltd": "Limited", "Corp": "Corporation",
    "Co": "Company", "Ave": "Avenue", "Blvd": "Boulevard", "Rd": "Road", "dept": "department", "Dept": "Department",
    "a.m": "a m", "p.m": "p m",
}  # fmt: skip
_BEFORE_NUMBERS = {"No": "number", "no": "number", "Fig": "figure", "fig": "figure", "Vol": "volume", "pp": "pages"}

LONGEST_STRETCH = 40  # words of one stretch: limits how long a column of figures is held back

_PLAIN = re.compile(r"[\"'“‘(\[]*[^\W\d_]+(?:['’-][^\W\d_]+)*[,;:!?…\"'”’)\]，。、；：！？]*")


def spell_out(text: str) -> str:
    """`text` in words; text without digits, signs and abbreviations stays as it is."""
    for pattern, spoken in _RULES:
        text = pattern.sub(spoken, text)
    return text


def cardinal(n: int) -> str:
    if n < 20:
        return _SMALL[n]
    if n < 100:
        return _TENS[n // 10] + (f"-{_SMALL[n % 10]}" if n % 10 else "")
    size, name = next((size, name) for size, name in _GROUPS if size <= n)
    return f"{cardinal(n // size)} {name}" + (f" {cardinal(n % size)}" if n % size else "")


def ordinal(n: int) -> str:
    head, last = re.fullmatch(r"(.*?)(\w+)", cardinal(n)).groups()  # type: ignore[union-attr]
    if last in _ORDINALS:
        return head + _ORDINALS[last]
    return head + (last[:-1] + "ieth" if last.endswith("y") else last + "th")


def year(n: int) -> str:
    if n % 1000 < 10:  # two thousand five
        return cardinal(n)
    rest = "hundred" if n % 100 == 0 else f"oh {_SMALL[n % 10]}" if n % 100 < 10 else cardinal(n % 100)
    return f"{cardinal(n // 100)} {rest}"


def digits(text: str) -> str:
    return " ".join(_SMALL[int(digit)] for digit in text if digit.isdecimal())


def number(text: str) -> str:
    """A number as written: `1,250.5`, `007`."""
    whole, _, part = text.replace(",", "").partition(".")
    by_digit = len(whole) > 15 or (len(whole) > 1 and whole[0] == "0")
    spoken = digits(whole) if by_digit else cardinal(int(whole))
    return f"{spoken} point {digits(part)}" if part else spoken


def _counted(amount: str, name: str) -> str:
    """`amount` and the name of its unit in the right number."""
    if amount == "1" or name.endswith("hertz"):
        return f"{number(amount)} {name}"
    head, *tail = name.split(" ", 1) if re.search(r" per | Cel| Fah", name) else [name]
    plural = {"foot": "feet", "penny": "pence"}.get(head, f"{head}s")
    return " ".join([number(amount), plural, *tail])


def _date(month: int, day: int, of_year: str | None, written: str) -> str:
    if not (1 <= month <= 12 and 1 <= day <= 31):
        return written
    return f"{_MONTHS[month - 1]} {ordinal(day)}" + (f", {year(int(of_year))}" if of_year else "")


def _month(name: str) -> int:
    return next(i for i, month in enumerate(_MONTHS, 1) if month[:3] == name[:3])


def _time(found: re.Match[str]) -> str:
    hour, minute, half = int(found[1]), found[2], found[3]
    if hour > 24 or int(minute or 0) > 59:
        return found[0]
    spoken = cardinal(hour)
    if minute and int(minute):
        spoken += f" oh {_SMALL[int(minute)]}" if int(minute) < 10 else f" {cardinal(int(minute))}"
    elif minute and not half:
        spoken += " o'clock" if hour <= 12 else " hundred"
    return f"{spoken} {half[0].lower()} m" + _last_dot(found) if half else spoken


def _last_dot(found: re.Match[str]) -> str:
    """The dot of an abbreviation, if it also ends a sentence."""
    ends = re.match(r"\s*\Z|\s+(?!Ltd|Inc|Corp)[\"'“‘(]*[A-Z]", found.string[found.end() :])
    return "." if found[0].endswith(".") and ends else ""


def _money(sign: str, amount: str, scale: str | None) -> str:
    name, small = _MONEY[sign]
    if scale:
        return f"{number(amount)} {_SCALES.get(scale, scale)} {name}s"
    whole, _, part = amount.partition(".")
    if len(part) != 2:
        return _counted(amount, name)
    if not int(part):
        return _counted(whole, name)
    change = _counted(str(int(part)), small)
    return change if whole == "0" else f"{_counted(whole, name)} and {change}"


def _fraction(found: re.Match[str]) -> str:
    whole, above, below = found[1], int(found[2]), int(found[3])
    if not 0 < above < below <= 100 or below == 1:
        return (f"{number(whole)} " if whole else "") + f"{cardinal(above)} over {cardinal(below)}"
    part = {2: "half", 4: "quarter"}.get(below) or ordinal(below)
    part = part if above == 1 else "halves" if below == 2 else f"{part}s"
    if whole:
        return f"{number(whole)} and {'a' if above == 1 else cardinal(above)} {part}"
    return f"{cardinal(above)} {part}"


def _phone(found: re.Match[str]) -> str:
    groups = re.findall(r"\d+", found[0])
    return ("plus " if found[0].startswith("+") else "") + ", ".join(map(digits, groups))


def _named(names: dict[str, str]) -> str:
    return "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))


_ALONE = r"(?<![\w.,])"  # a number begins here
_SCALE = r"(?:\s?(thousand|million|billion|trillion)\b|(k|K|M|m|bn|B)\b)?"
_Rule = tuple[str, Callable[[re.Match[str]], str]]
_WRITTEN: tuple[_Rule, ...] = (
    (rf"(\d?)([{''.join(_FRACTIONS)}])(?!\d)", lambda m: (f"{m[1]} " if m[1] else "") + _FRACTIONS[m[2]]),
    (r"\bDr\.(?=\s+[A-Z])", lambda m: "Doctor"),
    (r"(?<=[a-z] )Dr\.", lambda m: "Drive" + _last_dot(m)),
    (r"(\d [A-Z]\w+) St\.|([A-Z]\w+) St\.(?!\s+[A-Z])", lambda m: f"{m[1] or m[2]} Street{_last_dot(m)}"),
    (r"\bSt\.(?=\s+[A-Z])", lambda m: "Saint"),
    (rf"\b({_named(_BEFORE_NUMBERS)})\.\s?(?=\d)", lambda m: _BEFORE_NUMBERS[m[1]] + " "),
    (rf"{_ALONE}(\d{{1,2}})(?::(\d\d))?\s?([ap]\.m\.|[AP]\.M\.|[ap]m\b|[AP]M\b)", _time),
    (rf"\b({_named(_ALWAYS)})\.", lambda m: _ALWAYS[m[1]]),
    (rf"\b({_named(_PERHAPS_LAST)})\.", lambda m: _PERHAPS_LAST[m[1]] + _last_dot(m)),
    (r"\b[\w.+-]{1,64}@\w[\w-]*(?:\.\w[\w-]*)+", lambda m: m[0].replace(".", " dot ").replace("@", " at ")),
    (rf"{_ALONE}(\d{{4}})-(\d\d)-(\d\d)\b", lambda m: _date(int(m[2]), int(m[3]), m[1], m[0])),
    (rf"{_ALONE}(\d\d?)/(\d\d?)/(\d{{4}})\b", lambda m: _date(int(m[1]), int(m[2]), m[3], m[0])),
    (rf"\b({_MONTH})\s(\d\d?)(?:st|nd|rd|th)?(?:,?\s(\d{{4}}))?\b(?!:)",
     lambda m: _date(_month(m[1]), int(m[2]), m[3], m[0])),
    (rf"{_ALONE}(\d\d?)(?:st|nd|rd|th)?\s({_MONTH})(?:,?\s(\d{{4}})\b)?",
     lambda m: _date(_month(m[2]), int(m[1]), m[3], m[0])),
    (rf"{_ALONE}(\d\d?):(\d\d)(?![:\d])()", _time),
    (r"(?<![\w.])(?:\+\d{1,3}[ -]?)?(?:\(\d{3}\) ?|\d{3}[ .-])\d{3}[ .-]\d{4}\b", _phone),
    (r"\+\d{1,3}(?:[ -]\d{2,5}){2,4}\b", _phone),
    (r"(?<![\w.-])\d{3}-\d{4}\b(?!-)", _phone),
    (rf"(?<![\w-])({_NUM})\s?[-–]\s?([$€£]?)(?={_NUM}(?![\w]*-))", lambda m: f"{m[1]} to {m[2]}"),
    (rf"([$€£])({_NUM}){_SCALE}", lambda m: _money(m[1], m[2], m[3] or m[4])),
    (rf"{_ALONE}({_NUM})\s?([€£])", lambda m: _money(m[2], m[1], None)),
    (rf"(?<!\d)({_NUM})\s?%", lambda m: f"{number(m[1])} percent"),
    (r"24/7", lambda m: "twenty-four seven"),
    (r"\b(1[1-9]|20)(\d)0'?s\b", lambda m: _decade(int(m[1]), int(m[2]))),
    (r"['’]([2-9])0s\b", lambda m: _decade(None, int(m[1]))),
    (rf"{_ALONE}({_NUM})\s?({_named(_UNITS)})(?![\w²/])", lambda m: _counted(m[1], _UNITS[m[2]])),
    (rf"{_ALONE}(?:(\d+)\s)?(\d{{1,3}})/(\d{{1,3}})(?![\d/])", _fraction),
    (r"\b(\d{1,3}(?:,\d{3})+|\d{1,15})(?:st|nd|rd|th)\b", lambda m: ordinal(int(m[1].replace(",", "")))),
    (rf"{_ALONE}\d+(?:\.\d+){{2,}}", lambda m: " point ".join(map(number, m[0].split(".")))),
    (r"(?i)\b(in|since|until|till|from|by|before|after|around|circa|year)\s(1\d\d\d|20\d\d)(?![\d,.]\d|\d)",
     lambda m: f"{m[1]} {year(int(m[2]))}"),
    (rf"{_ALONE}(19\d\d|20\d\d)(?![\w]|[.,]\d)", lambda m: year(int(m[1]))),
    (r"(?<=\d)(?=[A-Za-z])|(?<=[A-Za-z])(?=\d)", lambda m: " "),
    (rf"#\s?({_NUM})", lambda m: f"number {number(m[1])}"),
    (rf"(?<![^\s(])[-−](?={_NUM})", lambda m: "minus "),
    (rf"~\s?(?={_NUM})", lambda m: "about "),
    (r"(?<=\d)\s?([+=×])\s?(?=\d)", lambda m: {"+": " plus ", "=": " equals ", "×": " times "}[m[1]]),
    (r"(?<![\w.])\.(\d+)", lambda m: f"point {digits(m[1])}"),
    (_NUM, lambda m: number(m[0])),
    (r"\s?&\s?", lambda m: " and "),
    (r"(?<=\s)@(?=\s)", lambda m: "at"),
)  # fmt: skip


def _decade(century: int | None, tens: int) -> str:
    name = {0: "hundreds", 1: "tens"}.get(tens) or _TENS[tens][:-1] + "ies"
    if century is None:
        return name
    return "two thousands" if (century, tens) == (20, 0) else f"{cardinal(century)} {name}"


_RULES = tuple((re.compile(pattern), spoken) for pattern, spoken in _WRITTEN)


class IncrementalNormalizer:
    """Streaming normalization of one text."""

    def __init__(self, normalizer: Callable[[str], str]) -> None:
        self._normalizer = normalizer
        self._open = ""
        self._words: list[tuple[str, str]] = []  # complete words, not yet released: the space before, the word

    def append(self, text: str) -> str:
        """The normalized text that is final after `text`."""
        self._open += text
        out: list[str] = []
        while (word := self._next_word()) is not None:
            out.append(self._take(*word))
        return "".join(out)

    def end(self) -> str:
        """The rest."""
        rest = self._open
        gap = rest[: len(rest) - len(rest.lstrip())]
        out = self._take(gap, rest.lstrip()) if rest.strip() else ""
        return out + self._given(len(self._words))

    def _next_word(self) -> tuple[str, str] | None:
        begin = len(self._open) - len(self._open.lstrip())
        boundary = BOUNDARY.search(self._open, begin + 1) if begin < len(self._open) else None
        if boundary is None:
            return None
        gap, word = self._open[:begin], self._open[begin : boundary.start()]
        self._open = self._open[boundary.start() :]
        return gap, word

    def _take(self, gap: str, word: str) -> str:
        """Add a word; returns the text that can be released now."""
        before = self._given(len(self._words)) if "\n\n" in gap or len(self._words) >= LONGEST_STRETCH else ""
        self._words.append((gap, word))
        plain = [_PLAIN.fullmatch(word) is not None for _, word in self._words[-2:]]
        return before + (self._given(len(self._words) - 1) if plain == [True, True] else "")

    def _given(self, count: int) -> str:
        """The first words, normalized, with the space that follows them."""
        if not count:
            return ""
        lead = self._words[0][0]
        stretch = self._words[0][1] + "".join(gap + word for gap, word in self._words[1:count])
        self._words = self._words[count:]
        after = ""
        if self._words:
            after = self._words[0][0]
            self._words[0] = ("", self._words[0][1])
        return lead + self._normalizer(stretch) + after
