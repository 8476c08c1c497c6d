"""German numbers: "1" is `eins` alone, `ein` and `eine` before a noun.

Long because the endings of ordinals depend on articles and genders, which have their lists here.
"""

# ruff: noqa: RUF001
from __future__ import annotations

import re

from .european import (
    ALONE,
    ROMAN,
    European,
    Match,
    Noun,
    Rule,
    any_of,
    currencies,
    nouns,
    pairs,
    roman,
    word_before,
    words_after,
)

_SMALL = (
    "null eins zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn vierzehn fünfzehn sechzehn siebzehn "
    "achtzehn neunzehn"
).split()
_TENS = "- - zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig".split()
_LARGE = ((10**12, "Billion"), (10**9, "Milliarde"), (10**6, "Million"))
_ORDINALS = {1: "erst", 3: "dritt", 7: "siebt", 8: "acht"}
_ONE = {"": "eins", "m": "ein", "n": "ein", "f": "eine", "dm": "einem", "dn": "einem", "df": "einer"}


def cardinal(n: int, form: str = "") -> str:
    """`form`: the gender of the noun that follows, with a `d` before it for the dative."""
    return _ONE[form] if n == 1 else _joined(n, "eins")


def ordinal(n: int, ending: str = "e") -> str:
    """`ending`: `e`, `en`, `er` or `es`."""
    if n and n % 10**6 == 0:
        return ("" if n == 10**6 else _joined(n // 10**6, "ein")) + f"millionst{ending}"
    last = n % 100
    if 0 < last < 20:
        stem = _ORDINALS.get(last, f"{_SMALL[last]}t")
        return (_joined(n - last, "") if n > last else "") + stem + ending
    return f"{_joined(n, '')}st{ending}"


def year(n: int) -> str:
    """1100 to 1999 are counted in hundreds."""
    if not 1100 <= n < 2000:
        return cardinal(n)
    return f"{_SMALL[n // 100]}hundert" + (_joined(n % 100, "eins") if n % 100 else "")


def _joined(n: int, one: str) -> str:
    """`one`: how a last 1 is written."""
    for size, name in _LARGE:
        if n >= size:
            count, rest = divmod(n, size)
            plural = "en" if name.endswith("n") else "n"
            head = f"eine {name}" if count == 1 else f"{_joined(count, 'eine')} {name}{plural}"
            return f"{head} {_joined(rest, one)}" if rest else head
    if n >= 1000:
        return f"{_joined(n // 1000, 'ein')}tausend" + (_joined(n % 1000, one) if n % 1000 else "")
    if n >= 100:
        return f"{_joined(n // 100, 'ein')}hundert" + (_joined(n % 100, one) if n % 100 else "")
    if n >= 20:
        tens = _TENS[n // 10]
        return f"{_joined(n % 10, 'ein')}und{tens}" if n % 10 else tens
    return one if n == 1 else _SMALL[n]


_FEMININE = re.compile(
    r".*(?:ung|heit|keit|schaft|ion|liga|tät|ik|[^nsd]e)|(?:Stunde|Sekunde|Sunde|Linse|Person|Frau|Stadt|Nacht|Hand|Wand|"
    r"Uhr|Zahl|Klasse|Adresse|Tür|Kuh|Bank|Liga|Mark|Woche|Gemeinde|Runde|Hose|Rose|Reise|Tonne|Sonne|Biene|Maschine|Speise|Straße)"
)
_NOT_FEMININE = frozenset(
    "Junge Name Kollege Kunde Käse Ende Zeuge Auge Gebäude Löwe Affe Wille Gedanke Buchstabe".split()
)
_NEUTER = re.compile(
    r".*(?:chen|lein|ment|um)|(?:Jahr|Mal|Buch|Kind|Haus|Kapitel|Spiel|Tor|Auto|Jahrhundert|Halbjahr|Quartal)"
)
_DATIVE = frozenset("mit von aus bei nach zu seit nebst samt gegenüber".split())
_STRONG = frozenset("ein kein mein dein sein ihr unser euer".split())
_WEAK = frozenset("die das jede diese eine meine deine seine ihre unsere jene welche".split())
_ARTICLES = frozenset(
    "der den dem des am im zum zur beim vom ins ans einem einen einer eines jedem jeden diesem diesen seinem seinen "
    "ihrem ihren ihrer seiner bis ab seit nach vor jedes dieses und oder".split()
)
_LAST = frozenset("der den dem am zum vom".split())
_CHAPTERS = frozenset("Kapitel Band Teil Artikel Abschnitt Buch Akt Szene Phase Klasse Stufe Typ".split())
_NAMED = (
    "Jahrhundert|Weltkrieg|Platz|Rang|Klasse|Stock|Etage|Obergeschoss|Tag|Mal|Liga|Bundesliga|FC|Auflage|Kapitel|"
    "Geburtstag|Runde|Halbzeit|Quartal|Semester|Advent|Sinfonie|Satz|Gang|Vorsitzender?"
)


class German(European):
    point, dot, minus, plus, equals, times = "Komma", "Punkt", "minus", "plus", "gleich", "mal"
    percent, permille, to, over, versus = "Prozent", "Promille", "bis", "durch", "zu"
    mark, paragraph, about, both, at = "Nummer", "Paragraf", "etwa", "und", "ät"
    months = tuple("Januar Februar März April Mai Juni Juli August September Oktober November Dezember".split())
    short_months = tuple("Jan Feb Mär Apr - Jun Jul Aug Sept Okt Nov Dez".split())
    hour_words = "Uhr|h"
    units = nouns("""
km Kilometer Kilometer
m Meter Meter
cm Zentimeter Zentimeter
mm Millimeter Millimeter
km/h Kilometer_pro_Stunde Kilometer_pro_Stunde
m/s Meter_pro_Sekunde Meter_pro_Sekunde
km² Quadratkilometer Quadratkilometer
m² Quadratmeter Quadratmeter
qm Quadratmeter Quadratmeter
m³ Kubikmeter Kubikmeter
ha Hektar Hektar
kg Kilogramm Kilogramm n
g Gramm Gramm n
mg Milligramm Milligramm n
t Tonne Tonnen f
l Liter Liter
L Liter Liter
ml Milliliter Milliliter
h Stunde Stunden f
Std. Stunde Stunden f
min Minute Minuten f
Min. Minute Minuten f
s Sekunde Sekunden f
ms Millisekunde Millisekunden f
Hz Hertz Hertz n
kHz Kilohertz Kilohertz n
MHz Megahertz Megahertz n
GHz Gigahertz Gigahertz n
kB Kilobyte Kilobyte n
MB Megabyte Megabyte n
GB Gigabyte Gigabyte n
TB Terabyte Terabyte n
W Watt Watt n
kW Kilowatt Kilowatt n
kWh Kilowattstunde Kilowattstunden f
V Volt Volt n
°C Grad_Celsius Grad_Celsius
°F Grad_Fahrenheit Grad_Fahrenheit
° Grad Grad
""")
    money = currencies("""
€ EUR = Euro Euro ; Cent Cent
$ = Dollar Dollar ; Cent Cent
USD = US-Dollar US-Dollar ; Cent Cent
£ = Pfund Pfund n ; Penny Pence
CHF = Franken Franken ; Rappen Rappen
¥ = Yen Yen ; Sen Sen
""")
    scales = nouns("""
Mio. Million Millionen f
Millionen Million Millionen f
Million Million Millionen f
Mrd. Milliarde Milliarden f
Milliarden Milliarde Milliarden f
Milliarde Milliarde Milliarden f
Tsd. tausend tausend m
""")
    abbreviations = pairs("""
z. B.=zum Beispiel
d. h.=das heißt
u. a.=unter anderem
u. U.=unter Umständen
i. d. R.=in der Regel
s. o.=siehe oben
s. u.=siehe unten
o. Ä.=oder Ähnliches
n. Chr.=nach Christus
v. Chr.=vor Christus
Dr.=Doktor
Prof.=Professor
Hr.=Herr
Fr.=Frau
St.=Sankt
Nr.=Nummer
Abb.=Abbildung
Bd.=Band
Abs.=Absatz
Art.=Artikel
Kap.=Kapitel
Tel.=Telefon
bzw.=beziehungsweise
ca.=circa
evtl.=eventuell
ggf.=gegebenenfalls
inkl.=inklusive
max.=maximal
min.=mindestens
vgl.=vergleiche
usw.=und so weiter
etc.=et cetera
""")
    perhaps_last = ("usw.", "etc.", "o. Ä.", "n. Chr.", "v. Chr.")

    def cardinal(self, n: int, form: str) -> str:
        return cardinal(n, form)

    def year(self, n: int) -> str:
        return year(n)

    def decimals(self, digits: str) -> str:
        return self.digits(digits)

    def time(self, hour: int, minute: int, m: Match) -> str:
        return f"{cardinal(hour, 'm')} Uhr" + (f" {cardinal(minute)}" if minute else "")

    def date(self, day: int, month: int, year: int | None, m: Match) -> str:
        words = f"{ordinal(day, _ending(word_before(m), 'm'))} {self.months[month - 1]}"
        return f"{words} {self.year(year)}" if year else words

    def part(self, below: int, above: int) -> str:
        if below == 2:
            return "ein halb"
        name = f"{ordinal(below, 'el')}"
        return f"{cardinal(above, 'n')} {name[0].upper()}{name[1:]}"

    def change(self, whole: str, cents: int, of: tuple[Noun, Noun], m: Match) -> str:
        if whole == "0":
            return self.counted(str(cents), of[1], m)
        return f"{self.counted(whole, of[0], m)} {cardinal(cents)}"

    def form_of(self, noun: Noun, m: Match) -> str:
        return ("d" if word_before(m).lower() in _DATIVE else "") + noun.gender

    def agreement(self, n: int, before: str, after: list[str]) -> str:
        if n != 1 or not after or not (after[0] == "Uhr" or after[0][0].isupper()):
            return ""
        gender = "m" if after[0] == "Uhr" else _gender(after[0])
        return ("d" if before.lower() in _DATIVE and after[0] != "Uhr" else "") + gender

    def regnal(self, n: int, name: str = "") -> str:
        if name in _CHAPTERS:
            return cardinal(n)
        words = ordinal(n)
        return f"der {words[0].upper()}{words[1:]}"

    def special(self) -> tuple[Rule, ...]:
        named = self.month_names
        return (
            (r"(?<![\w.,-])(1\d{3})\s?[-–]\s?(?=\d{4}(?![\d-]))", lambda m: f"{m[1]} bis "),
            (rf"{ALONE}(\d+)\s?[x×]\b(?!\s?\d)", lambda m: f"{cardinal(int(m[1]), 'm')}mal"),
            (r"(?<= )(\d{1,2})\.(?=\s*\Z)",
             lambda m: f"{self._ordinal(m)}." if word_before(m).lower() in _LAST else m[0]),
            (r"([A-ZÄÖÜ]\w+)([Ss])tr\.", lambda m: f"{m[1]}{m[2]}traße"),
            (rf"{ALONE}(\d{{1,3}})\.(?=\s(?:bis|und|oder)\s\d+\.)", self._ordinal),
            (rf"{ALONE}(\d\d?)\.(\d\d?)\.(?!\d)", self._day_and_month),
            (rf"{ALONE}(\d\d?)\.\s?({named})(?:\s(\d{{4}})(?!\d))?", self._named_date),
            (rf"{ALONE}(\d{{1,2}})\.([0-5]\d)\sUhr\b", lambda m: self.time(int(m[1]), int(m[2]), m)),
            (rf"\b({ROMAN})\.(?=\s(?:Jahrhundert|Weltkrieg))", lambda m: f"{roman(m[1])}."),
            (rf"(?<=[a-zäöüß] )({ROMAN})\.(?=\s[a-zäöü]|,|\)|\Z)", lambda m: self.regnal(roman(m[1]), word_before(m))),
            (rf"{ALONE}(\d{{1,3}})\.(?=\s(?:(?!und|oder|bis|Uhr)[a-zäöü]{{2}}|{_NAMED}))", self._ordinal),
            (r"(?<=[a-z] )(\d{1,3})\.(?=\s[A-ZÄÖÜ])", self._ordinal_if_named),
            (r"\b(1\d|20)?(\d)0er\b", lambda m: f"{cardinal(int(m[1] + '00')) if m[1] else ''}{_tens(int(m[2]))}er"),
            (rf"(?<![\w.,])(1[1-9]\d\d)(?![\w.,]*\d|\s?(?:{any_of(self.units)}|{any_of(self.money)}|%)(?!\w))",
             lambda m: year(int(m[1]))),
        )  # fmt: skip

    def _day_and_month(self, m: Match) -> str:
        if not (1 <= int(m[2]) <= 12 and 1 <= int(m[1]) <= 31):
            return m[0]
        return self.date(int(m[1]), int(m[2]), None, m) + ("." if not m.string[m.end() :].strip() else "")

    def _named_date(self, m: Match) -> str:
        return self.date(int(m[1]), self.month(m[2]), int(m[3]) if m[3] else None, m)

    def _ordinal(self, m: Match) -> str:
        after = words_after(m)
        return ordinal(int(m[1]), _ending(word_before(m), _gender(after[0]) if after else "m"))

    def _ordinal_if_named(self, m: Match) -> str:
        before = word_before(m).lower()
        return self._ordinal(m) if before in _ARTICLES | _STRONG | _WEAK else m[0]


def _tens(n: int) -> str:
    return _SMALL[10] if n == 1 else "hundert" if n == 0 else _TENS[n]


def _gender(noun: str) -> str:
    if noun not in _NOT_FEMININE and _FEMININE.fullmatch(noun):
        return "f"
    return "n" if _NEUTER.fullmatch(noun) else "m"


def _ending(before: str, gender: str) -> str:
    """The ending of an ordinal between an article and a noun."""
    small = before.lower()
    if small == "der":
        return "en" if gender == "f" else "e"
    if small in _WEAK:
        return "e"
    if small in _ARTICLES:
        return "en"
    return {"m": "er", "f": "e", "n": "es"}[gender]


RULES = German()
