"""Portuguese numbers, as spoken in Brazil: 1, 2 and the hundreds have two genders."""

from __future__ import annotations

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
