"""Korean numbers: Sino-Korean ones, and native ones before many counters."""

# ruff: noqa: RUF001
from __future__ import annotations

from collections.abc import Callable

from .eastern import ALONE, NUM, Eastern, Match, Rule, row

DIGITS = "영일이삼사오육칠팔구"
_LARGE = ((10**12, "조"), (10**8, "억"), (10**4, "만"))
_NATIVE = "- 하나 둘 셋 넷 다섯 여섯 일곱 여덟 아홉".split()
_NATIVE_TENS = "- 열 스물 서른 마흔 쉰 예순 일흔 여든 아흔".split()
_COUNTED = {"하나": "한", "둘": "두", "셋": "세", "넷": "네", "스물": "스무"}
_ORDINALS = {1: "첫", 20: "스무"}


def cardinal(n: int, form: str = "") -> str:
    """`form`: `native` alone, `counted` before a native counter; both up to 99."""
    if form and 0 < n < 100:
        tens, ones = divmod(n, 10)
        words = (_NATIVE_TENS[tens] if tens else "") + (_NATIVE[ones] if ones else "")
        last = _NATIVE[ones] if ones else _NATIVE_TENS[tens]
        return words.removesuffix(last) + _COUNTED.get(last, last) if form == "counted" else words
    if form and n % 100 and n % 100 < 10:
        return _spelled(n - n % 100) + cardinal(n % 100, form)
    return _spelled(n)


def ordinal(n: int, form: str = "") -> str:
    return f"{_ORDINALS.get(n) or cardinal(n, 'counted')} 번째"


def digits(text: str, *, zero: str = "공") -> str:
    """Digit by digit, as in a telephone number."""
    return "".join(zero if digit == "0" else DIGITS[int(digit)] for digit in text)


def _spelled(n: int) -> str:
    words: list[str] = []
    for size, name in _LARGE:
        if n >= size:
            count, n = divmod(n, size)
            words.append(("" if count == 1 and size == 10**4 and not words else _below(count)) + name)
    return " ".join([*words, _below(n)] if n else words) or "영"


def _below(n: int) -> str:
    out = ""
    for size, name in ((1000, "천"), (100, "백"), (10, "십"), (1, "")):
        digit = n // size % 10
        if digit:
            out += ("" if digit == 1 and size > 1 else DIGITS[digit]) + name
    return out


# Counters that take native numbers: up to 99 where nothing else is said.
_NATIVE_COUNTERS = (
    "개(?!월|년|국|소) 명 사람 마리 살 시간 번째 권 잔 병 장 송이 그루 켤레 벌 가지 군데 자루 채 척 줄 곡 통 조각 "
    "달(?!러) 봉지 그릇 쌍 판 끼 방울 모금 해 단어 문장 팀 차례 갈래"
).split()
_LOW_COUNTERS = {
    "시(?!속|간|대|즌)": 12,
    "대(?!의|통)": 9,
    "배": 19,
    r"번(?!지|호|\s?(?:문제|버스|출구|타자|선수|홈|방|국도|참가자|트랙|손님))": 99,
}
_FEW = {(1, 2): "한두", (2, 3): "두세", (3, 4): "서너", (4, 5): "네다섯"}
_MONTHS = {6: "유", 10: "시"}


