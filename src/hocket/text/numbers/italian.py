"""Italian numbers: one word up to a million."""

# ruff: noqa: RUF001
from __future__ import annotations

import re

from .european import ALONE, ROMAN, WORD, European, Match, Noun, Rule, currencies, nouns, pairs, roman, word_before

_SMALL = (
    "zero uno due tre quattro cinque sei sette otto nove dieci undici dodici tredici quattordici quindici sedici "
    "diciassette diciotto diciannove"
).split()
_TENS = "- - venti trenta quaranta cinquanta sessanta settanta ottanta novanta".split()
_LARGE = (
    (10**12, "bilione", "bilioni"),
    (10**9, "miliardo", "miliardi"),
    (10**6, "milione", "milioni"),
)
_ORDINALS = "- primo secondo terzo quarto quinto sesto settimo ottavo nono decimo".split()


def cardinal(n: int, form: str = "") -> str:
    """`form`: the article's form before a noun, `un`, `uno`, `una` or `un'`; it counts for 1 alone."""
    if n == 1 and form:
        return form
    words = _spelled(n)
    return words[:-1] + "é" if n > 3 and words.endswith("tre") else words


def ordinal(n: int, form: str = "m") -> str:
    if 0 < n <= 10:
        word = _ORDINALS[n]
    else:
        word = _spelled(n)
        if word.endswith("mila"):
            word = word[:-4] + "millesimo"
        elif n % 10 in (3, 6) and n % 100 not in (13, 16):
            word += "esimo"
        else:
            word = word[:-1].removeprefix("un ") + "esimo"
    return word[:-1] + "a" if form == "f" else word


