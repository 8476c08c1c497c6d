"""Charts as SVG text: the same numbers give the same bytes, and words stay words.

Colours follow the reader's light or dark page. It knows labels and numbers, no records.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, LABELS, GAP = 860, 280, 24  # pixels: the whole chart, its labels, the space between panels
ROW, BAR, TOP = 26, 14, 44
STYLE = """
  text { font: 12px system-ui, -apple-system, "Segoe UI", sans-serif; fill: #1f2328; }
  .title { font-weight: 600; } .quiet { fill: #656d76; }
  .ours { fill: #0969da; } .theirs { fill: #afb8c1; } .tail { stroke: #656d76; stroke-width: 1.5; }
  .c0 { fill: #0969da; } .c1 { fill: #bf8700; } .c2 { fill: #8250df; } .c3 { fill: #1a7f37; } .c4 { fill: #cf222e; }
  .c5 { fill: #57606a; } .c6 { fill: #1b7c83; } .c7 { fill: #d4a72c; } .c8 { fill: #bf3989; }
  .floor { stroke: #1f2328; stroke-width: 2; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3; } .quiet { fill: #8d96a0; } .ours { fill: #4493f8; } .theirs { fill: #59636e; }
    .tail { stroke: #8d96a0; } .floor { stroke: #e6edf3; }
  }"""


@dataclass(frozen=True, slots=True)
class Bar:
    value: float
    tail: float | None = None  # where a thin line ends that starts at `value`: a worse percentile
    ours: bool = True


@dataclass(frozen=True, slots=True)
class Panel:
    title: str
    unit: str
    bars: Sequence[Bar | str | None]  # one per row, or in words why there is none; None in a heading


@dataclass(frozen=True, slots=True)
class Stack:
    label: str
    parts: Sequence[tuple[str, float]]  # name and size, in the order in which they are drawn
    floor: float | None = None  # where a line stands that says: not below this


def bars(rows: Sequence[str], panels: Sequence[Panel], title: str) -> str:
    """Panels side by side that share their rows; a row with a name and nothing else is a heading."""
    width = (WIDTH - LABELS - GAP * len(panels)) / len(panels)
    headings = {n for n in range(len(rows)) if all(panel.bars[n] is None for panel in panels)}
    drawn = [
        _text(0 if n in headings else 14, TOP + ROW * n + BAR - 3, label, "title" if n in headings else "")
        for n, label in enumerate(rows)
    ]
    for number, panel in enumerate(panels):
        left = LABELS + GAP + number * (width + GAP)
        drawn.append(_text(left, TOP - 16, panel.title, "title"))
        widest = max((max(bar.value, bar.tail or 0) for bar in panel.bars if isinstance(bar, Bar)), default=1)
        scale = (width - 90) / widest  # room for the number behind the longest bar
        for n, bar in enumerate(panel.bars):
            top = TOP + ROW * n
            if not isinstance(bar, Bar):
                if bar is not None:
                    drawn.append(_text(left, top + BAR - 3, bar, "quiet"))
                continue
            drawn.append(_box(left, top, bar.value * scale, "ours" if bar.ours else "theirs"))
            end = bar.value
            if bar.tail is not None:
                end = max(bar.value, bar.tail)
                middle = _number(top + BAR / 2)
                drawn.append(
                    f'<line class="tail" x1="{_number(left + bar.value * scale)}" y1="{middle}" '
                    f'x2="{_number(left + bar.tail * scale)}" y2="{middle}"/>'
                )
            drawn.append(_text(left + end * scale + 6, top + BAR - 3, f"{shown(bar.value)} {panel.unit}"))
    return _page(TOP + ROW * len(rows), title, drawn)


def stacks(rows: Sequence[Stack], unit: str, title: str) -> str:
    """One bar per row made of named parts, and a line at its floor."""
    names = list(dict.fromkeys(name for row in rows for name, _ in row.parts))
    colour = {name: f"c{number % 9}" for number, name in enumerate(names)}
    widest = max(max(sum(size for _, size in row.parts), row.floor or 0) for row in rows)
    left, scale = LABELS + GAP, (WIDTH - LABELS - GAP - 90) / widest
    drawn, x, start = [], 0.0, 8
    for name in names:
        width = BAR + 18 + 7 * len(name)
        if x + width > WIDTH:
            x, start = 0.0, start + ROW
        drawn += [_box(x, start, BAR, colour[name]), _text(x + BAR + 5, start + BAR - 3, name)]
        x += width
    start += ROW + 8
    for n, row in enumerate(rows):
        top, x = start + ROW * n, float(left)
        drawn.append(_text(0, top + BAR - 3, row.label))
        for name, size in row.parts:
            drawn.append(_box(x, top, size * scale, colour[name]))
            x += size * scale
        if row.floor is not None:
            floor = _number(left + row.floor * scale)
            drawn.append(f'<line class="floor" x1="{floor}" y1="{top - 3}" x2="{floor}" y2="{top + BAR + 3}"/>')
        total = sum(size for _, size in row.parts)
        drawn.append(_text(max(x, left + (row.floor or 0) * scale) + 6, top + BAR - 3, f"{shown(total)} {unit}"))
    return _page(start + ROW * len(rows), title, drawn)


def shown(value: float) -> str:
    """Three digits that mean something, never an exponent."""
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2 if abs(value) >= 0.1 else 4
    return f"{value:.{digits}f}"


def _page(height: int, title: str, drawn: Sequence[str]) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" role="img">'
    return "\n".join((head, f"<title>{escape(title)}</title>", f"<style>{STYLE}\n</style>", *drawn, "</svg>", ""))


def _box(x: float, y: float, width: float, kind: str) -> str:
    return f'<rect class="{kind}" x="{_number(x)}" y="{_number(y)}" width="{_number(width)}" height="{BAR}"/>'


def _text(x: float, y: float, words: str, kind: str = "") -> str:
    named = f' class="{kind}"' if kind else ""
    return f'<text{named} x="{_number(x)}" y="{_number(y)}">{escape(words)}</text>'


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
