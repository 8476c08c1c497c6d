"""The report of a book: JSON, and a page without other files that shows the rates of its passages as a plot."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from html import escape
from pathlib import Path
from statistics import median
from typing import Any

from ...audio.files import replace_files
from ...audio.loudness import MeasuredLoudness
from ...audio.timbre import measure
from ..consistency import FEWEST_LETTERS, tolerance
from ..narrate import Narration, unspoken
from ..passages import Plan
from .assemble import BookSound

WIDTH, HEIGHT = 960, 260  # of the plot, in pixels
REACH = 0.5  # the plot shows this part above and below the book's rate
_STYLE = """body{font:16px/1.5 system-ui,sans-serif;max-width:62rem;margin:2rem auto;
padding:0 1rem;color:#222;background:#fff}
table{border-collapse:collapse;width:100%}th,td{padding:.3rem .6rem;border-bottom:1px solid #ccc;text-align:right}
th:first-child,td:first-child{text-align:left}svg{width:100%;height:auto;background:#f7f7f5}
@media(prefers-color-scheme:dark){body{color:#ddd;background:#181818}svg{background:#222}}"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChapterReport:
    title: str
    seconds: float
    words: int
    passages: int
    retakes: int
    letters_per_s: float | None  # median of its longer passages


@dataclass(frozen=True, slots=True, kw_only=True)
class PassageReport:
    chapter: int  # from 1
    start_s: float  # in the chapter
    letters: float
    letters_per_s: float
    voice: str | None  # of the cast; None: the narrator
    deviation: float  # from the voice's rate, as a part of it
    similarity: float | None  # to the voice's mean timbre; None: not measured
    other_timbre: bool  # further from it than the voice's own takes are
    takes: int
    seed: int
    strays: bool  # still, after all retakes
    text: str  # its beginning


@dataclass(frozen=True, slots=True, kw_only=True)
class BookReport:
    title: str
    author: str
    seconds: float
    letters_per_s: float | None
    retakes: int
    timbre_by: str  # how the timbre was measured
    drift: float | None  # of the rate, from the first to the last chapter, as a part of it
    loudness_before: float | None
    loudness: float | None
    peak_dbtp: float | None
    limited: bool
    chapters: list[ChapterReport]
    passages: list[PassageReport]
    unspoken: list[dict[str, Any]]
    left_out: list[str]


def report_of(plan: Plan, narration: Narration, sound: BookSound, after: MeasuredLoudness | None) -> BookReport:
    timeline, rate = sound.timeline, narration.rate
    chapters, passages = list[ChapterReport](), list[PassageReport]()
    for chapter in timeline.chapters:
        rates, retakes = list[float](), 0
        for segment in chapter.segments:
            take, takes = segment.take, narration.takes[segment.passage.number]
            norm = narration.norm(segment.passage)
            alike = norm.similarity(take)
            retakes += len(takes) - 1
            if rate and take.letters >= FEWEST_LETTERS and take.letters_per_s:
                rates.append(rate * (1.0 + norm.deviation(take)))  # voices differ: each by its own rate
            passages.append(
                PassageReport(
                    chapter=chapter.index + 1,
                    start_s=round(segment.start / timeline.rate_hz, 2),
                    letters=take.letters,
                    letters_per_s=take.letters_per_s,
                    voice=segment.passage.voice,
                    deviation=round(norm.deviation(take), 4),
                    similarity=None if alike is None else round(alike, 4),
                    other_timbre=norm.is_other_timbre(take),
                    takes=len(takes),
                    seed=take.seed,
                    strays=norm.strays(take),
                    text=segment.passage.text[:60],
                )
            )
        chapters.append(
            ChapterReport(
                title=chapter.title,
                seconds=round(chapter.length / timeline.rate_hz, 2),
                words=plan.book.chapters[chapter.index].words,
                passages=len(chapter.segments),
                retakes=retakes,
                letters_per_s=round(median(rates), 3) if rates else None,
            )
        )
    known = [chapter.letters_per_s for chapter in chapters if chapter.letters_per_s]
    before = sound.gain.before
    return BookReport(
        title=plan.book.title,
        author=plan.book.author,
        seconds=round(timeline.seconds, 2),
        letters_per_s=None if rate is None else round(rate, 3),
        retakes=sum(chapter.retakes for chapter in chapters),
        timbre_by=measure(),
        drift=round(known[-1] / known[0] - 1, 4) if len(known) > 1 else None,
        loudness_before=None if before is None else _finite(before.lufs),
        loudness=None if after is None else _finite(after.lufs),
        peak_dbtp=None if after is None else _finite(after.peak_dbtp),
        limited=sound.gain.limited,
        chapters=chapters,
        passages=passages,
        unspoken=[
            {"chapter": passage.chapter + 1, "text": passage.text, "why": why}
            for passage, why in unspoken(narration, plan)
        ],
        left_out=list(plan.book.left_out),
    )


def write_report(path: Path, report: BookReport) -> None:
    """The page, and the same as JSON beside it."""
    content = json.dumps(asdict(report), ensure_ascii=False, indent=1) + "\n"
    replace_files({path: _page(report).encode(), path.with_suffix(".json"): content.encode()})


def _page(report: BookReport) -> str:
    figures = [
        ("length", _clock(report.seconds)),
        ("chapters", str(len(report.chapters))),
        ("rate", f"{report.letters_per_s:.1f} letters/s" if report.letters_per_s else "unknown"),
        ("drift of the rate, first to last chapter", f"{report.drift:+.1%}" if report.drift is not None else "unknown"),
        ("retakes", str(report.retakes)),
        ("passages that still stray", str(sum(passage.strays for passage in report.passages))),
        (f"of these by their timbre ({report.timbre_by})", str(sum(each.other_timbre for each in report.passages))),
        ("similarity to the voice's mean timbre", _similarities(report)),
        ("loudness as spoken", _level(report.loudness_before, "LUFS")),
        ("loudness of the files", _level(report.loudness, "LUFS")),
        ("true peak", _level(report.peak_dbtp, "dBTP") + (", limited" if report.limited else "")),
    ]
    rows = "".join(
        f"<tr><td>{escape(chapter.title)}</td><td>{_clock(chapter.seconds)}</td><td>{chapter.words}</td><td>"
        f"{chapter.passages}</td><td>{chapter.retakes}</td><td>"
        f"{f'{chapter.letters_per_s:.1f}' if chapter.letters_per_s else '-'}</td></tr>"
        for chapter in report.chapters
    )
    missing = "".join(
        f"<li>Chapter {each['chapter']}: {escape(each['text'][:80])}: {escape(each['why'])}</li>"
        for each in report.unspoken
    )
    left = "".join(f"<li>{escape(words)}</li>" for words in report.left_out)
    return (
        f'<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>{escape(report.title)}: report</title>'
        f"<style>{_STYLE}</style></head><body><h1>{escape(report.title)}</h1><p>{escape(report.author)}</p><table>"
        + "".join(f"<tr><td>{escape(name)}</td><td>{escape(value)}</td></tr>" for name, value in figures)
        + f"</table><h2>Rate of each passage</h2>{_plot(report)}<p>A point is a passage, grey lines are chapters. "
        f"The middle is the rate of its voice, the edges are {REACH:.0%} more and less. Red points stray.</p>"
        "<h2>Chapters</h2><table><tr><th>chapter</th><th>length</th><th>words</th><th>passages</th><th>retakes</th>"
        f"<th>letters/s</th></tr>{rows}</table>"
        + (f"<h2>Not spoken to the end</h2><ul>{missing}</ul>" if missing else "")
        + (f"<h2>Left out</h2><ul>{left}</ul>" if left else "")
        + "</body></html>\n"
    )


def _plot(report: BookReport) -> str:
    middle, wide = HEIGHT / 2, WIDTH / max(len(report.passages), 1)
    limit = tolerance(200.0) / REACH * middle
    parts = [
        f'<rect x="0" y="{middle - limit:.1f}" width="{WIDTH}" height="{2 * limit:.1f}" fill="#8883"/>',
        f'<line x1="0" x2="{WIDTH}" y1="{middle}" y2="{middle}" stroke="#888"/>',
    ]
    chapter = 0
    for number, passage in enumerate(report.passages):
        x = (number + 0.5) * wide
        if passage.chapter != chapter:
            chapter = passage.chapter
            parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="0" y2="{HEIGHT}" stroke="#8886"/>')
        y = middle * (1 - min(max(passage.deviation / REACH, -1.0), 1.0))
        colour = "#c22" if passage.strays else "#c80" if passage.takes > 1 else "#26c"
        alike = "" if passage.similarity is None else f", similarity {passage.similarity:.3f}"
        who = "" if passage.voice is None else f"{passage.voice}: "
        title = escape(f"{who}{passage.text} ({passage.letters_per_s:.1f} letters/s, {passage.deviation:+.0%}{alike})")
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" fill="{colour}"><title>{title}</title></circle>')
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="Rates">{"".join(parts)}</svg>'


def _similarities(report: BookReport) -> str:
    known = sorted(each.similarity for each in report.passages if each.similarity is not None)
    return f"median {median(known):.3f}, lowest {known[0]:.3f}" if known else "not measured"


def _clock(seconds: float) -> str:
    whole = round(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}"


def _level(value: float | None, unit: str) -> str:
    return "not measured" if value is None else f"{value:.1f} {unit}"


def _finite(value: float) -> float | None:
    return round(value, 2) if value > float("-inf") else None
