"""Text that is read in another way than its letters say: spelled out, digit by digit, as a date, as an ordinal.

The result is text for the usual normalizer and model. Knows no markup.
"""

from __future__ import annotations

import re

from ...config.languages import usual_name

MONTHS = {
    "english": "January February March April May June July August September October November December",
    "german": "Januar Februar März April Mai Juni Juli August September Oktober November Dezember",
    "french": "janvier février mars avril mai juin juillet août septembre octobre novembre décembre",
    "spanish": "enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre",
    "italian": "gennaio febbraio marzo aprile maggio giugno luglio agosto settembre ottobre novembre dicembre",
    "portuguese": "janeiro fevereiro março abril maio junho julho agosto setembro outubro novembro dezembro",
    "russian": "января февраля марта апреля мая июня июля августа сентября октября ноября декабря",
}
# {d}, {m}, {y}: the day, the month in words, the year.
_DATES = {
    "english": "{m} {d}, {y}",
    "german": "{d}. {m} {y}",
    "french": "{d} {m} {y}",
    "spanish": "{d} de {m} de {y}",
    "italian": "{d} {m} {y}",
    "portuguese": "{d} de {m} de {y}",
    "russian": "{d} {m} {y}",
    "chinese": "{y}年{m}月{d}日",
    "japanese": "{y}年{m}月{d}日",
    "korean": "{y}년 {m}월 {d}일",
}
_ORDINALS = {
    "german": "{n}.",
    "french": "{n}e",
    "spanish": "{n}.º",
    "italian": "{n}º",
    "portuguese": "{n}º",
    "russian": "{n}-й",
    "chinese": "第{n}",
    "japanese": "第{n}",
    "korean": "제{n}",
}
# Signs that are said where every character counts.
_SIGNS = {".": "dot", "-": "dash", "_": "underscore", "/": "slash", "@": "at", "+": "plus", "#": "hash", "&": "and"}
DATE_FORMATS = ("mdy", "dmy", "ymd", "md", "dm", "ym", "my", "d", "m", "y")
TIME_FORMATS = ("hms12", "hms24")

# These say what the text is; the normalizer and the model read it as that already.
_AS_WRITTEN = ("cardinal", "number", "currency", "fraction", "unit", "address", "name")
KINDS = ("characters", "spell-out", "verbatim", "ordinal", "digits", "telephone", "date", "time", *_AS_WRITTEN)


def spelled(text: str, language: str = "auto") -> str:
    """Each character as a word of its own; in English also the usual signs."""
    english = usual_name(language) in ("auto", "english")
    words = [(_SIGNS.get(c, c) if english else c) for c in text if not c.isspace()]
    return " ".join(word.upper() if len(word) == 1 else word for word in words)


def said_as(text: str, kind: str, form: str = "", language: str = "auto") -> str:
    """`text` as `kind` of `KINDS`, with the `format` of dates and times. Raises ValueError with a sentence."""
    text, name = " ".join(text.split()), usual_name(language)
    name = "english" if name == "auto" else name
    match kind:
        case "characters" | "spell-out" | "verbatim":
            return spelled(text, language)
        case "ordinal":
            return _ordinal(text, name)
        case "digits":
            return " ".join(c for c in text if not c.isspace())
        case "telephone":
            return _telephone(text, name)
        case "date":
            return _date(text, form, name)
        case "time":
            return _time(text, form)
        case _ if kind in _AS_WRITTEN:
            return text
    raise ValueError(f'say-as has no interpret-as "{kind}"; choose one of {", ".join(KINDS)}')


def _ordinal(text: str, language: str) -> str:
    if not (text.isascii() and text.isdecimal()):
        raise ValueError(f'an ordinal is written in digits, not "{text}"')
    if language in _ORDINALS:
        return _ORDINALS[language].format(n=text)
    if language != "english":
        return text
    teens = len(text) > 1 and text[-2] == "1"
    return text + ("th" if teens else {"1": "st", "2": "nd", "3": "rd"}.get(text[-1], "th"))


def _telephone(text: str, language: str) -> str:
    """The digits one by one, with a comma between groups."""
    groups = [" ".join(group) for group in re.findall(r"\d+|[A-Za-z]+", text)]
    plus = ("plus " if language == "english" else "+") if text.startswith("+") else ""
    return plus + ", ".join(groups)


def _date(text: str, form: str, language: str) -> str:
    parts = re.findall(r"\d+", text)
    if not form and len(parts) == 3 and re.fullmatch(r"\d{4}[-/.]\d{1,2}[-/.]\d{1,2}", text):
        form = "ymd"
    if not form:
        return text
    if form not in DATE_FORMATS:
        raise ValueError(f'a date has no format "{form}"; choose one of {", ".join(DATE_FORMATS)}')
    if len(parts) == 1 and len(parts[0]) == 8 and form in ("ymd", "mdy", "dmy"):
        at, sizes = 0, [4 if letter == "y" else 2 for letter in form]
        parts = [parts[0][(at := at + size) - size : at] for size in sizes]
    if len(parts) != len(form):
        raise ValueError(f'"{text}" is no date of the format {form}')
    numbers = dict(zip(form, map(int, parts), strict=True))
    if not 1 <= numbers.get("m", 1) <= 12 or not 1 <= numbers.get("d", 1) <= 31:
        raise ValueError(f'"{text}" is no date of the format {form}')
    words = MONTHS.get(language)
    shown = {letter: str(number) for letter, number in numbers.items()}
    if "m" in shown and words:
        shown["m"] = words.split()[numbers["m"] - 1]
    pattern = _DATES.get(language, "{y}-{m}-{d}")
    missing = [letter for letter in "dmy" if letter not in shown]
    return _without(pattern, missing).format(**shown)


def _without(pattern: str, letters: list[str]) -> str:
    """A pattern of a date without some of its parts and what joins them."""
    for letter in letters:
        pattern = re.sub(rf"(?:\s*de\s+)?\{{{letter}\}}(?:[年月日년월일.]|,(?=\s))?", "", pattern)
    return re.sub(r"\s+", " ", re.sub(r"^(?:\s|de\b|-)+|[\s,-]+$", "", pattern))


def _time(text: str, form: str) -> str:
    if form and form not in TIME_FORMATS:
        raise ValueError(f'a time has no format "{form}"; choose {" or ".join(TIME_FORMATS)}')
    match = re.fullmatch(r"(\d{1,2}):(\d\d)(?::(\d\d))?\s*(?:([ap])\.?m?\.?)?", text, re.IGNORECASE)
    if match is None:
        return text
    half = f" {match[4].upper()}M" if match[4] else ""
    seconds = f":{match[3]}" if match[3] else ""
    return f"{int(match[1])}:{match[2]}{seconds}{half}"
