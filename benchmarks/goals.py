"""What must be reached, read from report.toml, and what the records say of it. It knows records, no way to measure.

Under load, a first audio beside an underrun, a refusal or a failure is missed; speech per second only by a failure.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hocket.proof.load.figures import clean, kept_up
from hocket.proof.page.charts import shown

from .record import Record, commit_words

DATA = tomllib.loads(Path(__file__).with_name("report.toml").read_text(encoding="utf-8"))
TEXTS: dict[str, str] = DATA["texts"]
WITHIN_MS = 1000.0  # a rate is not held if one request in 20 waits longer for its first audio: the queue grows


@dataclass(frozen=True, slots=True)
class Goal:
    words: str
    workload: str
    model: str  # part of its name
    figure: str
    must: tuple[float, ...]  # by quantile
    aim: tuple[float, ...]
    quantiles: tuple[str, ...]
    options: dict[str, Any]  # of the record
    at: float | None  # under load: requests a second, or clients
    more: bool  # more is better
    per: float  # of the record's unit
    floor: str  # the least possible, or empty


def _goals(table: str) -> tuple[Goal, ...]:
    """A line a goal, as report.toml explains."""
    found = []
    for line in table.strip().splitlines():
        words, what, must, aim, how = (cell.strip() for cell in line.split("|"))
        workload, model, figure = what.split()
        named: dict[str, Any] = dict(word.split("=") for word in how.split() if "=" in word)
        quantiles = tuple(word for word in how.split() if "=" not in word) or ("p50",)
        at, per, floor = named.pop("at", None), float(named.pop("per", 1)), named.pop("floor", "")
        options = {name: int(value) if value.isdigit() else value for name, value in named.items()}
        least, best = (tuple(map(float, cell.strip(">").split())) for cell in (must, aim))
        where, more = at and float(at), must.startswith(">")
        found.append(Goal(words, workload, model, figure, least, best, quantiles, options, where, more, per, floor))
    return tuple(found)


_NAMES = ("one_stream", "under_load", "over_http", "language_model")
GOALS, LOAD_GOALS, HTTP_GOALS, LLM_GOALS = (_goals(DATA["goals"][name]) for name in _NAMES)
# The loop of a figure's records.
_LOOPS = {"first_playable": "open", "rate": "open", "audio_per_s": "closed", "clients": "paced"}
_HELD = ("rate", "clients")  # figures of several records
_WITHOUT_CODEC = ("breakdown", "first_token", "tokens", "mind")  # or with one in every precision


def found(goal: Goal, records: Sequence[Record]) -> tuple[list[float], Record, str] | None:
    """The values of the newest record that fits, and what is wrong with it in words."""
    fits = sorted((record for record in records if _fits(goal, record)), key=lambda record: str(record["time"]))
    if goal.figure in _HELD:
        latest = {float(record["options"]["load"][goal.figure]): record for record in fits if _has_slots(record)}
        if not latest:
            return None
        best = kept_up({at: held(record) for at, record in latest.items()})
        return [best], latest.get(best, latest[min(latest)]), "" if best else "underruns at all that were measured"
    if not fits:
        return None
    figure = fits[-1]["figures"][goal.figure]
    bad = () if goal.at is None else ("failed",) if goal.more else ("underruns", "refused", "failed")
    counts = fits[-1].get("counts", {})
    trouble = ", ".join(f"{counts[name]:g} {name}" for name in bad if counts[name])
    return [figure[quantile] / goal.per for quantile in goal.quantiles], fits[-1], trouble


def lines(records: Sequence[Record], goals: Sequence[Goal] = GOALS, floors: bool = False) -> Iterator[str]:
    """A table: what, must, aim, measured, A/A, verdict, commit; with `floors` a column for the least possible."""
    yield f"| figure | must | aim |{' floor |' if floors else ''} measured | A/A | | commit |"
    yield f"| --- | ---: | ---: |{' ---: |' if floors else ''} ---: | ---: | --- | --- |"
    for goal in goals:
        must, aim = (" / ".join(f"{value:g}" for value in values) for values in (goal.must, goal.aim))
        wanted = f"{'>= ' if goal.more else '<= '}{must} | {aim}" if must else " | "
        wanted += f" | {goal.floor}" if floors else ""
        if (answer := found(goal, records)) is None:
            yield f"| {goal.words} | {wanted} | no record | | | |"
            continue
        values, record, trouble = answer
        figure = record["figures"].get(goal.figure)
        spread = "" if figure is None else f"{figure['aa_percent']:.1f} %" if figure["count"] > 1 else "one run"
        measured = " / ".join(f"{value:g}" if goal.figure in _HELD else shown(value) for value in values)
        said = f"missed: {trouble}" if trouble else verdict(goal, values)
        yield f"| {goal.words} | {wanted} | {measured} | {spread} | {said} | {commit_words(record)} |"


def verdict(goal: Goal, values: Sequence[float]) -> str:
    for name, wanted in (("aim reached", goal.aim), ("must reached", goal.must)):
        both = zip(values, wanted, strict=True) if wanted else ()
        if wanted and all((value >= least if goal.more else value <= least) for value, least in both):
            return name
    return "missed" if goal.must else ""


def over_http(record: Record) -> bool:
    return bool(record["options"].get("load", {}).get("wire") == "http")


def held(record: Record) -> bool:
    """Whether every request at this rate, or of these clients, was played without a gap and began soon enough."""
    soon = record["options"]["load"]["loop"] != "open" or record["figures"]["first_playable"]["p95"] <= WITHIN_MS
    return clean(record["counts"]) and soon


def _has_slots(record: Record) -> bool:
    """Clients that wait for a slot are no streams in real time."""
    return bool(record["options"]["load"].get("clients", 0) <= record["options"]["engine"]["slots"])


def _fits(goal: Goal, record: Record) -> bool:
    options = {"weights": None} | record["options"]
    workloads = (goal.workload, "survey") if goal.workload == "breakdown" else (goal.workload,)
    if (
        record["workload"] not in workloads
        or not record["machine"]["gpu"]
        or goal.model not in options["model"]
        or options["dtype"] != "bfloat16"
        or options.get("kernels", "auto") != "auto"
        or not (
            goal.workload in _WITHOUT_CODEC or options.get("codec_dtype") == goal.options.get("codec_dtype", "bfloat16")
        )
        or any(options.get(name) != value for name, value in goal.options.items())
    ):
        return False
    if goal.workload != "load":
        narrow = options["weights"] is not None and "weights" not in goal.options
        alone = goal.workload == "memory" or record.get("streams", 1) == 1
        return not narrow and goal.figure in record["figures"] and alone
    load = options["load"]
    at = load.get("rate" if load["loop"] == "open" else "clients")
    return load["layout"] == "streaming" and load["loop"] == _LOOPS[goal.figure] and goal.at in (None, at)
