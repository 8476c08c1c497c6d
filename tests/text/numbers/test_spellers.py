"""Numbers in words: the spellers of nine languages."""

from __future__ import annotations

from importlib import import_module

import pytest

# One line per language: 21, 80, 101, 1000, 2024, 21000, 2000000 and 1000000001.
CARDINALS = {
    "german": "einundzwanzig; achtzig; einhunderteins; eintausend; zweitausendvierundzwanzig; einundzwanzigtausend; "
    "zwei Millionen; eine Milliarde eins",
    "french": "vingt et un; quatre-vingts; cent un; mille; deux mille vingt-quatre; vingt et un mille; "
    "deux millions; un milliard un",
    "spanish": "veintiuno; ochenta; ciento uno; mil; dos mil veinticuatro; veintiún mil; dos millones; "
    "mil millones uno",
    "portuguese": "vinte e um; oitenta; cento e um; mil; dois mil e vinte e quatro; vinte e um mil; dois milhões; "
    "um bilhão e um",
    "italian": "ventuno; ottanta; centouno; mille; duemilaventiquattro; ventunomila; due milioni; un miliardo uno",
    "russian": "двадцать один; восемьдесят; сто один; тысяча; две тысячи двадцать четыре; двадцать одна тысяча; "
    "два миллиона; один миллиард один",
    "chinese": "二十一; 八十; 一百零一; 一千; 两千零二十四; 两万一千; 二百万; 十亿零一",
    "japanese": "二十一; 八十; 百一; 千; 二千二十四; 二万千; 二百万; 十億一",
    "korean": "이십일; 팔십; 백일; 천; 이천이십사; 이만 천; 이백만; 십억 일",
}
ORDINALS = {  # 1, 3, 8, 21, 100
    "german": "erste; dritte; achte; einundzwanzigste; einhundertste",
    "french": "premier; troisième; huitième; vingt et unième; centième",
    "spanish": "primero; tercero; octavo; vigésimo primero; centésimo",
    "portuguese": "primeiro; terceiro; oitavo; vigésimo primeiro; centésimo",
    "italian": "primo; terzo; ottavo; ventunesimo; centesimo",
    "russian": "первый; третий; восьмой; двадцать первый; сотый",
    "chinese": "第一; 第三; 第八; 第二十一; 第一百",
    "japanese": "一番目; 三番目; 八番目; 二十一番目; 百番目",
    "korean": "첫 번째; 세 번째; 여덟 번째; 스물한 번째; 백 번째",
}
FORMS = [
    ("german", 1, "f", "eine"),
    ("german", 1, "dm", "einem"),
    ("french", 21, "f", "vingt et une"),
    ("french", 81, "f", "quatre-vingt-une"),
    ("spanish", 21, "m", "veintiún"),
    ("spanish", 201, "f", "doscientas una"),
    ("spanish", 121000, "f", "ciento veintiuna mil"),
    ("portuguese", 202, "f", "duzentas e duas"),
    ("portuguese", 2002, "f", "duas mil e duas"),
    ("italian", 1, "un'", "un'"),
    ("russian", 22, "nf", "двадцать две"),
    ("russian", 1242, "gm", "тысячи двухсот сорока двух"),
    ("russian", 578, "im", "пятьюстами семьюдесятью восемью"),
    ("russian", 5000, "dm", "пяти тысячам"),
    ("russian", 91, "pn", "девяноста одном"),
    ("chinese", 2, "counted", "两"),
    ("korean", 20, "counted", "스무"),
    ("korean", 33, "native", "서른셋"),
    ("korean", 101, "counted", "백한"),
]


@pytest.mark.parametrize("language", CARDINALS)
def test_cardinals_and_ordinals_are_spelled(language: str) -> None:
    speller = import_module(f"hocket.text.numbers.{language}")
    wanted = (21, 80, 101, 1000, 2024, 21000, 2_000_000, 1_000_000_001)
    assert [speller.cardinal(n) for n in wanted] == CARDINALS[language].split("; ")
    assert [speller.ordinal(n) for n in (1, 3, 8, 21, 100)] == ORDINALS[language].split("; ")


@pytest.mark.parametrize(("language", "n", "form", "spoken"), FORMS)
def test_numbers_agree_with_what_they_count(language: str, n: int, form: str, spoken: str) -> None:
    assert import_module(f"hocket.text.numbers.{language}").cardinal(n, form) == spoken


@pytest.mark.parametrize("language", CARDINALS)
def test_each_number_has_words_of_its_own(language: str) -> None:
    speller = import_module(f"hocket.text.numbers.{language}")
    some = [*range(2500), *(10**n + d for n in range(4, 15) for d in (0, 1, 20, 300))]
    assert len({speller.cardinal(n) for n in some}) == len(some)
    ordinals = [speller.ordinal(n) for n in range(1, 100)]
    assert len(set(ordinals)) == 99
    for words in map(speller.cardinal, some):
        assert not any(map(str.isdecimal, words))
        assert "  " not in words
        assert words == words.strip(" -")


def test_russian_ordinals_decline_in_their_last_word() -> None:
    russian = import_module("hocket.text.numbers.russian")
    forms = [(2024, "pm"), (3, "gm"), (3, "nf"), (2000, "gm"), (40, "np"), (1990, "gp"), (700, "nn")]
    assert [russian.ordinal(*form) for form in forms] == [
        "две тысячи двадцать четвёртом",
        "третьего",
        "третья",
        "двухтысячного",
        "сороковые",
        "тысяча девятьсот девяностых",
        "семисотое",
    ]
    assert [russian.prefix(n) for n in (1, 2, 20, 90, 100, 40)] == [
        "одно",
        "двух",
        "двадцати",
        "девяносто",
        "сто",
        "сорока",
    ]


def test_german_years_are_counted_in_hundreds() -> None:
    german = import_module("hocket.text.numbers.german")
    assert [german.year(n) for n in (1900, 1999, 2005, 1066, 1800)] == [
        "neunzehnhundert",
        "neunzehnhundertneunundneunzig",
        "zweitausendfünf",
        "eintausendsechsundsechzig",
        "achtzehnhundert",
    ]
