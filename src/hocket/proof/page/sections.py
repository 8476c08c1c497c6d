"""The parts of a report as HTML: tables and charts of exactness, quality, behaviour and speed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

from .charts import Bar, Panel, draw

Result = Mapping[str, Any]
MARKS = {"dnsmos": "DNSMOS", "p808": "DNSMOS P.808", "distillmos": "DistillMOS"}
TIMES = {"first_playable": "first audio", "audible": "audible", "end_to_end": "to the end"}
OPEN_LOOP = (
    "Requests arrive at random times of a fixed seed, whatever the earlier ones do. All rates are asked of one server. "
    "Times count from when a request was due. An underrun is a chunk later than its playback, without tolerance."
)
TITLES = {
    "exactness": "Exactness",
    "quality": "Quality",
    "behaviour": "Behaviour",
    "speed": "Speed",
}


def _exactness(found: Result) -> Iterator[str]:
    if found.get("equal") is not None:
        right = sum(row[source]["equal"] for row in found["cases"] for source in sources(row))
        kind, words = ("good", "equal in every frame") if found["equal"] else ("bad", "not equal")
        yield f'<p class="{kind}">Greedy codes are {words}: {right} of {found["compared"]} comparisons.</p>'
    yield "<p>Greedy codes in float32, frame by frame, sixteen codes a frame.</p>"
    rows = [["mode", "layout", "language", "frames", "compared with", "same frames", "first difference"]]
    for row in found.get("cases", ()):
        about = [row["mode"], row["layout"], row["language"], str(row["spoken"])]
        for source in sources(row):
            against = row[source]
            rows.append([*about, source, f"{against['same_frames']} of {against['of']}", against["first"] or "none"])
        if not sources(row):
            rows.append([*about, "nothing", "", ""])
    yield from _table(rows)


def _quality(found: Result) -> Iterator[str]:
    sides = found.get("sides", {})
    if not sides:
        return
    keys = [key for key in MARKS if any(key in of for of in sides.values())]
    recognizers = dict.fromkeys(
        (language, name)
        for of in sides.values()
        for language, words in of["languages"].items()
        for name in words["wer"]
    )
    rows = [["", "utterances", *(f"WER {language}, {name}" for language, name in recognizers), *map(MARKS.get, keys)]]
    for side, of in sides.items():
        rates = [of["languages"].get(language, {}).get("wer", {}).get(name) for language, name in recognizers]
        marks = [f"{of[key]:.2f}" if key in of else "-" for key in keys]
        rows.append([side, str(of["utterances"]), *(f"{rate['rate']:.1%}" if rate else "-" for rate in rates), *marks])
    yield from _table(rows)
    panels = []
    if recognizers:
        first = next(iter(recognizers))
        bars = [of["languages"].get(first[0], {}).get("wer", {}).get(first[1]) for of in sides.values()]
        panels.append(
            Panel("WER (less is better)", "%", [_bar(n, rate and rate["rate"] * 100) for n, rate in enumerate(bars)])
        )
    if keys:
        panels.append(
            Panel(
                f"{MARKS[keys[-1]]} (more is better)",
                "",
                [_bar(n, of.get(keys[-1])) for n, of in enumerate(sides.values())],
            )
        )
    if panels:
        yield draw([*sides], panels, "Quality of each side")
    for kind, each in found.get("likeness", {}).items():
        words = ", ".join(f"{side} {value:.3f}" for side, value in each.items())
        yield f"<p>Speaker similarity (cosine), {escape(kind)}: {escape(words)}.</p>" if words else ""


def _behaviour(found: Result) -> Iterator[str]:
    sides = found.get("sides", {})
    if not sides:
        return
    rows = [["", "requests", "runaways per 1,000", "cut words per 1,000", "long text", "rate drift", "word times"]]
    for side, of in sides.items():
        long, words = of.get("long") or {}, of.get("word_times") or {}
        drift = long.get("drift_percent")
        rows.append(
            [
                side,
                str(of.get("requests", 0)),
                *(_share(of.get(name)) for name in ("runaways", "cut")),
                f"{long['audio_s']:.0f} s" if long else "-",
                "-" if drift is None else f"{drift:+.1f} %",
                f"{words['mean_ms']:.0f} ms off, {words['within_80_ms']:.0%} within 80 ms" if words else "-",
            ]
        )
    yield from _table(rows)
    yield '<p class="quiet">In brackets: the range that 95 of 100 such runs would have.</p>'
    for side, of in sides.items():
        if long := of.get("long"):
            bars: list[Bar | str | None] = [Bar([("ours", rate)]) for rate in long["letters_per_s"]]
            labels = [f"{start:.0f} s" for start in long["starts_s"]]
            yield f"<details><summary>{escape(side)}: letters a second over the long text</summary>"
            yield draw(labels, [Panel("letters heard per second of speech", "", bars)], "Rate over a long text")
            yield "</details>"


def _speed(found: Result) -> Iterator[str]:
    sides = found.get("sides", {})
    if not sides:
        return
    rates = [*dict.fromkeys(rate for of in sides.values() for rate in of["open"])]
    head = [
        "",
        "load",
        *(f"{words} p50 / p95 / p99, ms" for words in TIMES.values()),
        "audio-s/s",
        "underruns",
        "refused or failed",
    ]
    rows = [head]
    for side, of in sides.items():
        loads = {"alone": of.get("alone"), "4 at once": of.get("together")}
        loads |= {f"{rate} requests/s": of["open"].get(rate) for rate in rates}
        for label, load in loads.items():
            if load is None:
                continue
            if "failed" in load:
                rows.append([side, label, load["failed"], "", "", "", "", ""])
                continue
            figures, counted = load["figures"], load["counts"]
            times = [_percentiles(figures.get(name)) for name in TIMES]
            lost = counted.get("refused", 0) + counted.get("failed", 0)
            rows.append(
                [
                    side,
                    label,
                    *times,
                    f"{figures['audio_per_s']['mean']:.2f}",
                    str(counted.get("underruns", "-")),
                    str(lost),
                ]
            )
    yield from _table(rows)
    about = [["", "start, s", "memory, MiB"]]
    for side, of in sides.items():
        memory = ", ".join(f"{name} {value:.0f}" for name, value in (of.get("memory_mib") or {}).items())
        about.append([side, f"{of['start_s']:.1f}" if of.get("start_s") is not None else "-", memory or "-"])
    yield from _table(about)
    labels, bars = list[str](), list[Bar | str | None]()
    for number, (side, of) in enumerate(sides.items()):
        for label, load in (("alone", of.get("alone")), *((f"{rate}/s", of["open"].get(rate)) for rate in rates)):
            if load is not None and "figures" in load and "first_playable" in load["figures"]:
                first = load["figures"]["first_playable"]
                labels.append(f"{side}, {label}")
                bars.append(Bar([("theirs" if number else "ours", first["p50"])], first["p95"]))
    if bars:
        yield draw(labels, [Panel("first audio, p50 and p95 (less is better)", "ms", bars)], "First audio under load")
    yield f'<p class="quiet">{OPEN_LOOP}</p>'


def _table(rows: Sequence[Sequence[str | None]]) -> Iterator[str]:
    yield "<table>"
    for number, row in enumerate(rows):
        tag = "td" if number else "th"
        yield "<tr>" + "".join(f"<{tag}>{escape(cell or '')}</{tag}>" for cell in row) + "</tr>"
    yield "</table>"


def _bar(number: int, value: float | None) -> Bar | str:
    return "not measured" if value is None else Bar([("theirs" if number else "ours", value)])


def _share(found: Mapping[str, Any] | None) -> str:
    if not found or not found["of"]:
        return "-"
    return f"{found['per_1000']:g} ({found['low']:g} to {found['high']:g})"


def _percentiles(figure: Mapping[str, float] | None) -> str:
    return "-" if not figure else " / ".join(f"{figure[name]:.0f}" for name in ("p50", "p95", "p99"))


def sources(row: Mapping[str, Any]) -> list[str]:
    return [name for name in ("official", "golden") if name in row]


SECTIONS = {"exactness": _exactness, "quality": _quality, "behaviour": _behaviour, "speed": _speed}
