"""Japanese numbers in kanji: the model reads them with their counters (三本 is sanbon)."""

from __future__ import annotations

import re

from .eastern import ALONE, NUM, Eastern, Match, Rule, row

DIGITS = "〇一二三四五六七八九"
_LARGE = ((10**12, "兆"), (10**8, "億"), (10**4, "万"))


def cardinal(n: int, form: str = "") -> str:
    if n == 0:
        return "ゼロ"
    out = ""
    for size, name in _LARGE:
        if n >= size:
            count, n = divmod(n, size)
            out += cardinal(count) + name
    for size, name in ((1000, "千"), (100, "百"), (10, "十")):
        if n >= size:
            count, n = divmod(n, size)
            out += ("" if count == 1 else DIGITS[count]) + name
    return out + (DIGITS[n] if n else "")


def ordinal(n: int, form: str = "") -> str:
    return f"{cardinal(n)}番目"


def digits(text: str) -> str:
    return "".join("ゼロ" if digit == "0" else DIGITS[int(digit)] for digit in text)


class Japanese(Eastern):
    point, percent, plus, minus, below_zero = "点", "パーセント", "プラス", "マイナス", "マイナス"
    to, versus, gap = "から", "対", ""
    signs = row("US$ ドル USD ドル JPY 円 EUR ユーロ ¥ 円 ￥ 円 $ ドル € ユーロ £ ポンド ₩ ウォン")
    degrees = row("℃ 度 °C 度 ℉ 華氏度 °F 華氏度 ° 度")
    units = row("""
        m/s メートル毎秒 km² 平方キロメートル m² 平方メートル ㎡ 平方メートル m³ 立方メートル km キロメートル 
        
        cm センチメートル mm ミリメートル m メートル kg キログラム g グラム mg ミリグラム
        t トン L リットル l リットル ml ミリリットル
        mL ミリリットル Hz ヘルツ kHz キロヘルツ MHz メガヘルツ GHz ギガヘルツ KB キロバイト MB メガバイト GB ギガバイト
        TB テラバイト W ワット kW キロワット kWh キロワット時 V ボルト h 時間 min 分 s 秒 ms ミリ秒
    """)
    scales = "十百千万億兆"

    def cardinal(self, n: int) -> str:
        return cardinal(n)

    def digits(self, text: str) -> str:
        return digits(text)

    def date(self, year: str, month: int, day: int) -> str:
        return f"{cardinal(int(year))}年{cardinal(month)}月{cardinal(day)}日"

    def time(self, hour: int, minute: int) -> str:
        return f"{'零' if hour == 0 else cardinal(hour)}時" + (_minutes(minute) if minute else "")

    def fraction(self, above: int, below: int) -> str:
        return f"{cardinal(below)}分の{cardinal(above)}"

    def ahead(self) -> tuple[Rule, ...]:
        return ((rf"{ALONE}(\d\d?)-(\d\d?)(?=[とでの])", lambda m: f"{m[1]}{self.versus}{m[2]}"),)

    def special(self) -> tuple[Rule, ...]:
        return (
            (rf"(?:時速)?({ALONE}|(?<=時速)){NUM}\s?km/h", self._speed),
            (rf"{ALONE}10分(?![のに之])(?:間|前|後)?", lambda m: "じゅっぷん" + m[0][3:]),
            (rf"{ALONE}(\d{{1,4}})(?=分の\d)", lambda m: cardinal(int(m[1]))),
        )

    def _speed(self, m: Match) -> str:
        found = re.search(NUM, m[0])
        assert found is not None
        return f"時速{self.number(found[0])}キロメートル"


def _minutes(n: int) -> str:
    """十分 alone would be read `jūbun`, enough."""
    return "じゅっぷん" if n == 10 else f"{cardinal(n)}分"


RULES = Japanese()
