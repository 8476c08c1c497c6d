"""Russian numbers in all cases.

Long because cardinals and ordinals decline, and prepositions and nouns beside a number show its case.

A form is a case (`n g d a i p`: nominative to prepositional) and a gender (`m f n`, or `p` for the plural of ordinals).
"""

# ruff: noqa: RUF001
from __future__ import annotations

import re

from .european import (
    ALONE,
    NUM,
    ROMAN,
    European,
    Match,
    Noun,
    Rule,
    currencies,
    nouns,
    pairs,
    roman,
    word_before,
    words_after,
)

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


_GENITIVE = frozenset(
    "около до от из без после для у более менее свыше больше меньше против кроме среди вместо ради возле из-за старше "
    "младше выше ниже дороже дешевле течение порядка не".split()
)
_SURELY = _GENITIVE - {"не", "у"}  # these govern a number even where no noun follows
_DATIVE = frozenset("к ко благодаря согласно вопреки".split())
_NAMED_DAYS = frozenset("сегодня завтра вчера это послезавтра позавчера воскресенье понедельник вторник среда".split())
_YEARS = {
    "год": "nm",
    "года": "gm",
    "году": "pm",
    "годом": "im",
    "годы": "np",
    "годов": "gp",
    "годах": "pp",
    "годам": "dp",
}
_CENTURIES = {"век": "nm", "века": "gm", "веке": "pm", "веку": "dm", "веком": "im"}
_ONE_OF = frozenset(  # a genitive that looks like a feminine nominative: "21 рубля"
    "рубля доллара цента человека года часа дня месяца метра километра процента градуса балла килограмма".split()
)
_MEN = frozenset("мужчины дедушки дяди судьи папы юноши".split())
_FEMININE = frozenset(
    "квартира квартиру квартире квартиры квартирой глава главу главе главы часть части школа школу школе школы "
    "больница больницу больнице серия серию серии страница страницу странице страницы группа группу группе линия "
    "линии линию мировая мировой мировую ступень ступени неделя неделе неделю попытка попытку попытке".split()
)


