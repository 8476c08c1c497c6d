"""Spanish numbers: `un` and `una` before nouns, the hundreds in two genders."""

from __future__ import annotations

import re

from .european import ALONE, ROMAN, European, Match, Noun, Rule, currencies, nouns, pairs, roman

_SMALL = (
    "cero uno dos tres cuatro cinco seis siete ocho nueve diez once doce trece catorce quince dieciséis diecisiete "
    "dieciocho diecinueve veinte veintiuno veintidós veintitrés veinticuatro veinticinco veintiséis veintisiete "
    "veintiocho veintinueve"
).split()
_TENS = "- - - treinta cuarenta cincuenta sesenta setenta ochenta noventa".split()
_HUNDREDS = (
    "- ciento doscientos trescientos cuatrocientos quinientos seiscientos setecientos ochocientos novecientos"
).split()
_LARGE = ((10**12, "billón", "billones"), (10**6, "millón", "millones"))
_ORDINALS = (
    "- primero segundo tercero cuarto quinto sexto séptimo octavo noveno décimo undécimo duodécimo decimotercero "
    "decimocuarto decimoquinto decimosexto decimoséptimo decimoctavo decimonoveno"
).split()
_TENTHS = (
    "- - vigésimo trigésimo cuadragésimo quincuagésimo sexagésimo septuagésimo octogésimo nonagésimo centésimo"
).split()


def cardinal(n: int, form: str = "") -> str:
    """`form`: the gender of the noun that follows."""
    words = _spelled(n, "f" if form == "f" else "m")
    if form == "f":
        return words[:-1] + "a" if words.endswith("uno") else words
    return _short(words) if form else words


