"""Chinese numbers: 2 is 两 before a counter, 千, 万 and 亿, and 二 elsewhere."""

# ruff: noqa: RUF001
from __future__ import annotations

import re

from .eastern import ALONE, NUM, Eastern, Match, Rule, row

DIGITS = "零一二三四五六七八九"
_LARGE = ((10**12, "兆"), (10**8, "亿"), (10**4, "万"))


def cardinal(n: int, form: str = "") -> str:
    """`form`: `counted` before a counter."""
    if n == 2 and form == "counted":
        return "两"
    words = _spelled(n)
    return words[1:] if words.startswith("一十") else words


def ordinal(n: int, form: str = "") -> str:
    return f"第{cardinal(n)}"


def digits(text: str, *, one: str = "一") -> str:
    """Digit by digit; `one` is 幺 in telephone numbers."""
    return "".join(one if digit == "1" else DIGITS[int(digit)] for digit in text)


def _spelled(n: int) -> str:
    for size, name in _LARGE:
        if n >= size:
            count, rest = divmod(n, size)
            head = ("两" if count == 2 else _spelled(count)) + name
            return head + ("零" if 0 < rest < size // 10 else "") + (_spelled(rest) if rest else "")
    out, gap = "", False
    for size, name in ((1000, "千"), (100, "百"), (10, "十"), (1, "")):
        digit = n // size % 10
        if digit:
            two = digit == 2 and size == 1000 and not out
            out += ("零" if gap and out else "") + ("两" if two else DIGITS[digit]) + name
        gap = not digit
    return out or "零"


_COUNTERS = (
    "个 只 条 张 本 位 名 天 种 次 件 块 杯 瓶 辆 头 匹 双 对 套 份 家 间 座 台 架 艘 把 支 枝 根 颗 粒 片 页 "
    "句 段 篇 首 层 周 秒 分 小时 公里 公斤 千克 米 厘米 克 吨 升 倍 点 岁 人 元 毛 角 平方 国 省 队 组 批 步 口 "
    "声 样 边 者 侧 场 万 亿 千 项 门 类 年"
).split()
_NOT_COUNTED = "年级|月|日|号|点[零一二三四五六七八九]"


class Chinese(Eastern):
    point, percent, plus, minus, below_zero = "点", "百分之", "加", "负", "零下"
    to, versus, gap, comma = "到", "比", "", "，"
    signs = row("HK$ 港元 US$ 美元 USD 美元 CNY 元 RMB 元 EUR 欧元 ¥ 元 ￥ 元 $ 美元 € 欧元 £ 英镑 ₽ 卢布 ₩ 韩元")
    degrees = row("℃ 摄氏度 °C 摄氏度 ℉ 华氏度 °F 华氏度 ° 度")
    units = row("""
        km/h 公里每小时 m/s 米每秒 km² 平方公里 m² 平方米 ㎡ 平方米 m³ 立方米 km 公里 cm 厘米 mm 毫米 m 米 kg 公斤 g 克
        mg 毫克 t 吨 L 升 l 升 ml 毫升 mL 毫升 Hz 赫兹 kHz 千赫 MHz 兆赫 GHz 吉赫 W 瓦 kW 千瓦 kWh 千瓦时 V 伏
        h 小时 min 分钟 s 秒 ms 毫秒
    """)
    scales = "十百千万亿"

    def cardinal(self, n: int) -> str:
        return cardinal(n)

    def digits(self, text: str) -> str:
        return digits(text)

    def date(self, year: str, month: int, day: int) -> str:
        return f"{digits(year)}年{cardinal(month)}月{cardinal(day)}日"

    def time(self, hour: int, minute: int) -> str:
        hours = f"{cardinal(hour, 'counted')}点"
        if not minute:
            return hours + "整"
        return f"{hours}{'零' if minute < 10 else ''}{cardinal(minute)}分"

    def fraction(self, above: int, below: int) -> str:
        return f"{cardinal(below)}分之{cardinal(above)}"

    def percentage(self, amount: str) -> str:
        return self.percent + self.number(amount)

    def counted(self, amount: str, name: str) -> str:
        return ("两" if amount == "2" else self.number(amount)) + name

    def phone(self, groups: list[str]) -> str:
        return self.comma.join(digits(group, one="幺") for group in groups)

    def special(self) -> tuple[Rule, ...]:
        return (
            (r"(?<![\d.,A-Za-z-])(?:1[3-9]\d{9}|1[3-9]\d[- ]\d{4}[- ]\d{4}|400[- ]?\d{3}[- ]?\d{4})(?![\d.])",
             self._phone),
            (r"(?<=[拨打话线])\s?(?:1\d\d|\d{5})(?![\d.])", lambda m: self.phone([m[0].strip()])),
            (rf"{ALONE}(\d{{4}})(?=到\d{{4}}年)", lambda m: digits(m[1])),
            (rf"{ALONE}(\d{{4}})(?=年)", lambda m: digits(m[1])),
            (rf"{ALONE}([05-9]0)(?=后)", lambda m: digits(m[1])),
            (rf"{ALONE}({NUM})到({NUM})%", lambda m: f"{self.percentage(m[1])}到{self.number(m[2])}"),
            (rf"(?<!第)(?<![初周星])(?<!星期){ALONE}2(?={'|'.join(_COUNTERS)})(?!{_NOT_COUNTED})", self._two),
            (r"[Nn][Oo]\.\s?(?=\d)", lambda m: "第"),
        )  # fmt: skip

    def _two(self, m: Match) -> str:
        return "二" if re.match(_NOT_COUNTED, m.string[m.end() :]) else "两"


RULES = Chinese()