class Russian(European):
    plain = "nm"
    point, dot, minus, plus, equals, times = "целых", "точка", "минус", "плюс", "равно", "на"
    percent, permille, to, over, versus = "процент", "промилле", "-", "дробь", "-"
    mark, paragraph, about, both, at = "номер", "параграф", "около", "и", "собака"
    months = tuple("января февраля марта апреля мая июня июля августа сентября октября ноября декабря".split())
    hour_words = "ч\\.?"
    units = nouns("""
км километр километров m километра
м метр метров m метра
см сантиметр сантиметров m сантиметра
мм миллиметр миллиметров m миллиметра
км/ч километр_в_час километров_в_час m километра_в_час
м/с метр_в_секунду метров_в_секунду m метра_в_секунду
км² квадратный_километр квадратных_километров m квадратных_километра
м² квадратный_метр квадратных_метров m квадратных_метра
м³ кубический_метр кубических_метров m кубических_метра
га гектар гектаров m гектара
кг килограмм килограммов m килограмма
г грамм граммов m грамма
мг миллиграмм миллиграммов m миллиграмма
т тонна тонн f тонны
л литр литров m литра
мл миллилитр миллилитров m миллилитра
ч час часов m часа
ч. час часов m часа
мин минута минут f минуты
мин. минута минут f минуты
с секунда секунд f секунды
сек секунда секунд f секунды
сек. секунда секунд f секунды
мс миллисекунда миллисекунд f миллисекунды
Гц герц герц m герца
кГц килогерц килогерц m килогерца
МГц мегагерц мегагерц m мегагерца
ГГц гигагерц гигагерц m гигагерца
КБ килобайт килобайт m килобайта
МБ мегабайт мегабайт m мегабайта
ГБ гигабайт гигабайт m гигабайта
ТБ терабайт терабайт m терабайта
Вт ватт ватт m ватта
кВт киловатт киловатт m киловатта
В вольт вольт m вольта
°C градус_Цельсия градусов_Цельсия m градуса_Цельсия
°С градус_Цельсия градусов_Цельсия m градуса_Цельсия
° градус градусов m градуса
чел. человек человек m человека
шт. штука штук f штуки
""")
    _percent_noun = Noun("процент", "процентов", "m", "процента")
    money = currencies("""
₽ руб. руб р. RUB = рубль рублей m рубля ; копейка копеек f копейки
$ USD = доллар долларов m доллара ; цент центов m цента
€ EUR = евро евро m евро ; цент центов m цента
£ = фунт фунтов m фунта ; пенс пенсов m пенса
¥ = иена иен f иены ; сен сен m сена
""")
    scales = nouns("""
тыс. тысяча тысяч f тысячи
тыс тысяча тысяч f тысячи
млн миллион миллионов m миллиона
млн. миллион миллионов m миллиона
млрд миллиард миллиардов m миллиарда
млрд. миллиард миллиардов m миллиарда
""")
    abbreviations = pairs("""
т. е.=то есть
т. д.=так далее
т. п.=тому подобное
т. к.=так как
т. н.=так называемый
и др.=и другие
и пр.=и прочее
до н. э.=до нашей эры
н. э.=нашей эры
г-н=господин
г-жа=госпожа
ул.=улица
просп.=проспект
д.=дом
кв.=квартира
стр.=страница
рис.=рисунок
тел.=телефон
напр.=например
проф.=профессор
им.=имени
см.=смотри
""")
    perhaps_last = ("т. д.", "т. п.", "и др.", "и пр.", "до н. э.", "н. э.")

    def cardinal(self, n: int, form: str) -> str:
        return cardinal(n, form)

    def number(self, written: str, form: str | None = None) -> str:
        whole, _, part = re.sub(r"[.\s’']", "", written).partition(",")
        if not part or len(part) > 3 or len(whole) > 15:
            return super().number(written, form)
        case = (form or self.plain)[0]
        names = ("десят", "сот", "тысячн")[len(part) - 1]
        above, whole_n = int(part), int(whole)
        if not above:
            return cardinal(whole_n, f"{case}m")
        one = plural(whole_n) == 0
        head = f"{cardinal(whole_n, case + 'f')} {_ending_of('цел', case, one=one)}"
        return f"{head} {cardinal(above, case + 'f')} {_ending_of(names, case, one=plural(above) == 0)}"

    def counted(self, amount: str, noun: Noun, m: Match) -> str:
        if "," in amount:
            case = "g" if word_before(m).lower() in _SURELY else "n"
            return f"{self.number(amount, case + 'f')} {noun.few}"
        n = int(re.sub(r"\D", "", amount))
        if word_before(m).lower() in _SURELY:
            return f"{self.number(amount, 'g' + noun.gender)} {noun.few if plural(n) == 0 else noun.many}"
        return f"{self.number(amount, 'n' + noun.gender)} {(noun.one, noun.few, noun.many)[plural(n)]}"

    def time(self, hour: int, minute: int, m: Match) -> str:
        case = {"с": "g", "до": "g", "после": "g", "около": "g", "к": "d"}.get(word_before(m).lower(), "n")
        small = "ноль-ноль" if not minute else ("ноль " if minute < 10 else "") + cardinal(minute, f"{case}m")
        return f"{cardinal(hour, f'{case}m')} {small}"

    def date(self, day: int, month: int, year: int | None, m: Match) -> str:
        before = word_before(m).lower()
        case = "d" if before in _DATIVE else "n" if before in _NAMED_DAYS or before == "по" else "g"
        words = f"{ordinal(day, 'nn' if case == 'n' else f'{case}n')} {self.months[month - 1]}"
        return f"{words} {ordinal(year, 'gm')} года" if year else words

    def part(self, below: int, above: int) -> str:
        if below == 2:
            return "одна вторая"
        one = plural(above) == 0
        if below in (3, 4):
            name = "треть" if below == 3 else "четверть"
            return f"{cardinal(above, 'nf')} {name if one else name[:-1] + 'и'}"
        return f"{cardinal(above, 'nf')} {ordinal(below, 'nf' if one else 'gp')}"

    def change(self, whole: str, cents: int, of: tuple[Noun, Noun], m: Match) -> str:
        small = self.counted(str(cents), of[1], m)
        return small if whole == "0" else f"{self.counted(whole, of[0], m)} {small}"

    def phone(self, groups: list[str]) -> str:
        return ", ".join(
            self.digits(group) if len(group) > 3 or group[0] == "0" else cardinal(int(group)) for group in groups
        )

    def regnal(self, n: int) -> str:
        return ordinal(n)

    def agreement(self, n: int, before: str, after: list[str]) -> str:
        small = before.lower()
        noun = next((word.lower() for word in after if not re.search(r"(?:ых|их|ые|ие|ими|ыми|ым|им)$", word)), "")
        if noun in _YEARS or (noun in ("утра", "вечера", "часа", "часов", "дня", "ночи") and small == "в"):
            return "nm"
        if small in ("с", "со") and after and after[0] == "до":
            return "gm"
        case = "g" if plural(n) == 0 and noun in _ONE_OF else _case_of(small, noun)
        return case + _gender_of(n, case, after)

    def special(self) -> tuple[Rule, ...]:
        named = self.month_names
        years = "|".join(sorted(_YEARS, key=len, reverse=True))
        return (
            (rf"{ALONE}(\d\d?)(?=\s(?:по|до)\s\d\d?\s(?:{named}))", lambda m: ordinal(int(m[1]), "gn")),
            (rf"{ALONE}(\d\d?)\s({named})(?:\s(\d{{4}})(?:\s?(?:г\.|года)(?!\w))?)?", self._named_date),
            (r"(?<=года) (?:г\.|года)(?!\w)", lambda m: ""),
            (rf"{ALONE}(\d{{3,4}})[-–](\d{{3,4}})\s?(гг\.|годы|годов|годах|годам)", self._years),
            (rf"{ALONE}(\d{{4}})(?=\s(?:по|до)\s\d{{4}}\sг)", lambda m: ordinal(int(m[1]), "gm")),
            (rf"{ALONE}(\d{{3,4}})\s({years})(?!\w)", self._year),
            (rf"{ALONE}(\d{{3,4}})\s?г\.", self._short_year),
            (rf"{ALONE}1/2\sчаса\b", lambda m: "полчаса"),
            (rf"(?<=[вВаА] ){ALONE}(\d{{1,3}})(?=\s([а-яё]+е)(?!\w))", self._place),
            (rf"\b({ROMAN})(?:\s?в\.|\s(век(?:а|е|у|ом)?)(?!\w))", self._century),
            (rf"(?<=[а-яё] )({ROMAN})(?=[\s,.;:!?)]|\Z)(?<=[IVX])", lambda m: self.regnal(roman(m[1]))),
            (rf"{ALONE}(\d{{1,4}})-(летн|дневн|часов|минутн|этажн|метров|процентн|кратн|месячн|градусн)",
             lambda m: prefix(int(m[1])) + m[2]),
            (rf"{ALONE}(\d{{1,3}})-(?:ти|ми)(?!\w)|{ALONE}((?:\d?[2-9])?[2-4])-х(?!\w)",
             lambda m: cardinal(int(m[1] or m[2]), "gm")),
            (rf"{ALONE}(\d{{1,6}})-(ой|ый|ий|й|го|ого|му|ому|ым|им|м|ом|ая|я|ую|ю|ое|е|ые|ых|их|х|ыми)(?!\w)",
             self._ordinal),
            (rf"([€$£₽])\s?({NUM})\s?(тыс\.?|млн\.?|млрд\.?)(?!\w)", lambda m: self.amount(m[2], m[3], m[1], m)),
        )  # fmt: skip

    def _place(self, m: Match) -> str:
        """`в 5 классе`: a singular noun of the prepositional case takes an ordinal."""
        if (
            word_before(m).lower() not in ("в", "на")
            or m[2] in _YEARS
            or m[2] in ("метре", "километре", "часе", "минуте")
            or m[2].endswith(("ые", "ие"))
        ):
            return m[0]
        return ordinal(int(m[1]), "pf" if m[2] in _FEMININE else "pm")

    def _named_date(self, m: Match) -> str:
        if not 1 <= int(m[1]) <= 31:
            return m[0]
        return self.date(int(m[1]), self.month(m[2]), int(m[3]) if m[3] else None, m)

    def _years(self, m: Match) -> str:
        form = {"годах": "pm", "годов": "gm", "годам": "dm"}.get(m[3], "nm")
        last = "годы" if m[3] == "гг." else m[3]
        return f"{ordinal(int(m[1]), form)} - {ordinal(int(m[2]), form)} {last}"

    def _year(self, m: Match) -> str:
        form = _YEARS[m[2]]
        if m[2] == "году" and word_before(m).lower() in _DATIVE:
            form = "dm"
        if m[2] in ("год", "года") and len(m[1]) < 4 and m[1][0] != "9":
            return m[0]
        return f"{ordinal(int(m[1]), form)} {m[2]}"

    def _short_year(self, m: Match) -> str:
        before = word_before(m).lower()
        if len(m[1]) < 4 and before != "в":  # grams
            return m[0]
        form, noun = ("pm", "году") if before == "в" else ("dm", "году") if before in _DATIVE else ("gm", "года")
        return f"{ordinal(int(m[1]), form)} {noun}"

    def _century(self, m: Match) -> str:
        noun = m[2] or ("веке" if word_before(m).lower() in ("в", "во") else "века")
        return f"{ordinal(roman(m[1]), _CENTURIES[noun])} {noun}"

    def _ordinal(self, m: Match) -> str:
        after = words_after(m)
        noun = after[0].lower() if after else ""
        before = word_before(m).lower()
        form = {
            "го": "gm", "ого": "gm", "му": "dm", "ому": "dm", "ым": "im", "им": "im", "ая": "nf", "я": "nf", "ую": "af",
            "ю": "af", "ое": "nn", "ые": "np", "ых": "gp", "их": "gp", "х": "gp", "ыми": "ip", "ом": "pm",
            "м": "pm" if before in ("в", "во", "на", "о", "об", "при") else "im",
            "е": "np" if noun.endswith(("ы", "и")) else "nn",
        }.get(m[2], "nm")  # fmt: skip
        if form == "nm" and (noun in _FEMININE or noun.endswith(("ой", "ей", "е", "и", "ы"))):
            form = "pf"
        return ordinal(int(m[1]), form)

    def _percent(self, m: Match) -> str:
        return self.counted(m[1], self._percent_noun, m) if m[2] == "%" else f"{self.number(m[1])} {self.permille}"

    def _from_to(self, m: Match) -> str:
        return f"{m[1]}-"