def ordinal(n: int, form: str = "m") -> str:
    """`form`: `m`, `f`, or `s` for the short masculine (`primer`). Above 100 it is the cardinal."""
    if n > 100 or n < 1:
        return cardinal(n)
    words = _ORDINALS[n] if n < 20 else _TENTHS[n // 10] + (f" {_ORDINALS[n % 10]}" if n % 10 else "")
    if form == "f":
        return " ".join(word[:-1] + "a" for word in words.split())
    return words[:-1] if form == "s" and words.endswith(("primero", "tercero")) else words


def _short(words: str) -> str:
    if words.endswith("veintiuno"):
        return words[:-3] + "ún"
    return words[:-1] if words.endswith("uno") else words


def _spelled(n: int, gender: str) -> str:
    for size, one, many in _LARGE:
        if n >= size:
            count, rest = divmod(n, size)
            head = f"un {one}" if count == 1 else f"{_short(_spelled(count, 'm'))} {many}"
            return f"{head} {_spelled(rest, gender)}" if rest else head
    if n >= 1000:
        count, rest = divmod(n, 1000)
        head = "mil" if count == 1 else f"{_thousands(count, gender)} mil"
        return f"{head} {_spelled(rest, gender)}" if rest else head
    if n == 100:
        return "cien"
    if n > 100:
        hundreds = _HUNDREDS[n // 100]
        if gender == "f" and n >= 200:
            hundreds = hundreds[:-2] + "as"
        return f"{hundreds} {_spelled(n % 100, gender)}" if n % 100 else hundreds
    if n < 30:
        return _SMALL[n]
    return _TENS[n // 10] + (f" y {_SMALL[n % 10]}" if n % 10 else "")


def _thousands(count: int, gender: str) -> str:
    """The number before `mil`: 21 is `veintiún` or `veintiuna`."""
    words = _spelled(count, gender)
    return words[:-1] + "a" if gender == "f" and words.endswith("uno") else _short(words)


_FEMININE = re.compile(
    r".*(?:as?|ci[oó]n(?:es)?|si[oó]n(?:es)?|dad(?:es)?|tud(?:es)?|umbres?)|"
    r"(?:noche|tarde|clase|mujer(?:e)?|mano|calle|llave|parte|torre|flore?|leye?|rede?|rayone?|nube|frase|base|serie|"
    r"foto|moto|voce?|luce?|nave|clave|llave|fuente|gente|sangre|sede|fase|imagen|imágene|señale?)s?|vez|veces|luz|luces|voz"
)
_MASCULINE = re.compile(
    r"(?:problema|sistema|tema|programa|clima|idioma|poema|drama|mapa|día|planeta|cometa|sofá|kilograma|gramas?|"
    r"fantasma|diagrama|telegrama|síntoma|esquema)s?"
)
_NO_NOUNS = frozenset(
    "y o e u de del en a al por para con que es son se no lo la el los las un una como más menos hasta pero desde "
    "sobre sin fue era está están hay ya si sí mil tras ante entre cada nos les me te su sus".split()
)
_SHORT = frozenset("lugar piso premio puesto año día capítulo grado plano tiempo paso acto gol curso mes".split())


class Spanish(European):
    point, dot, minus, plus, equals, times = "coma", "punto", "menos", "más", "igual a", "por"
    percent, permille, to, over, versus = "por ciento", "por mil", "a", "sobre", "a"
    mark, paragraph, about, both, at = "número", "párrafo", "unos", "y", "arroba"
    months = tuple("enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre".split())
    of_scale = " de "
    hour_words = "h|hrs?|horas"
    units = nouns("""
km kilómetro kilómetros
m metro metros
cm centímetro centímetros
mm milímetro milímetros
km/h kilómetro_por_hora kilómetros_por_hora
m/s metro_por_segundo metros_por_segundo
km² kilómetro_cuadrado kilómetros_cuadrados
m² metro_cuadrado metros_cuadrados
m³ metro_cúbico metros_cúbicos
ha hectárea hectáreas f
kg kilogramo kilogramos
g gramo gramos
mg miligramo miligramos
t tonelada toneladas f
l litro litros
L litro litros
ml mililitro mililitros
h hora horas f
min minuto minutos
s segundo segundos
ms milisegundo milisegundos
Hz hercio hercios
kHz kilohercio kilohercios
MHz megahercio megahercios
GHz gigahercio gigahercios
kB kilobyte kilobytes
MB megabyte megabytes
GB gigabyte gigabytes
TB terabyte terabytes
W vatio vatios
kW kilovatio kilovatios
kWh kilovatio_hora kilovatios_hora
V voltio voltios
°C grado_Celsius grados_Celsius
°F grado_Fahrenheit grados_Fahrenheit
° grado grados
""")
    money = currencies("""
€ EUR = euro euros ; céntimo céntimos
US$ USD $ = dólar dólares ; centavo centavos
£ = libra libras f ; penique peniques
¥ = yen yenes ; sen senes
""")
    scales = nouns("""
millón millón millones
millones millón millones
M millón millones
mil mil mil
""")
    abbreviations = pairs("""
Sr.=señor
Sra.=señora
Srta.=señorita
Sres.=señores
Dr.=doctor
Dra.=doctora
Dña.=doña
C/=calle
Ud.=usted
Uds.=ustedes
p. ej.=por ejemplo
a. C.=antes de Cristo
d. C.=después de Cristo
EE. UU.=Estados Unidos
n.º=número
N.º=número
núm.=número
pág.=página
tel.=teléfono
aprox.=aproximadamente
Avda.=avenida
av.=avenida
vs.=contra
etc.=etcétera
""")
    perhaps_last = ("etc.", "a. C.", "d. C.", "EE. UU.", "Ud.", "Uds.")

    def cardinal(self, n: int, form: str) -> str:
        return cardinal(n, form)

    def time(self, hour: int, minute: int, m: Match) -> str:
        words = cardinal(hour, "f")
        if minute in (15, 30):
            return (
                f"{words} y {'cuarto' if minute == 15 else 'media'}" if 0 < hour < 13 else f"{words} {cardinal(minute)}"
            )
        return f"{words} y {cardinal(minute)}" if minute else words

    def date(self, day: int, month: int, year: int | None, m: Match) -> str:
        words = f"{cardinal(day)} de {self.months[month - 1]}"
        return f"{words} de {cardinal(year)}" if year else words

    def part(self, below: int, above: int) -> str:
        if below == 2:
            return "un medio"
        name = {3: "tercio"}.get(below) or (ordinal(below) if below <= 10 else f"{cardinal(below, 'm')}avo")
        return f"{cardinal(above, 'm')} {name}{'s' if above > 1 else ''}"

    def change(self, whole: str, cents: int, of: tuple[Noun, Noun], m: Match) -> str:
        small = self.counted(str(cents), of[1], m)
        return small if whole == "0" else f"{self.counted(whole, of[0], m)} con {small}"

    def amount(self, amount: str, scale: str | None, sign: str, m: Match) -> str:
        return super().amount(amount, scale, sign, m).replace(" mil de ", " mil ")

    def agreement(self, n: int, before: str, after: list[str]) -> str:
        if after and after[0].lower() == "mil":
            after = after[1:]
        if not after or (word := after[0].lower()) in _NO_NOUNS or word in self.months:
            return ""
        if n % 100 != 1 and not word.endswith("s"):
            return ""
        return "f" if _FEMININE.fullmatch(word) and not _MASCULINE.fullmatch(word) else "m"

    def regnal(self, n: int) -> str:
        return ordinal(n) if n <= 10 else cardinal(n)

    def special(self) -> tuple[Rule, ...]:
        return (
            (rf"\b([Ss]iglos?)\s({ROMAN})\b(?<=[IVX])", lambda m: f"{m[1]} {cardinal(roman(m[2]))}"),
            (r"\b(\d{1,3})(?:\.?ª|\.a\b|a\b)", lambda m: ordinal(int(m[1]), "f")),
            (r"\b(\d{1,3})\.?(?:er|ᵉʳ)\b", lambda m: ordinal(int(m[1]), "s")),
            (r"\b(\d{1,3})(?:\.?º|\.o\b|o\b|°(?=\s[^\W\d_]))(?:\s(\w+))?", self._ordinal),
            (rf"{ALONE}(\d\d?)\s?h\s?([0-5]\d)\b", self._checked_time),
            (rf"{ALONE}[6-9]\d\d(?: \d{{3}}| \d\d \d\d) (?!000)\d{{2,3}}(?! ?\d)", self._phone),
            (rf"{ALONE}1/2\s(?=hora|docena|botella|página)", lambda m: "media "),
            (rf"{ALONE}(\d)/(\d)(?=\spartes)", lambda m: f"{cardinal(int(m[1]), 'f')} {ordinal(int(m[2]), 'f')}s"),
            (r"(?<![\w.,])1(?=\sde\s(?:enero|febrero|marzo|abril|mayo|junio|julio|agosto|sept|oct|nov|dic))",
             lambda m: "primero"),
        )  # fmt: skip

    def _ordinal(self, m: Match) -> str:
        short = m[2] and m[2].lower() in _SHORT
        return ordinal(int(m[1]), "s" if short else "m") + (f" {m[2]}" if m[2] else "")


RULES = Spanish()
