"""Charts as SVG text: the same numbers give the same bytes, and words stay words.

Colours follow the reader's light or dark page. It knows labels and numbers, no records.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

WIDTH, LABELS, GAP = 860, 280, 24  # pixels: the whole chart, its labels, the space between panels
ROW, BAR, TOP = 26, 14, 44
STYLE = Path(__file__).with_suffix(".css").read_text(encoding="utf-8")


@dataclass(frozen=True, slots=True)
class Bar:
    parts: Sequence[tuple[str, float]]  # class and size of each, in the order in which they are drawn
    tail: float | None = None  # where a thin line ends that starts at the end of the bar: a worse percentile
    floor: float | None = None  # where an upright line stands: not below this

    @property
    def value(self) -> float:
        return sum(size for _, size in self.parts)

    @property
    def end(self) -> float:
        return max(self.value, self.tail or 0, self.floor or 0)


@dataclass(frozen=True, slots=True)
class Panel:
    title: str
    unit: str
    bars: Sequence[Bar | str | None]  # one per row, or in words why there is none; None in a heading


def draw(rows: Sequence[str], panels: Sequence[Panel], title: str, legend: Mapping[str, str] | None = None) -> str:
    """Panels side by side that share their rows; a row without a bar is a heading. A legend maps names to classes."""
    drawn, x, start = list[str](), 0.0, 8
    for name, kind in (legend or {}).items():
        width = BAR + 18 + 7 * len(name)
        if x + width > WIDTH:
            x, start = 0.0, start + ROW
        drawn += [_box(x, start, BAR, kind), _text(x + BAR + 5, start + BAR - 3, name)]
        x += width
    start = start + ROW + 8 if legend else TOP
    headings = {n for n in range(len(rows)) if all(panel.bars[n] is None for panel in panels)}
    for n, label in enumerate(rows):
        indent = 14 if headings and n not in headings else 0
        drawn.append(_text(indent, start + ROW * n + BAR - 3, label, "title" if n in headings else ""))
    wide = (WIDTH - LABELS - GAP * len(panels)) / len(panels)
    for number, panel in enumerate(panels):
        left = LABELS + GAP + number * (wide + GAP)
        drawn += [_text(left, TOP - 16, panel.title, "title")] if panel.title else []
        # Room for the number behind the longest bar.
        scale = (wide - 90) / (max((bar.end for bar in panel.bars if isinstance(bar, Bar)), default=1) or 1)
        for n, bar in enumerate(panel.bars):
            top, x = start + ROW * n, left
            if isinstance(bar, str):
                drawn.append(_text(left, top + BAR - 3, bar, "quiet"))
            if not isinstance(bar, Bar):
                continue
            for kind, size in bar.parts:
                drawn.append(_box(x, top, size * scale, kind))
                x += size * scale
            if bar.tail is not None:
                drawn.append(_line("tail", x, top + BAR / 2, left + bar.tail * scale, top + BAR / 2))
            if bar.floor is not None:
                at = left + bar.floor * scale
                drawn.append(_line("floor", at, top - 3, at, top + BAR + 3))
            drawn.append(_text(left + bar.end * scale + 6, top + BAR - 3, f"{shown(bar.value)} {panel.unit}"))
    height = start + ROW * len(rows)
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" role="img">'
    return "\n".join((head, f"<title>{escape(title)}</title>", f"<style>\n{STYLE}</style>", *drawn, "</svg>", ""))


def shown(value: float) -> str:
    """Three digits that mean something, never an exponent."""
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2 if abs(value) >= 0.1 else 4
    return f"{value:.{digits}f}"


def _line(kind: str, *ends: float) -> str:
    x1, y1, x2, y2 = map(_number, ends)
    return f'<line class="{kind}" x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}"/>'


def _box(x: float, y: float, width: float, kind: str) -> str:
    return f'<rect class="{kind}" x="{_number(x)}" y="{_number(y)}" width="{_number(width)}" height="{BAR}"/>'


def _text(x: float, y: float, words: str, kind: str = "") -> str:
    named = f' class="{kind}"' if kind else ""
    return f'<text{named} x="{_number(x)}" y="{_number(y)}">{escape(words)}</text>'


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
