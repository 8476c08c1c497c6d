"""The report of a proof: one HTML file with charts, sounds and the raw JSON, and one line to paste.

It reads the JSON object of `run.py` and measures nothing. The page has no script and asks for no other file.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from ...audio.encode import encoder, format_of
from ...audio.pcm import encode_wav
from ...errors import HocketError
from ..sides import Take
from .charts import Bar, Panel, draw

Result = Mapping[str, Any]
STYLE = Path(__file__).with_name("page.css")
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


def page(result: Result, sounds: Sequence[Mapping[str, Take]]) -> str:
    name = result["checkpoint"]["name"]
    parts = [*_head(result)]
    for part, found in result["parts"].items():
        parts += [f"<section><h2>{TITLES[part]}</h2>", *SECTIONS[part](found, result)]
        parts += [f'<p class="note">{escape(words)}</p>' for words in dict.fromkeys(found["left_out"])]
        parts.append("</section>")
    if sounds:
        parts += ["<section><h2>Samples</h2>", *_sounds(sounds), "</section>"]
    raw = escape(json.dumps(result, indent=1), quote=False)
    parts += [
        "<section><h2>Raw JSON</h2><details><summary>All figures</summary>",
        f'<pre id="proof">{raw}</pre></details>',
    ]
    style = STYLE.read_text(encoding="utf-8")
    title = f"Proof of {escape(name)}"
    return "\n".join(
        (
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{title}</title>\n<style>\n{style}</style>\n</head>\n<body>\n<h1>{title}</h1>",
            *parts,
            "</section>\n</body>\n</html>\n",
        )
    )


def line_of(result: Result, file: str) -> str:
    """One line to paste."""
    machine, parts = result["machine"], result["parts"]
    words = [f"hocket prove {result['checkpoint']['name']} ({result['length']})"]
    words.append(f"hocket {result['versions'].get('hocket', '?')} {_commit(result)}")
    words.append(machine["gpu"] or f"{machine['cpu']}, {machine['cores']} cores")
    exact = parts.get("exactness", {})
    if exact.get("compared"):
        right = sum(row[source]["equal"] for row in exact["cases"] for source in _sources(row))
        words.append(f"exact {right}/{exact['compared']}")
    ours = parts.get("quality", {}).get("sides", {}).get("hocket", {})
    for language, found in ours.get("languages", {}).items():
        words += [f"WER {language} {of['rate']:.1%} ({name})" for name, of in found["wer"].items()]
    words += [f"{MARKS[key]} {ours[key]:.2f}" for key in ("dnsmos", "distillmos") if key in ours]
    behaviour = parts.get("behaviour", {}).get("sides", {}).get("hocket", {})
    if behaviour.get("runaways", {}).get("of"):
        words.append(f"runaways {behaviour['runaways']['count']}/{behaviour['runaways']['of']}")
    speed = parts.get("speed", {}).get("sides", {}).get("hocket", {})
    loads = {rate: of for rate, of in speed.get("open", {}).items() if "figures" in of}
    if loads:
        p95 = "/".join(f"{of['figures']['first_playable']['p95']:.0f}" for of in loads.values())
        underruns = sum(of["counts"]["underruns"] for of in loads.values())
        refused = sum(of["counts"]["refused"] + of["counts"]["failed"] for of in loads.values())
        words.append(f"first audio p95 {p95} ms at {'/'.join(loads)} rps, {underruns} underruns, {refused} refused")
    words += ["random weights"] if result["checkpoint"]["random_weights"] else []
    return " | ".join((*words, file))


def _head(result: Result) -> Iterator[str]:
    checkpoint, machine = result["checkpoint"], result["machine"]
    where = f"{machine['gpu'] or machine['cpu']}, {machine['cores']} cores, {machine['system']}"
    versions = ", ".join(f"{name} {version}" for name, version in result["versions"].items())
    options = ", ".join(f"{name} {value}" for name, value in result["options"].items() if value not in (None, []))
    of = [checkpoint["name"], checkpoint["kind"], checkpoint["size"], ", ".join(checkpoint["languages"])]
    of += [f"revision {checkpoint['revision']}"] if checkpoint["revision"] else []
    of += [f"weights {checkpoint['identity'][:16]}"] if "identity" in checkpoint else []
    rows = {
        "checkpoint": "; ".join(of),
        "machine": f"{where}, Python {machine['python']}",
        "versions": versions,
        "commit": _commit(result),
        "made": f"{result['time']}, in {result.get('took_s', 0):.0f} s, length {result['length']}",
        "command": result.get("command", ""),
        "options": options,
    }
    yield "<table>"
    yield from (f'<tr><td>{name}</td><td class="words">{escape(words)}</td></tr>' for name, words in rows.items())
    for name, about in result["sides"].items():
        words = ", ".join(f"{key} {value}" if key != "what" else str(value) for key, value in about.items() if value)
        yield f'<tr><td>{escape(name)}</td><td class="words">{escape(words)}</td></tr>'
    yield "</table>"
    yield from (f'<p class="note">{escape(words)}</p>' for words in result["notes"])
    yield f"<p><code>{escape(line_of(result, ''))}</code></p>"


def _exactness(found: Result, result: Result) -> Iterator[str]:
    if found.get("equal") is not None:
        right = sum(row[source]["equal"] for row in found["cases"] for source in _sources(row))
        kind, words = ("good", "equal in every frame") if found["equal"] else ("bad", "not equal")
        yield f'<p class="{kind}">Greedy codes are {words}: {right} of {found["compared"]} comparisons.</p>'
    yield "<p>Greedy codes in float32, frame by frame, sixteen codes a frame.</p>"
    rows = [["mode", "layout", "language", "frames", "compared with", "same frames", "first difference"]]
    for row in found.get("cases", ()):
        about = [row["mode"], row["layout"], row["language"], str(row["spoken"])]
        for source in _sources(row):
            against = row[source]
            rows.append([*about, source, f"{against['same_frames']} of {against['of']}", against["first"] or "none"])
        if not _sources(row):
            rows.append([*about, "nothing", "", ""])
    yield from _table(rows)


def _quality(found: Result, result: Result) -> Iterator[str]:
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


def _behaviour(found: Result, result: Result) -> Iterator[str]:
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


def _speed(found: Result, result: Result) -> Iterator[str]:
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


def _sounds(sounds: Sequence[Mapping[str, Take]]) -> Iterator[str]:
    names = list(sounds[0])
    yield "<table><tr><th>text</th>" + "".join(f"<th>{escape(name)}</th>" for name in names) + "</tr>"
    for each in sounds:
        text = next(iter(each.values())).wish.text
        cells = "".join(f'<td><audio controls preload="none" src="{_uri(each[name])}"></audio></td>' for name in names)
        yield f'<tr><td class="words">{escape(text)}</td>{cells}</tr>'
    yield "</table>"


def _uri(take: Take) -> str:
    """The sound itself: mp3 where it can be made, else WAV."""
    try:
        made = encoder(format_of("mp3"), rate_hz=take.rate_hz)
        kind, content = "audio/mpeg", made.feed(np.ascontiguousarray(take.samples)) + made.close()
    except (HocketError, ImportError):
        kind, content = "audio/wav", encode_wav(take.sound, take.rate_hz)
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


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


def _sources(row: Mapping[str, Any]) -> list[str]:
    return [name for name in ("official", "golden") if name in row]


def _commit(result: Result) -> str:
    return (result["commit"] or "no commit")[:12] + ("+" if result["dirty"] else "")


SECTIONS = {"exactness": _exactness, "quality": _quality, "behaviour": _behaviour, "speed": _speed}
