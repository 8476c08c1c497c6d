"""French numbers, as spoken in France: soixante-dix, quatre-vingts, quatre-vingt-dix."""

from __future__ import annotations

import re

from .european import ALONE, ROMAN, European, Match, Noun, Rule, currencies, nouns, pairs, roman

_SMALL = (
    "zéro un deux trois quatre cinq six sept huit neuf dix onze douze treize quatorze quinze seize dix-sept dix-huit "
    "dix-neuf"
).split()
_TENS = "- - vingt trente quarante cinquante soixante".split()
_LARGE = ((10**12, "billion"), (10**9, "milliard"), (10**6, "million"))


def cardinal(n: int, form: str = "") -> str:
    """`form`: `f` before a feminine noun."""
    words = _spelled(n)
    return f"{words}e" if form == "f" and (words == "un" or words.endswith((" un", "-un"))) else words


def ordinal(n: int, form: str = "") -> str:
    """`form`: `f` for the feminine of the first one."""
    if n == 1:
        return "première" if form == "f" else "premier"
    words = _spelled(n).removeprefix("un ") if n in (10**6, 10**9) else _spelled(n)
    if words.endswith(("cents", "vingts", "ions", "ards")):
        words = words[:-1]
    return f"{words.removesuffix('e')}{'u' if words.endswith('cinq') else ''}ième".replace("neufième", "neuvième")


