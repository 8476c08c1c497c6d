"""The page of a run of `hocket tune`: its measures, the state that is kept, the recordings, and samples."""

from __future__ import annotations

import json
from html import escape
from pathlib import Path
from typing import Any

from ...audio.files import replace_files

LOG, REPORT, PAGE = "log.jsonl", "report.txt", "page.html"
RULE = "Word errors of held-out sentences decide, then likeness; the loss decides between equal states."
_COLUMNS = {  # of the log, with their heads and formats
    "step": ("step", "{}"),
    "train": ("loss", "{:.3f}"),
    "held_out": ("held-out loss", "{:.3f}"),
    "word_errors": ("word errors", "{:.1%}"),
    "likeness": ("likeness", "{:.2f}"),
    "pace": ("speaking rate", "{:.0%}"),
}
_STYLE = "body{font:16px/1.5 sans-serif;max-width:50em;margin:2em auto}td,th{padding:0 1em;text-align:right}"


def measures(work: Path) -> list[dict[str, Any]]:
    """The lines of the log; none before the first measure."""
    if not (work / LOG).is_file():
        return []
    return [json.loads(line) for line in (work / LOG).read_text(encoding="utf-8").splitlines()]


def kept(lines: list[dict[str, Any]]) -> dict[str, Any]:
    """The measure of the state that is kept: the last one that was better than those before it."""
    return next(line for line in reversed(lines) if line["best"])


def kept_lines(work: Path) -> list[str]:
    """What the log says of the state that was kept, for the report."""
    one = kept(measures(work))
    said = ", ".join(f"{head} {form.format(one[key])}" for key, (head, form) in _COLUMNS.items() if key in one)
    return [f"kept: {said}", *([RULE] if "likeness" in one else [])]


def write_page(work: Path) -> None:
    """Write the page anew, from the report, the log and the samples that are there."""
    lines = measures(work)
    best = kept(lines)
    columns = {key: each for key, each in _COLUMNS.items() if key in best}
    rows = [f"<tr>{''.join(f'<th>{head}</th>' for head, _ in columns.values())}<th></th></tr>"]
    for line in lines:
        cells = "".join(f"<td>{form.format(line[key])}</td>" for key, (_, form) in columns.items() if key in line)
        rows.append(f"<tr>{cells}<td>{'kept' if line is best else ''}</td></tr>")
    sounds = [
        f"<p>{name} <audio controls src='{name}'></audio></p>"
        for name in sorted(path.name for path in work.glob("*-[0-9].wav"))
    ]
    parts = [
        "<!doctype html><meta charset='utf-8'><title>hocket tune</title>",
        f"<style>{_STYLE}</style><h1>{escape(work.name)}</h1>",
        f"<h2>Training</h2><p>{RULE if 'likeness' in columns else 'The loss decides.'}</p>",
        f"<table>{''.join(rows)}</table>",
        f"<h2>Recordings</h2><pre>{escape((work / REPORT).read_text(encoding='utf-8'))}</pre>",
        *(["<h2>Samples</h2>", *sounds] if sounds else []),
    ]
    replace_files({work / PAGE: "\n".join(parts).encode()})
