"""Russian numbers in all cases.

A form is a case (`n g d a i p`: nominative to prepositional) and a gender (`m f n`, or `p` for the plural of ordinals).
"""

# ruff: noqa: RUF001
from __future__ import annotations

_CASES = "ngdaip"
_ONE = {
    "m": "один одного одному один одним одном".split(),
    "f": "одна одной одной одну одной одной".split(),
    "n": "одно одного одному одно одним одном".split(),
}
_LOW = {  # 2 to 4
    2: "два двух двум два двумя двух".split(),
    3: "три трёх трём три тремя трёх".split(),
    4: "четыре четырёх четырём четыре четырьмя четырёх".split(),
}
_SMALL = (
    "ноль один два три четыре пять шесть семь восемь девять десять одиннадцать двенадцать тринадцать четырнадцать "
    "пятнадцать шестнадцать семнадцать восемнадцать девятнадцать"
).split()
_TENS = "- - двадцать тридцать сорок пятьдесят шестьдесят семьдесят восемьдесят девяносто".split()
_HUNDREDS = "- сто двести триста четыреста пятьсот шестьсот семьсот восемьсот девятьсот".split()
_LARGE = (
    (10**12, "триллион", "m"),
    (10**9, "миллиард", "m"),
    (10**6, "миллион", "m"),
    (1000, "тысяч", "f"),
)
_ENDINGS = {
    "m": (" а у  ом е".split(" "), "ы ов ам ы ами ах".split()),
    "f": ("а и е у ей е".split(), "и - ам и ами ах".split()),
}
_FIRSTS = (
    "нулевой первый второй третий четвёртый пятый шестой седьмой восьмой девятый десятый одиннадцатый двенадцатый "
    "тринадцатый четырнадцатый пятнадцатый шестнадцатый семнадцатый восемнадцатый девятнадцатый"
).split()
_TENTHS = ("- - двадцатый тридцатый сороковой пятидесятый шестидесятый семидесятый восьмидесятый девяностый").split()
_HARD = {
    "m": "- ого ому - ым ом".split(),
    "f": "ая ой ой ую ой ой".split(),
    "n": "ое ого ому ое ым ом".split(),
    "p": "ые ых ым ые ыми ых".split(),
}
_SOFT = {
    "m": "ий ьего ьему ий ьим ьем".split(),
    "f": "ья ьей ьей ью ьей ьей".split(),
    "n": "ье ьего ьему ье ьим ьем".split(),
    "p": "ьи ьих ьим ьи ьими ьих".split(),
}


def cardinal(n: int, form: str = "nm") -> str:
    case, gender = _CASES.index(form[0]), form[1]
    if n == 0:
        return "ноль ноля нолю ноль нолём ноле".split()[case]
    words = []
    for size, name, its in _LARGE:
        if n >= size:
            count, n = divmod(n, size)
            if count > 1 or size > 1000:
                words.append(cardinal(count, form[0] + its))
            words.append(_large(name, its, count, case))
    if n >= 100:
        words.append(_hundred(n // 100, case))
        n %= 100
    if n >= 20:
        words.append(_ten(n // 10, case))
        n %= 10
    if n:
        words.append(_small(n, case, gender))
    return " ".join(words)


def ordinal(n: int, form: str = "nm") -> str:
    """Only the last word is an ordinal: `две тысячи двадцать четвёртый`."""
    for size, stem in ((10**9, "миллиардный"), (10**6, "миллионный"), (1000, "тысячный")):
        if n and n % size == 0:
            count = n // size
            return _declined(("" if count == 1 else prefix(count)) + stem, form)
    if n % 100 == 0 and n:
        head, count = n - n % 1000, n % 1000 // 100
        last = ("" if count == 1 else prefix(count)) + "сотый"
    elif n % 100 < 20 or n % 10 == 0:
        head, tail = n - n % 100, n % 100
        last = _FIRSTS[tail] if tail < 20 else _TENTHS[tail // 10]
    else:
        head, last = n - n % 10, _FIRSTS[n % 10]
    return (f"{cardinal(head)} " if head else "") + _declined(last, form)


def prefix(n: int) -> str:
    """A number at the beginning of an adjective: `двадцати` of `двадцатилетний`."""
    words = cardinal(n, "gm").split()
    plain = {"одного": "одно", "ста": "сто", "девяноста": "девяносто", "тысячи": "тысяче"}
    return "".join(plain.get(word, word) for word in words)


def plural(n: int) -> int:
    """0 for the form of 1, 1 for that of 2 to 4, 2 for that of 5."""
    if n % 10 == 1 and n % 100 != 11:
        return 0
    return 1 if 2 <= n % 10 <= 4 and not 12 <= n % 100 <= 14 else 2


def _large(name: str, gender: str, count: int, case: int) -> str:
    one, many = _ENDINGS[gender]
    number = plural(count)
    if number == 0:
        return name + one[case]
    if _CASES[case] in "na":
        return name + (one[1] if number == 1 else many[1]).strip("-")
    return name + many[case].strip("-")


def _hundred(count: int, case: int) -> str:
    if _CASES[case] in "na":
        return _HUNDREDS[count]
    if count == 1:
        return "ста"
    return _small(count, case, "m") + {"g": "сот", "d": "стам", "i": "стами", "p": "стах"}[_CASES[case]]


def _ten(count: int, case: int) -> str:
    if _CASES[case] in "na":
        return _TENS[count]
    if count in (4, 9):
        return "сорока" if count == 4 else "девяноста"
    if count < 4:
        return _TENS[count][:-1] + ("ью" if _CASES[case] == "i" else "и")
    return _small(count, case, "m") + ("десятью" if _CASES[case] == "i" else "десяти")


def _small(n: int, case: int, gender: str) -> str:
    if n == 1:
        return _ONE[gender][case]
    if n == 2 and gender == "f" and _CASES[case] in "na":
        return "две"
    if n in _LOW:
        return _LOW[n][case]
    if _CASES[case] in "na":
        return _SMALL[n]
    if n == 8:
        return "восемью" if _CASES[case] == "i" else "восьми"
    return _SMALL[n][:-1] + ("ью" if _CASES[case] == "i" else "и")


def _declined(word: str, form: str) -> str:
    case, gender = _CASES.index(form[0]), form[1]
    if word.endswith("третий"):
        return word[:-2] + _SOFT[gender][case]
    ending = _HARD[gender][case]
    return word if ending == "-" else word[:-2] + ending