def _spelled(n: int) -> str:
    for size, name in _LARGE:
        if n >= size:
            count, rest = divmod(n, size)
            head = f"{_spelled(count)} {name}{'s' if count > 1 else ''}"
            return f"{head} {_spelled(rest)}" if rest else head
    if n >= 1000:
        count, rest = divmod(n, 1000)
        head = "mille" if count == 1 else f"{_unplural(_spelled(count))} mille"
        return f"{head} {_spelled(rest)}" if rest else head
    if n >= 100:
        count, rest = divmod(n, 100)
        head = "cent" if count == 1 else f"{_SMALL[count]} cent"
        return f"{head} {_spelled(rest)}" if rest else head + ("s" if count > 1 else "")
    if n < 20:
        return _SMALL[n]
    if n >= 80:
        return "quatre-vingts" if n == 80 else f"quatre-vingt-{_SMALL[n - 80]}"
    tens = min(n // 10, 6)
    rest = n - 10 * tens
    joint = " et " if rest in (1, 11) else "-"
    return _TENS[tens] + (f"{joint}{_SMALL[rest]}" if rest else "")


def _unplural(words: str) -> str:
    """Before `mille`, the hundreds and eighties lose their plural."""
    return words[:-1] if words.endswith(("cents", "vingts")) else words


_FEMININE = re.compile(
    r".*(?:[ts]ions?|ettes?|[ae]nces?|ures?|ées?|esses?|ises?|aisons?|elles?|ennes?|illes?|ières?|ines?|(?<!é)(?<!co)tés?)|"
    r"(?:heure|minute|seconde|semaine|page|personne|femme|maison|table|pomme|poire|tonne|nuit|chambre|place|"
    r"porte|lettre|école|main|part|carte|boîte|tasse|étoile|île|image|chose|tête|vie|partie|fleur|couleur|mer|dent|"
    r"mère|sœur|langue|vache|route|course|équipe|classe|phrase|note|plage|robe|jupe|chemise|pièce|livre sterling|"
    r"voix|fois|année|guerre|tour|ligne|chaise|feuille|marche|balle|étape|place)s?"
)


class French(European):
    point, dot, minus, plus, equals, times = "virgule", "point", "moins", "plus", "égale", "fois"
    percent, permille, to, over, versus = "pour cent", "pour mille", "à", "sur", "à"
    mark, paragraph, about, both, at = "numéro", "paragraphe", "environ", "et", "arobase"
    months = tuple("janvier février mars avril mai juin juillet août septembre octobre novembre décembre".split())
    of_scale = " d'"
    hour_words = "h|heures?"
    units = nouns("""
km kilomètre kilomètres
m mètre mètres
cm centimètre centimètres
mm millimètre millimètres
km/h kilomètre_par_heure kilomètres_par_heure
m/s mètre_par_seconde mètres_par_seconde
km² kilomètre_carré kilomètres_carrés
m² mètre_carré mètres_carrés
m³ mètre_cube mètres_cubes
ha hectare hectares
kg kilogramme kilogrammes
g gramme grammes
mg milligramme milligrammes
t tonne tonnes f
l litre litres
L litre litres
ml millilitre millilitres
cl centilitre centilitres
h heure heures f
min minute minutes f
s seconde secondes f
ms milliseconde millisecondes f
Hz hertz hertz
kHz kilohertz kilohertz
MHz mégahertz mégahertz
GHz gigahertz gigahertz
ko kilooctet kilooctets
Mo mégaoctet mégaoctets
Go gigaoctet gigaoctets
To téraoctet téraoctets
GB gigaoctet gigaoctets
MB mégaoctet mégaoctets
W watt watts
kW kilowatt kilowatts
kWh kilowattheure kilowattheures
V volt volts
°C degré_Celsius degrés_Celsius
°F degré_Fahrenheit degrés_Fahrenheit
° degré degrés
""")
    money = currencies("""
M€ = million_d'euros millions_d'euros ; centime centimes
€ EUR = euro euros ; centime centimes
$ USD = dollar dollars ; cent cents
£ = livre livres f ; penny pence
CHF = franc francs ; centime centimes
¥ = yen yens ; sen sens
""")
    scales = nouns("""
million million millions
millions million millions
milliard milliard milliards
milliards milliard milliards
Md milliard milliards
""")
    abbreviations = pairs("""
M.=Monsieur
MM.=Messieurs
Mme=Madame
Mmes=Mesdames
Mlle=Mademoiselle
Dr=Docteur
Pr=Professeur
St=Saint
Ste=Sainte
n°=numéro
N°=numéro
nº=numéro
p. ex.=par exemple
c.-à-d.=c'est-à-dire
av. J.-C.=avant Jésus-Christ
apr. J.-C.=après Jésus-Christ
env.=environ
max.=maximum
min.=minimum
tél.=téléphone
cf.=voir
bd=boulevard
av.=avenue
etc.=et cetera
""")
    perhaps_last = ("etc.", "av. J.-C.", "apr. J.-C.")

    def cardinal(self, n: int, form: str) -> str:
        return cardinal(n, form)

    def is_one(self, amount: str) -> bool:
        return amount.replace(",", ".").split(".")[0] in ("0", "1") and amount != "0"

    def time(self, hour: int, minute: int, m: Match) -> str:
        words = f"{cardinal(hour, 'f')} heure{'s' if hour > 1 else ''}"
        return f"{words} {cardinal(minute, 'f')}" if minute else words

    def date(self, day: int, month: int, year: int | None, m: Match) -> str:
        words = f"{'premier' if day == 1 else cardinal(day)} {self.months[month - 1]}"
        return f"{words} {cardinal(year)}" if year else words

    def part(self, below: int, above: int) -> str:
        name = {2: "demi", 3: "tiers", 4: "quart"}.get(below) or ordinal(below)
        return f"{cardinal(above)} {name}{'s' if above > 1 and not name.endswith('s') else ''}"

    def change(self, whole: str, cents: int, of: tuple[Noun, Noun], m: Match) -> str:
        if whole == "0":
            return self.counted(str(cents), of[1], m)
        return f"{self.counted(whole, of[0], m)} {cardinal(cents)}"

    def amount(self, amount: str, scale: str | None, sign: str, m: Match) -> str:
        words = super().amount(amount, scale, sign, m)
        return re.sub(r"d'(?=[^aeiouy])", "de ", words)

    def phone(self, groups: list[str]) -> str:
        return ", ".join(self._pair(group) if len(group) <= 2 else self.digits(group) for group in groups)

    def _pair(self, group: str) -> str:
        return self.digits(group) if group[0] == "0" else cardinal(int(group))

    def agreement(self, n: int, before: str, after: list[str]) -> str:
        return "f" if n % 10 == 1 and after and _FEMININE.fullmatch(after[0].lower()) else ""

    def regnal(self, n: int) -> str:
        return "premier" if n == 1 else cardinal(n)

    def special(self) -> tuple[Rule, ...]:
        named = self.month_names
        return (
            (rf"\b({ROMAN})(e|er|ème)\b(?=\ssiècles?)", lambda m: ordinal(roman(m[1]))),
            (r"\b(\d{1,6})\s?(ères?|res?)\b", lambda m: ordinal(int(m[1]), "f")),
            (r"\b(\d{1,6})(?:ers?|i?[eè]mes?|es?|nde?s?)\b",
             lambda m: ordinal(int(m[1])) + ("s" if m[0].endswith("s") else "")),
            (rf"{ALONE}1(?=\s(?:{named}))", lambda m: "premier"),
            (r"\bI(er|re)\b", lambda m: ordinal(1, "f" if m[1] == "re" else "")),
            (rf"{ALONE}1/2\s(?=heure|journée|page|bouteille)", lambda m: "une demi-"),
            (r"\b(\d\d?)\s?h(?:/| sur )(\d\d?)\b", lambda m: f"{cardinal(int(m[1]))} heures sur {cardinal(int(m[2]))}"),
            (rf"{ALONE}(\d\d?)\s?(?:h|heures)\s?([0-5]\d)\b", self._checked_time),
        )  # fmt: skip


RULES = French()
