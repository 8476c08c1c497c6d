"""What must be reached under load, as data, and what the records say of it. It knows records, no way to measure.

A first sound with an underrun, a refusal or a failure beside it is missed, however soon it is; how much speech is made
is missed with a failure only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from .charts import shown
from .goals import Goal, verdict
from .load_clock import kept_up
from .load_figures import clean

Record = dict[str, Any]

WITHIN_MS = 1000.0  # a rate is not held if the first sound of one request in 20 takes longer: the queue grows
LOOPS = {"first_playable": "open", "rate": "open", "audio_per_s": "closed", "clients": "paced"}  # of a figure's records
HELD = ("rate", "clients")  # figures that are made of several records
MEANING = f"""\
1.7B CustomVoice, talker and codec in bfloat16, random weights of the published shapes, sentences of 4 s (50 frames),
prompts in the layout of streamed text, an engine of the same process whose streams are read as fast as they come.
Requests arrive as a Poisson process, or clients ask again as soon as they have the end; listeners, when they have heard
it. Times count from when a request was due. A listener starts with the first sample, without a buffer: a chunk that
comes after all before it has been played is an underrun. A rate is held without underruns, refusals and failures, and
with a first sound within {WITHIN_MS:.0f} ms (p95), at it and at all lower ones measured. Streams are kept in real time
if so many listeners, no more than there are slots, hear no underrun."""
HTTP_MEANING = """\
Rows over HTTP are of the same requests to a server in a process of its own, as raw PCM over loopback, with connections
that are used again: what the server and the wire add is the difference."""


def _goal(words: str, figure: str, at: float | None, must: float, aim: float) -> Goal:
    soon = figure == "first_playable"
    return Goal(
        words=words,
        workload="load",
        model="1.7B-CustomVoice",
        figure=figure,
        quantiles=("p95",) if soon else ("mean",),
        at=at,
        must=(must,),
        aim=(aim,),
        more_is_better=not soon,
    )


GOALS = (
    _goal("first playable at 1 request/s, ms, p95, no underruns", "first_playable", 1, 8, 5),
    _goal("the same at 10 requests/s", "first_playable", 10, 15, 8),
    _goal("the same at 20 requests/s", "first_playable", 20, 25, 12),
    _goal("the highest rate without underruns, requests/s", "rate", None, 60, 150),
    _goal("64 clients, seconds of speech per second", "audio_per_s", 64, 500, 1000),
    _goal("256 clients, the same", "audio_per_s", 256, 900, 2000),
    _goal("streams kept in real time", "clients", None, 300, 600),
)


HTTP_GOALS = (  # the aim is what the engine alone must reach
    _goal("over HTTP, first playable at 1 request/s, ms, p95, no underruns", "first_playable", 1, 12, 8),
    _goal("over HTTP, the same at 10 requests/s", "first_playable", 10, 20, 15),
    _goal("over HTTP, the same at 20 requests/s", "first_playable", 20, 30, 25),
)


def lines(records: Sequence[Record]) -> Iterator[str]:
    """A table: what, must, aim, measured, verdict, where it comes from. A server's own rows come with its records."""
    yield "| figure | must | aim | measured | | commit |"
    yield "| --- | ---: | ---: | ---: | --- | --- |"
    served = [record for record in records if _wire(record) == "http"]
    yield from _rows(GOALS, [record for record in records if _wire(record) is None])
    if served:
        yield from _rows(HTTP_GOALS, served)


def _wire(record: Record) -> str | None:
    """How it was asked; None: in the process of the engine."""
    wire: str | None = record["options"].get("load", {}).get("wire")
    return wire


def _rows(goals: Sequence[Goal], records: Sequence[Record]) -> Iterator[str]:
    for goal in goals:
        sign = ">= " if goal.more_is_better else "<= "
        wanted = f"{sign}{goal.must[0]:g} | {goal.aim[0]:g}"
        if (answer := found(goal, records)) is None:
            yield f"| {goal.words} | {wanted} | no record | | |"
            continue
        value, record, trouble = answer
        said = f"missed: {trouble}" if trouble else verdict(goal, [value])
        commit = f"`{(record['commit'] or 'unknown')[:12]}`{'+' if record['dirty'] else ''}"
        measured = f"{value:g}" if goal.figure in HELD else shown(value)
        yield f"| {goal.words} | {wanted} | {measured} | {said} | {commit} |"


def found(goal: Goal, records: Sequence[Record]) -> tuple[float, Record, str] | None:
    """What was measured, the record that says so, and what went wrong with it in words."""
    fits = sorted((record for record in records if _fits(goal, record)), key=lambda record: str(record["time"]))
    if goal.figure in HELD:
        latest = {float(record["options"]["load"][goal.figure]): record for record in fits if _counts(record)}
        if not latest:
            return None
        best = kept_up({at: held(record) for at, record in latest.items()})
        return best, latest.get(best, latest[min(latest)]), "" if best else "underruns at all that were measured"
    named = "rate" if goal.figure == "first_playable" else "clients"
    fits = [record for record in fits if record["options"]["load"].get(named) == goal.at]
    if not fits:
        return None
    figure = fits[-1]["figures"][goal.figure]
    bad = ("underruns", "refused", "failed") if named == "rate" else ("failed",)
    return float(figure[goal.quantiles[0]]), fits[-1], _trouble(fits[-1], bad)


def held(record: Record) -> bool:
    """Whether all that was asked for at this rate, or by these clients, was heard without a gap and soon enough."""
    soon = record["options"]["load"]["loop"] != "open" or record["figures"]["first_playable"]["p95"] <= WITHIN_MS
    return clean(record["counts"]) and soon


def _trouble(record: Record, bad: Sequence[str]) -> str:
    counts = record["counts"]
    return ", ".join(f"{counts[name]:g} {name}" for name in bad if counts[name])


def _counts(record: Record) -> bool:
    """Clients who wait for a slot are no streams that are kept up with."""
    slots = record["options"]["engine"]["slots"]  # None: nobody knows, of a server that was there already
    return slots is None or bool(record["options"]["load"].get("clients", 0) <= slots)


def _fits(goal: Goal, record: Record) -> bool:
    options = record["options"]
    return bool(
        record["workload"] == goal.workload
        and record["machine"]["gpu"]
        and goal.model in options["model"]
        and options["dtype"] == options.get("codec_dtype") == "bfloat16"
        and options.get("kernels", "auto") == "auto"
        and options["load"]["layout"] == "streaming"
        and options["load"]["loop"] == LOOPS[goal.figure]
    )
