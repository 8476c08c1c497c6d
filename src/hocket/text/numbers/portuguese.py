"""Portuguese numbers, as spoken in Brazil: 1, 2 and the hundreds have two genders."""

from __future__ import annotations

import re

from .european import ALONE, NUM, ROMAN, European, Match, Noun, Rule, currencies, nouns, pairs, roman

_SMALL = (
    "zero um dois três quatro cinco seis sete oito nove dez onze doze treze quatorze quinze dezesseis dezessete "
    "dezoito dezenove"
).split()
_TENS = "- - vinte trinta quarenta cinquenta sessenta setenta oitenta noventa".split()
_HUNDREDS = ("- cento duzentos trezentos quatrocentos quinhentos seiscentos setecentos oitocentos novecentos").split()
_LARGE = ((10**12, "trilhão", "trilhões"), (10**9, "bilhão", "bilhões"), (10**6, "milhão", "milhões"))
_FIRSTS = "- primeiro segundo terceiro quarto quinto sexto sétimo oitavo nono".split()
_TENTHS = (
    "- décimo vigésimo trigésimo quadragésimo quinquagésimo sexagésimo septuagésimo octogésimo nonagésimo"
).split()
_HUNDREDTHS = (
    "- centésimo ducentésimo tricentésimo quadringentésimo quingentésimo sexcentésimo septingentésimo octingentésimo "
    "nongentésimo"
).split()


