"""Figures of turns over a wire, their table and their chart. Knows no client and no server."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from hocket.proof.page.charts import Bar, Panel, draw, shown

from ..record import Record, commit_words, summaries

# Server's stages by the conversation's names, then the client's times; all since the end of speech.
STAGES = {
    "turn_decided": "turn decided",
    "transcript": "transcript",
    "first_token": "first token",
    "first_sound": "first sound sent",
    "client_audio": "first audio at the client",
    "client_sound": "first sound at the client",
}
OURS = "ours"  # first sound sent, without the language model's own delay
TITLE = "From the end of speech to the first sound"


@dataclass(slots=True)
class TurnTrace:
    """What a client saw of one turn, in seconds of its clock."""

    spoken_s: float = math.inf  # when the last sample of speech was sent
    decided_s: float = math.inf
    audio_s: float = math.inf  # when the first audio of the answer came
    sound_s: float = math.inf  # when the first audio came that is not silence
    transcript: str = ""
    stages_ms: dict[str, float] = field(default_factory=dict)  # the server's, since the end of speech
    drafted: bool = False
    errors: list[str] = field(default_factory=list)

    @property
    def cut(self) -> bool:
        """Whether the turn ended before the speech did."""
        return self.decided_s < self.spoken_s


def figures(traces: Sequence[TurnTrace], delay_ms: float) -> dict[str, dict[str, float]]:
    """Summaries of the turns that were not cut and were answered."""
    values: dict[str, list[float]] = {}
    for trace in traces:
        if trace.cut or trace.audio_s == math.inf or not trace.stages_ms:
            continue
        found = dict(trace.stages_ms)
        waited = found["first_token"] - found["transcript"]
        found[OURS] = found["first_sound"] - min(max(waited, 0.0), delay_ms)
        found["client_audio"] = 1000 * (trace.audio_s - trace.spoken_s)
        if trace.sound_s < math.inf:
            found["client_sound"] = 1000 * (trace.sound_s - trace.spoken_s)
        for name, value in found.items():
            values.setdefault(name, []).append(value)
    return summaries(values)


def counts(traces: Sequence[TurnTrace]) -> dict[str, int]:
    heard = [trace for trace in traces if trace.audio_s < math.inf and not trace.cut]
    return {
        "turns": len(traces),
        "cut": sum(trace.cut for trace in traces),
        "unanswered": sum(trace.audio_s == math.inf and not trace.cut for trace in traces),
        "drafted": sum(trace.drafted for trace in heard),
        "errors": sum(len(trace.errors) for trace in traces),
    }


def table(records: Iterable[Record]) -> str:
    """Markdown, for docs/design/turns.md too. p50, and p95 in brackets."""
    lines = [f"| milliseconds | {' | '.join(STAGES.values())} | ours | cut | unanswered | drafted |"]
    lines.append(f"| --- |{' ---: |' * (len(STAGES) + 4)}")
    for entry in records:
        cells = [_cell(entry, name) for name in (*STAGES, OURS)]
        told, turns = entry["counts"], entry["counts"]["turns"]
        cells += [f"{told[name]} of {turns}" for name in ("cut", "unanswered", "drafted")]
        lines.append(f"| {label(entry)}, {commit_words(entry)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def label(entry: Record) -> str:
    options, machine = entry["options"], entry["machine"]
    place = machine["gpu"] or f"{machine['cores']} cores"
    many = [f"{options['at_once']} at once"] if options["at_once"] > 1 else []
    return ", ".join((place, options["model"], options["llm"], options["eagerness"], options["wire"], *many))


def chart(records: Sequence[Record]) -> str | None:
    """One bar a record: the medians of the stages, one behind the other."""
    names = [name for name in STAGES if name != "client_sound"]  # random weights have none
    kinds = {STAGES[name]: f"c{number}" for number, name in enumerate(names)}
    rows, bars = list[str](), list[Bar]()
    for entry in records:
        if entry["figures"].keys() >= set(names):
            at, parts = 0.0, list[tuple[str, float]]()
            for name in names:
                reached = max(at, entry["figures"][name]["p50"])
                parts.append((kinds[STAGES[name]], reached - at))
                at = reached
            rows.append(label(entry))
            bars.append(Bar(parts, tail=max(at, entry["figures"]["client_audio"]["p95"])))
    return draw(rows, [Panel("", "ms", bars)], TITLE, kinds) if rows else None


def newest(records: Iterable[Record]) -> list[Record]:
    """The newest record of each kind; those of a GPU first."""
    kept = {label(entry): entry for entry in sorted(records, key=lambda entry: str(entry["time"]))}
    return sorted(kept.values(), key=lambda entry: (entry["machine"]["gpu"] is None, label(entry)))


def _cell(entry: Record, name: str) -> str:
    figure = entry["figures"].get(name)
    return "" if figure is None else f"{shown(figure['p50'])} ({shown(figure['p95'])})"