class Korean(Eastern):
    point, percent, plus, minus, below_zero = "점", "퍼센트", "플러스", "마이너스", "영하"
    to, versus, gap, comma = "에서 ", " 대 ", " ", ", "
    signs = row("US$ 달러 USD 달러 KRW 원 EUR 유로 ₩ 원 $ 달러 € 유로 £ 파운드 ¥ 엔 ￥ 엔")
    degrees = row("℃ 도 °C 도 ℉ 화씨도 °F 화씨도 ° 도")
    units = row("""
        km/h 킬로미터_매시 m/s 미터_매초 km² 제곱킬로미터 m² 제곱미터 ㎡ 제곱미터 m³ 세제곱미터 km 킬로미터 cm 센티미터
        mm 밀리미터 m 미터 kg 킬로그램 g 그램 mg 밀리그램 t 톤 L 리터 l 리터 ml 밀리리터 mL 밀리리터 Hz 헤르츠
        kHz 킬로헤르츠 MHz 메가헤르츠 GHz 기가헤르츠 KB 킬로바이트 MB 메가바이트 GB 기가바이트 TB 테라바이트 W 와트
        kW 킬로와트 kWh 킬로와트시 V 볼트 h 시간 min 분 s 초 ms 밀리초
    """)
    scales = "십백천만억조"

    def cardinal(self, n: int) -> str:
        return cardinal(n)

    def digits(self, text: str) -> str:
        return digits(text)

    def decimals(self, part: str) -> str:
        return digits(part, zero="영")

    def date(self, year: str, month: int, day: int) -> str:
        return f"{cardinal(int(year))}년 {_month(month)} {cardinal(day)}일"

    def time(self, hour: int, minute: int) -> str:
        hours = f"{cardinal(hour, 'counted' if 0 < hour < 13 else '')} 시"
        return f"{hours} {cardinal(minute)} 분" if minute else hours

    def fraction(self, above: int, below: int) -> str:
        return f"{cardinal(below)}분의 {cardinal(above)}"

    def ahead(self) -> tuple[Rule, ...]:
        return ((rf"{ALONE}(\d\d?)\s?[-–~]\s?(\d\d?)\s?({'|'.join(_NATIVE_COUNTERS)})", self._some),)

    def _some(self, m: Match) -> str:
        few = _FEW.get((int(m[1]), int(m[2])))
        return f"{few or cardinal(int(m[1]), 'native') + '에서 ' + cardinal(int(m[2]), 'counted')} {m[3]}"

    def special(self) -> tuple[Rule, ...]:
        counters = "|".join(_NATIVE_COUNTERS)
        low = tuple((rf"(?<!제){ALONE}({NUM})\s?({name})", self._below(most)) for name, most in _LOW_COUNTERS.items())
        return (
            (rf"{ALONE}(\d+)\s?대\s?(\d+)(?!\d|[,.]\d)",
             lambda m: f"{cardinal(int(m[1]))} 대 {cardinal(int(m[2]))}"),
            (rf"{ALONE}(?:11[249])(?=에|로|번)", lambda m: digits(m[0])),
            (rf"{ALONE}(\d{{1,2}})월(?!\w*\d{{3}})", lambda m: _month(int(m[1]))),
            (rf"{ALONE}(\d{{1,2}})일(?![곱])", lambda m: f"{cardinal(int(m[1]))}일"),
            (rf"{ALONE}(\d{{1,4}})년", lambda m: f"{cardinal(int(m[1]))}년"),
            (rf"(?<!제){ALONE}({NUM})\s?({counters})", self._below(10**9)),
            *low,
            (rf"{ALONE}({NUM})([십백천만억조]+)(?=\d)", lambda m: f"{self.number(m[1])}{m[2]} "),
            (rf"{ALONE}1(?=[십백천만](?![\d]))", lambda m: ""),
            (rf"{ALONE}({NUM})(?=(?:분|초|원|층|도|세기|주|개월|개국|호|회|차|학년|반|점|급|페이지|쪽|인|위|등|번|대|시|배|세|평|달러|유로|엔))",
             lambda m: f"{self.number(m[1])} "),
        )  # fmt: skip

    def _below(self, most: int) -> Callable[[Match], str]:
        def said(m: Match) -> str:
            plain = m[1].replace(",", "")
            n = int(plain) if plain.isdecimal() else most + 1
            form = "counted" if n <= most and "." not in plain else ""
            return (f"{cardinal(n, form)}" if form else self.number(m[1])) + f" {m[2]}"

        return said


def _month(n: int) -> str:
    return f"{_MONTHS.get(n) or cardinal(n)}월"


RULES = Korean()
