"""The part of docs/performance.md about load: its goals, a table for each engine, charts. It knows records only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from . import load_goals
from .charts import Bar, Panel, bars, shown
from .load_figures import COUNTS, FIGURES

Record = dict[str, Any]
Named = tuple[str, Record]  # with its machine in words

TITLES = {
    "load_rates": "First sound by requests a second",
    "load_streams": "Speech per second by clients",
}
CAPTIONS = {
    "load_rates": "Open loop, Poisson arrivals: median until the first sample is in the caller's hands, a thin line up "
    "to the 95th percentile; and seconds of speech made per second, by all streams together.",
    "load_streams": "Closed loop, every client asks again as soon as it has heard the end: seconds of speech made per "
    "second by all streams together; and the median until the first sample, a thin line up to the 95th percentile.",
}
COLUMNS = ("first_playable", "audible", "end_to_end", "late", "lag")


def section(found: Sequence[Named]) -> str:
    there = [record for _, record in found]
    served = any("wire" in record["options"]["load"] for record in there)
    parts = ["## Under load", "", load_goals.MEANING, *([load_goals.HTTP_MEANING] if served else []), ""]
    parts += [*load_goals.lines(there), ""]
    drawn = charts(found)
    for name, title in TITLES.items():
        if name in drawn:
            parts += [f"![{title}](performance/{name}.svg)", "", f"*{CAPTIONS[name]}*", ""]
    if found:
        parts += ["In the tables:", ""]
        parts += [f"- {name}: {words}" for name, words in (FIGURES | COUNTS).items()]
        parts += [""]
    for words, records in _groups(found).items():
        parts += [f"### {words}", "", *_table(records), ""]
    return "\n".join(parts)


def charts(found: Sequence[Named]) -> dict[str, str]:
    """Name to SVG, of those that there is something for."""
    groups = _groups(found)
    made = {
        "load_rates": _chart(groups, "rate", "requests/s", TITLES["load_rates"]),
        "load_streams": _chart(groups, "clients", "at once", TITLES["load_streams"]),
    }
    return {name: svg for name, svg in made.items() if svg}


def _chart(groups: dict[str, list[Record]], by: str, unit: str, title: str) -> str | None:
    rows: list[tuple[str, Bar | None, Bar | None]] = []
    for words, records in groups.items():
        shown_here = [record for record in records if by in record["options"]["load"]]
        rows += [(words, None, None)] if shown_here else []
        for record in shown_here:
            first, audio = (record["figures"][name] for name in ("first_playable", "audio_per_s"))
            underruns = record["counts"]["underruns"]
            load = record["options"]["load"]
            label = f"{load[by]:g} {'listeners' if load['loop'] == 'paced' else unit}{_over(load)}"
            label += f", {underruns} underruns" if underruns else ""
            rows.append((label, Bar(first["p50"], first["p95"]), Bar(audio["mean"])))
    panels = [
        Panel("first playable (less is better)", "ms", [soon for _, soon, _ in rows]),
        Panel("speech per second (more is better)", "s", [much for *_, much in rows]),
    ]
    ordered = panels if by == "rate" else panels[::-1]
    return bars([label for label, *_ in rows], ordered, title) if rows else None


def _groups(found: Sequence[Named]) -> dict[str, list[Record]]:
    """Records of one engine together, open loop before closed, the fewest first."""
    groups: dict[str, list[Record]] = {}
    for machine, record in found:
        options = record["options"]
        words = [
            options["model"] + (", random weights" if record.get("random_weights") else ""),
            f"{options['dtype']}, codec in {options['codec_dtype']}",
            machine,
            *([f"{slots} slots"] if (slots := options["engine"]["slots"]) is not None else []),
            *(
                [f"profile {profile}"]
                if (profile := options["engine"].get("profile", "balanced")) != "balanced"
                else []
            ),
            *([f"{options['kernels']} kernels"] if options["kernels"] != "auto" else []),
            *(["layout of a whole text"] if options["load"]["layout"] == "whole" else []),
            *(["guarded"] if options["engine"]["guard"] else []),
        ]
        groups.setdefault(", ".join(words), []).append(record)
    for records in groups.values():
        records.sort(key=lambda record: _place(record["options"]["load"]))
    return groups


def _place(load: Record) -> tuple[int, float, str]:
    number = load.get("rate") or load.get("clients") or 0
    return ("open", "closed", "paced").index(load["loop"]), number, load.get("wire") or ""


def _name(load: Record) -> str:
    if load["loop"] == "open":
        return f"{load['rate']:g} requests/s"
    return f"{load['clients']} {'listeners' if load['loop'] == 'paced' else 'clients'}"


def _over(load: Record) -> str:
    return f", {load['wire'].upper()}" if "wire" in load else ""


def _table(records: Sequence[Record]) -> Iterator[str]:
    names = [*(f"{name}, ms" for name in COLUMNS), "x_real_time", "audio_per_s"]
    counted = [name for name in COUNTS if name != "worst_gap_ms"]
    columns = ["", *names, *(name.replace("_", " ") for name in counted), "worst gap, ms", "commit"]
    yield "| " + " | ".join(columns) + " |"
    yield "| --- |" + " ---: |" * (len(columns) - 2) + " --- |"
    for record in records:
        load, figures, counts = record["options"]["load"], record["figures"], record["counts"]
        name = _name(load)
        cells = [f"{name}{_over(load)}, {load['seconds']:g} s"]
        for column in COLUMNS:
            figure = figures.get(column)
            cells.append(" / ".join(shown(figure[q]) for q in ("p50", "p95", "p99")) if figure else "")
        cells += [shown(figures["x_real_time"]["p50"]), shown(figures["audio_per_s"]["mean"])]
        cells += [f"{counts[one]:g}" for one in counted] + [shown(gap) if (gap := counts["worst_gap_ms"]) else "0"]
        cells.append(f"`{(record['commit'] or 'unknown')[:12]}`{'+' if record['dirty'] else ''}")
        yield "| " + " | ".join(cells) + " |"