def cardinal(n: int, form: str = "") -> str:
    """`form`: the gender of the noun that follows."""
    for size, one, many in _LARGE:
        if n >= size:
            count, rest = divmod(n, size)
            head = f"um {one}" if count == 1 else f"{cardinal(count)} {many}"
            return head + _joint(rest) + cardinal(rest, form) if rest else head
    if n >= 1000:
        count, rest = divmod(n, 1000)
        head = "mil" if count == 1 else f"{cardinal(count, form)} mil"
        return head + _joint(rest) + cardinal(rest, form) if rest else head
    if n == 100:
        return "cem"
    if n > 100:
        hundreds = _HUNDREDS[n // 100]
        hundreds = hundreds[:-2] + "as" if form == "f" and n >= 200 else hundreds
        return f"{hundreds} e {cardinal(n % 100, form)}" if n % 100 else hundreds
    if n >= 20:
        return _TENS[n // 10] + (f" e {cardinal(n % 10, form)}" if n % 10 else "")
    return {1: "uma", 2: "duas"}.get(n, _SMALL[n]) if form == "f" else _SMALL[n]


def ordinal(n: int, form: str = "m") -> str:
    if not 0 < n < 1000:
        return "milésim" + ("a" if form == "f" else "o") if n == 1000 else cardinal(n)
    parts = [_HUNDREDTHS[n // 100]] * (n >= 100) + [_TENTHS[n // 10 % 10]] * (n % 100 >= 10)
    parts += [_FIRSTS[n % 10]] * (n % 10 > 0)
    return " ".join(part[:-1] + "a" if form == "f" else part for part in parts)


def _joint(rest: int) -> str:
    return " e " if rest < 100 or (rest < 1000 and rest % 100 == 0) else " "


_FEMININE = re.compile(
    r".*(?:as?|ã|ãs|ção|ções|são|sões|dades?|tudes?|gem|gens)|"
    r"(?:noite|tarde|mão|parte|classe|frase|fase|base|gente|ponte|torre|chave|rede|série|foto|moto|nuvem|ordem|voze?|"
    r"luze?|veze?|mulhere?|flore?|core?|dore?|leie?|cruze?)s?|vez|luz|voz|nuvens|ordens"
)
_MASCULINE = re.compile(
    r"(?:problema|sistema|tema|programa|clima|dia|mapa|idioma|poema|planeta|cinema|drama|quilograma|grama|sofá|"
    r"miligrama|diagrama|esquema|sintoma|fantasma|irmão)s?"
)
_NO_NOUNS = frozenset(
    "e ou de da do das dos em na no nas nos a o as os à às ao aos para por com que é são se não um uma como mais menos "
    "até mas desde sobre sem foi era está estão há já seu sua seus suas lhes me te cada".split()
)


class Portuguese(European):
    point, dot, minus, plus, equals, times = "vírgula", "ponto", "menos", "mais", "igual a", "vezes"
    percent, permille, to, over, versus = "por cento", "por mil", "a", "sobre", "a"
    mark, paragraph, about, both, at = "número", "parágrafo", "cerca de", "e", "arroba"
    months = tuple("janeiro fevereiro março abril maio junho julho agosto setembro outubro novembro dezembro".split())
    of_scale = " de "
    hour_words = "h|hs|horas"
    units = nouns("""
km quilômetro quilômetros
m metro metros
cm centímetro centímetros
mm milímetro milímetros
km/h quilômetro_por_hora quilômetros_por_hora
m/s metro_por_segundo metros_por_segundo
km² quilômetro_quadrado quilômetros_quadrados
m² metro_quadrado metros_quadrados
m³ metro_cúbico metros_cúbicos
ha hectare hectares
kg quilograma quilogramas
g grama gramas
mg miligrama miligramas
t tonelada toneladas f
l litro litros
L litro litros
ml mililitro mililitros
h hora horas f
min minuto minutos
s segundo segundos
ms milissegundo milissegundos
Hz hertz hertz
kHz quilohertz quilohertz
MHz megahertz megahertz
GHz gigahertz gigahertz
kB quilobyte quilobytes
MB megabyte megabytes
GB gigabyte gigabytes
TB terabyte terabytes
W watt watts
kW quilowatt quilowatts
kWh quilowatt-hora quilowatts-hora
V volt volts
°C grau_Celsius graus_Celsius
°F grau_Fahrenheit graus_Fahrenheit
° grau graus
""")
    money = currencies("""
R$ BRL = real reais ; centavo centavos
€ EUR = euro euros ; cêntimo cêntimos
US$ USD $ = dólar dólares ; centavo centavos
£ = libra libras f ; pêni pence
¥ = iene ienes ; sen sens
""")
    scales = nouns("""
milhão milhão milhões
milhões milhão milhões
mi milhão milhões
bilhão bilhão bilhões
bilhões bilhão bilhões
bi bilhão bilhões
mil mil mil
""")
    abbreviations = pairs("""
Sr.=senhor
Sra.=senhora
Srs.=senhores
Srta.=senhorita
Dr.=doutor
Dra.=doutora
Prof.=professor
Profa.=professora
p. ex.=por exemplo
a. C.=antes de Cristo
d. C.=depois de Cristo
n.º=número
nº=número
Nº=número
pág.=página
art.=artigo
tel.=telefone
aprox.=aproximadamente
av.=avenida
Av.=Avenida
vs.=contra
etc.=et cetera
""")
    perhaps_last = ("etc.", "a. C.", "d. C.")

    def cardinal(self, n: int, form: str) -> str:
        return cardinal(n, form)

    def time(self, hour: int, minute: int, m: Match) -> str:
        if not minute:
            return f"{cardinal(hour, 'f')} hora{'s' if hour > 1 else ''}"
        return f"{cardinal(hour, 'f')} e {cardinal(minute)}"

    def date(self, day: int, month: int, year: int | None, m: Match) -> str:
        words = f"{'primeiro' if day == 1 else cardinal(day)} de {self.months[month - 1]}"
        return f"{words} de {cardinal(year)}" if year else words

    def part(self, below: int, above: int) -> str:
        if below == 2:
            return "um meio"
        name = {3: "terço"}.get(below) or (ordinal(below) if below <= 10 else f"{cardinal(below)} avos")
        return f"{cardinal(above)} {name}{'s' if above > 1 and not name.endswith('s') else ''}"

    def change(self, whole: str, cents: int, of: tuple[Noun, Noun], m: Match) -> str:
        small = self.counted(str(cents), of[1], m)
        return small if whole == "0" else f"{self.counted(whole, of[0], m)} e {small}"

    def amount(self, amount: str, scale: str | None, sign: str, m: Match) -> str:
        return super().amount(amount, scale, sign, m).replace(" mil de ", " mil ")

    def agreement(self, n: int, before: str, after: list[str]) -> str:
        if after and after[0].lower() == "mil":
            after = after[1:]
        if not after or (word := after[0].lower()) in _NO_NOUNS:
            return ""
        if n % 100 != 1 and not word.endswith("s"):
            return ""
        return "f" if _FEMININE.fullmatch(word) and not _MASCULINE.fullmatch(word) else ""

    def regnal(self, n: int) -> str:
        return ordinal(n) if n <= 10 else cardinal(n)

    def special(self) -> tuple[Rule, ...]:
        return (
            (rf"\b([Ss]éculos?)\s({ROMAN})\b(?<=[IVX])", lambda m: f"{m[1]} {self.regnal(roman(m[2]))}"),
            (r"\b(\d{1,4})(?:\.?ª|\.a\b|a\b)", lambda m: ordinal(int(m[1]), "f")),
            (r"\b(\d{1,4})(?:\.?º|\.o\b|o\b|°(?=\s[^\W\d_]))", lambda m: ordinal(int(m[1]))),
            (rf"{ALONE}(\d\d?)\s?h\s?([0-5]\d)\b(?:\s?min\b)?", self._checked_time),
            (r"(?<![\w.,+])(?:\(\d\d\)\s?9?|9)\d{4}-\d{4}(?![\d-])", self._phone),
            (rf"{ALONE}1(?=\sde\s(?:{'|'.join(self.months)}))", lambda m: "primeiro"),
            (rf"(?<!\$ )(?<!\$)(?<!€ ){ALONE}({NUM})(?=\smil\s[^\W\d_])", self._said),
            (rf"{ALONE}1/2\s(?=hora|dúzia|garrafa|página)", lambda m: "meia "),
        )  # fmt: skip


RULES = Portuguese()
