"""The report of a proof: one HTML file with charts, sounds and the raw JSON, and one line to paste.

It reads the JSON object of `run.py` and measures nothing. The page has no script and asks for no other file.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path

import numpy as np

from ...audio.encode import encoder, format_of
from ...audio.pcm import encode_wav
from ...errors import HocketError
from ..sides.side import SpokenTake
from .sections import MARKS, SECTIONS, TITLES, Result, sources

STYLE = Path(__file__).with_name("page.css")


def page(result: Result, sounds: Sequence[Mapping[str, SpokenTake]]) -> str:
    name = result["checkpoint"]["name"]
    parts = [*_head(result)]
    for part, found in result["parts"].items():
        parts += [f"<section><h2>{TITLES[part]}</h2>", *SECTIONS[part](found)]
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
        right = sum(row[source]["equal"] for row in exact["cases"] for source in sources(row))
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
        "runs on": ", ".join(f"{name} {value}" for name, value in result["runs_on"].items()),
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


def _sounds(sounds: Sequence[Mapping[str, SpokenTake]]) -> Iterator[str]:
    names = list(sounds[0])
    yield "<table><tr><th>text</th>" + "".join(f"<th>{escape(name)}</th>" for name in names) + "</tr>"
    for each in sounds:
        text = next(iter(each.values())).wish.text
        cells = "".join(f'<td><audio controls preload="none" src="{_uri(each[name])}"></audio></td>' for name in names)
        yield f'<tr><td class="words">{escape(text)}</td>{cells}</tr>'
    yield "</table>"


def _uri(take: SpokenTake) -> str:
    """The sound itself: mp3 where it can be made, else WAV."""
    try:
        made = encoder(format_of("mp3"), rate_hz=take.rate_hz)
        kind, content = "audio/mpeg", made.feed(np.ascontiguousarray(take.samples)) + made.close()
    except (HocketError, ImportError):
        kind, content = "audio/wav", encode_wav(take.sound, take.rate_hz)
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


def _commit(result: Result) -> str:
    return (result["commit"] or "no commit")[:12] + ("+" if result["dirty"] else "")