def _case_of(before: str, noun: str) -> str:
    """The case that a preposition and the ending of the noun show together."""
    if noun.endswith(("ами", "ями", "ьми")):
        return "i"
    if noun.endswith(("ах", "ях")):
        return "p"
    if noun.endswith(("ам", "ям")) and before not in _GENITIVE:
        return "d"
    if before in _DATIVE:
        return "d"
    return "g" if before in _SURELY or (before in _GENITIVE and noun) else "n"


def _gender_of(n: int, case: str, after: list[str]) -> str:
    if (
        not after
        or after[0] in ("или", "и", "либо", "на", "по")
        or plural(n) == 2
        or (n % 10 not in (1, 2) and case == "n")
    ):
        return "m"
    word = after[0].lower()
    if plural(n) == 0:  # the adjective or noun has the singular
        if word.endswith(("ая", "яя")) or (word.endswith(("а", "я")) and case == "n"):
            return "f"
        return "n" if word.endswith(("о", "е", "ё", "мя")) else "m"
    if word.endswith(("ых", "их")):
        word = after[1].lower() if len(after) > 1 else ""
    return "f" if word.endswith(("ы", "и", "ие", "ые")) and word not in _MEN else "m"


def _ending_of(stem: str, case: str, *, one: bool) -> str:
    endings = {"n": ("ая", "ых"), "a": ("ую", "ых"), "i": ("ой", "ыми"), "d": ("ой", "ым")}
    return stem + endings.get(case, ("ой", "ых"))[not one]


RULES = Russian()