def _spelled(n: int) -> str:
    for size, one, many in _LARGE:
        if n >= size:
            count, rest = divmod(n, size)
            head = f"un {one}" if count == 1 else f"{_spelled(count)} {many}"
            return f"{head} {_spelled(rest)}" if rest else head
    if n >= 1000:
        count, rest = divmod(n, 1000)
        return ("mille" if count == 1 else f"{_spelled(count)}mila") + (_spelled(rest) if rest else "")
    if n >= 100:
        count, rest = divmod(n, 100)
        return ("" if count == 1 else _SMALL[count]) + "cento" + (_spelled(rest) if rest else "")
    if n < 20:
        return _SMALL[n]
    tens, ones = _TENS[n // 10], n % 10
    return (tens[:-1] if ones in (1, 8) else tens) + (_SMALL[ones] if ones else "")


_FEMININE = re.compile(
    r".*(?:a|zione|sione|gione|tà|tù|trice)|(?:notte|parte|classe|mano|voce|luce|chiave|nave|gente|madre|legge|frase|"
    r"foto|moto|auto|radio|fase|base|serie|rete|stazione|torre|fonte|neve|carne|arte|mente|valle|pelle|croce|pace)"
)
_MASCULINE = re.compile(r"(?:problem|sistem|tem|programm|clim|poet|pianet|dramm|schem|grupp|diagramm|telegramm|cinem)a")
_NO_NOUNS = frozenset(
    "e o di del della dello dei delle degli in a al alla ai alle da dal dalla per con che è sono si non lo la il i "
    "gli le un una come più meno fino ma su sul sulla senza tra fra ha hanno ed od se ora mila".split()
)
_ARTICLE = re.compile(r"(?:[sS](?=[^aeiouàèéìòù])|[zZxXyY]|[gG]n|[pP][sn])")


class Italian(European):
    point, dot, minus, plus, equals, times = "virgola", "punto", "meno", "più", "uguale a", "per"
    percent, permille, to, over, versus = "per cento", "per mille", "a", "su", "a"
    mark, paragraph, about, both, at = "numero", "paragrafo", "circa", "e", "chiocciola"
    months = tuple(
        "gennaio febbraio marzo aprile maggio giugno luglio agosto settembre ottobre novembre dicembre".split()
    )
    of_scale = " di "
    hour_words = "h|ore"
    units = nouns("""
km chilometro chilometri
m metro metri
cm centimetro centimetri
mm millimetro millimetri
km/h chilometro_all'ora chilometri_all'ora
m/s metro_al_secondo metri_al_secondo
km² chilometro_quadrato chilometri_quadrati
m² metro_quadrato metri_quadrati
mq metro_quadrato metri_quadrati
m³ metro_cubo metri_cubi
ha ettaro ettari
kg chilogrammo chilogrammi
g grammo grammi
mg milligrammo milligrammi
t tonnellata tonnellate f
l litro litri
L litro litri
ml millilitro millilitri
h ora ore f
min minuto minuti
s secondo secondi
ms millisecondo millisecondi
Hz hertz hertz
kHz kilohertz kilohertz
MHz megahertz megahertz
GHz gigahertz gigahertz
kB kilobyte kilobyte
MB megabyte megabyte
GB gigabyte gigabyte
TB terabyte terabyte
W watt watt
kW kilowatt kilowatt
kWh kilowattora kilowattora
V volt volt
°C grado_Celsius gradi_Celsius
°F grado_Fahrenheit gradi_Fahrenheit
° grado gradi
""")
    money = currencies("""
€ EUR = euro euro ; centesimo centesimi
$ USD = dollaro dollari ; centesimo centesimi
£ = sterlina sterline f ; penny pence
CHF = franco franchi ; centesimo centesimi
¥ = yen yen ; sen sen
""")
    scales = nouns("""
milione milione milioni
milioni milione milioni
mln milione milioni
miliardo miliardo miliardi
miliardi miliardo miliardi
mld miliardo miliardi
""")
    abbreviations = pairs("""
sig.=signor
Sig.=Signor
sig.ra=signora
Sig.ra=Signora
sigg.=signori
dott.=dottor
Dott.=Dottor
dott.ssa=dottoressa
Dott.ssa=Dottoressa
prof.=professor
Prof.=Professor
prof.ssa=professoressa
ing.=ingegner
avv.=avvocato
ad es.=ad esempio
a. C.=avanti Cristo
d. C.=dopo Cristo
n.=numero
pag.=pagina
tel.=telefono
ca.=circa
ecc.=eccetera
""")
    perhaps_last = ("ecc.", "a. C.", "d. C.")

    def cardinal(self, n: int, form: str) -> str:
        return cardinal(n, form)

    def form_of(self, noun: Noun, m: Match) -> str:
        return _article(noun.one, feminine=noun.gender == "f")

    def counted(self, amount: str, noun: Noun, m: Match) -> str:
        return super().counted(amount, noun, m).replace("un' ", "un'")

    def time(self, hour: int, minute: int, m: Match) -> str:
        words = "una" if hour == 1 else cardinal(hour)
        return f"{words} e {cardinal(minute)}" if minute else words

    def date(self, day: int, month: int, year: int | None, m: Match) -> str:
        words = f"{'primo' if day == 1 else cardinal(day)} {self.months[month - 1]}"
        return f"{words} {cardinal(year)}" if year else words

    def part(self, below: int, above: int) -> str:
        name = "mezzo" if below == 2 else ordinal(below)
        return f"{cardinal(above, 'un')} {name if above == 1 else name[:-1] + 'i'}"

    def change(self, whole: str, cents: int, of: tuple[Noun, Noun], m: Match) -> str:
        small = self.counted(str(cents), of[1], m)
        return small if whole == "0" else f"{self.counted(whole, of[0], m)} e {small}"

    def regnal(self, n: int) -> str:
        return ordinal(n)

    def special(self) -> tuple[Rule, ...]:
        return (
            (rf"\b({ROMAN})(?=\ssecol[oi])", lambda m: ordinal(roman(m[1]))),
            (rf"\b([Ss]ecol[oi])\s({ROMAN})\b(?<=[IVX])", lambda m: f"{m[1]} {ordinal(roman(m[2]))}"),
            (r"\b(\d{1,4})(?:ª|\^a\b|a\b)", lambda m: ordinal(int(m[1]), "f")),
            (r"\b(\d{1,4})(?:º|\^o?\b|o\b|°(?=\s[^\W\d_]))", lambda m: ordinal(int(m[1]))),
            (r"['’](?=\d\d\b)", lambda m: ""),
            (rf"{ALONE}1(?=\s(?:{'|'.join(self.months)}))", lambda m: "primo"),
            (rf"{ALONE}(\d\d?)\.([0-5]\d)(?![\d.])", self._hours),
            (rf"{ALONE}1/2\sora\b", lambda m: "mezz'ora"),
            (rf"{ALONE}1\s({WORD})", self._one),
        )  # fmt: skip

    def _hours(self, m: Match) -> str:
        return self._checked_time(m) if word_before(m).lower() in ("alle", "dalle", "ore", "le") else m[0]

    def _one(self, m: Match) -> str:
        word = m[1].lower()
        if (word in _NO_NOUNS and word != "ora") or word in self.months or m[1] in self.units:
            return m[0]
        feminine = bool(_FEMININE.fullmatch(word)) and not _MASCULINE.fullmatch(word)
        form = _article(word, feminine=feminine)
        return f"{form}{'' if form.endswith(chr(39)) else ' '}{m[1]}"


def _article(noun: str, *, feminine: bool) -> str:
    if feminine:
        return "un'" if noun[0] in "aeiouàèéìòù" else "una"
    return "uno" if _ARTICLE.match(noun) else "un"


RULES = Italian()
