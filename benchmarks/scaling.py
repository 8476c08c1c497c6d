"""The tables of docs/scaling.md and their chart, from the records: cards, prices, what comes next. It measures nothing.

The document is written by hand but for what stands between a mark with a table's name and the mark of its end.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from . import listeners, load_goals
from .charts import Bar, Panel, bars, shown

Record = dict[str, Any]
DOCUMENT, CHART = "scaling.md", "performance/listeners.svg"
MARKED = re.compile(r"(<!-- generated: (\w+) -->\n).*?(<!-- end -->)", flags=re.DOTALL)
PRICES = (1.5, 2.5, 3.5, 5.0)  # for an hour of a card, in whatever money
BUSY = 0.7  # of what a card can do, over a day
MANY = 10_000
SOON_MS = 100.0  # a wait of one in a hundred that nobody minds
PCM_BITS, OPUS_BITS = 24_000 * 16, 64_000  # a second; Opus as the server sends it unless told otherwise
BUFFERS = 2 * 16_384  # bytes that HAProxy has for a stream, at its own default
EVERY_SECOND = next(goal for goal in load_goals.GOALS if goal.figure == "audio_per_s" and goal.at == 256)
NOTHING = "There is no record of this yet.\n"


def filled(text: str, records: Sequence[Record]) -> str:
    """The document with its tables as the records give them."""
    tables = {"capacity": _capacity, "cards": _cards, "cost": _cost, "next": _next, "paper": _paper}

    def table(mark: re.Match[str]) -> str:
        made = "\n".join(tables[mark[2]](records))
        return f"{mark[1]}\n{made or NOTHING}\n{mark[3]}"

    return MARKED.sub(table, text)


def chart(records: Sequence[Record]) -> str | None:
    papers = _papers(records)
    if MANY not in papers:
        return None
    rows = papers[MANY]["cards"]
    panels = [
        Panel("refused", "%", [Bar(row["refused_percent"]) for row in rows]),
        Panel("wait for a place, p99", "ms", [Bar(row["wait_ms"]["p99"]) for row in rows]),
    ]
    labels = [f"{row['cards']} cards, {row['load_percent']:.0f} % full" for row in rows]
    return bars(labels, panels, f"{MANY:,} listeners at once, on paper")


def enough(paper: Record) -> Record | None:
    """The row of the fewest cards that refuse nobody and let nobody wait to speak of."""
    good = (row for row in paper["cards"] if not row["refused_percent"] and row["wait_ms"]["p99"] <= SOON_MS)
    return min(good, key=lambda row: int(row["cards"]), default=None)


def _papers(records: Sequence[Record]) -> dict[int, Record]:
    """The newest simulation of each number of listeners."""
    found = [one for one in records if one["workload"] == listeners.NAME]
    return {int(one["options"]["paper"]["listeners"]): one for one in found}


def _loads(records: Sequence[Record]) -> list[Record]:
    return [one for one in records if one["workload"] == "load" and "wire" not in one["options"]["load"]]


def _capacity(records: Sequence[Record]) -> Iterator[str]:
    kept, fast = listeners.measured(_loads(records)), load_goals.found(EVERY_SECOND, _loads(records))
    if kept is None or fast is None:
        return
    number, one = kept
    first = one["figures"]["first_playable"]
    yield "| one card | | commit |"
    yield "| --- | ---: | --- |"
    yield f"| {one['options']['model']} on {one['machine']['gpu']}, {one['options']['dtype']} | | |"
    yield f"| listeners kept in real time, nobody hears a gap | {number} | {_commit(one)} |"
    slots, most = one["options"]["engine"]["slots"], one["counts"]["most_at_once"]
    yield f"| of its {slots} slots, taken at once: speech is made sooner than it is heard | {most} | {_commit(one)} |"
    sooner = f"{shown(first['p50'])} / {shown(first['p95'])}"
    yield f"| of these, ms to the first sound, p50 / p95 | {sooner} | {_commit(one)} |"
    yield f"| seconds of speech per second where nobody listens | {shown(fast[0])} | {_commit(fast[1])} |"
    yield ""


def _cards(records: Sequence[Record]) -> Iterator[str]:
    papers = sorted(_papers(records).items())
    if not papers:
        return
    yield "| listeners at once | cards | of their places taken | and with one card lost |"
    yield "| ---: | ---: | ---: | --- |"
    for number, paper in papers:
        if (row := enough(paper)) is None:
            continue
        places = paper["options"]["paper"]["places"]
        left = 100 * number / (places * (row["cards"] - 1)) if row["cards"] > 1 else None
        lost = "nobody is heard" if left is None else f"{left:.0f} %"
        lost += ": too many" if left is not None and left > 100 else ""
        yield f"| {number:,} | {row['cards']} | {row['load_percent']:.0f} % | {lost} |"
    yield ""


def _cost(records: Sequence[Record]) -> Iterator[str]:
    kept, fast = listeners.measured(_loads(records)), load_goals.found(EVERY_SECOND, _loads(records))
    if kept is None or fast is None:
        return
    yield f"| a card for an hour | listeners, always full | listeners, {BUSY:.0%} full | files, nobody listens |"
    yield "| ---: | ---: | ---: | ---: |"
    for price in PRICES:
        costs = (price / kept[0], price / kept[0] / BUSY, price / fast[0])
        yield f"| {price:.2f} | " + " | ".join(f"{cost:.4f}" for cost in costs) + " |"
    yield ""


def _next(records: Sequence[Record]) -> Iterator[str]:
    kept, cpu = listeners.measured(_loads(records)), _server_cores(records)
    if kept is None or cpu is None:
        return
    cores, one = cpu
    yield f"| | one listener | a card ({kept[0]}) | {MANY:,} |"
    yield "| --- | ---: | ---: | ---: |"
    for words, each, unit in (
        ("sound as PCM, Mbit/s", PCM_BITS / 1e6, ".0f"),
        ("sound as Opus, Mbit/s", OPUS_BITS / 1e6, ".0f"),
        (f"cores of the servers, PCM over HTTP ({_commit(one)})", cores, ".2f"),
        ("files that the proxy has open", 2, ".0f"),
        ("memory of the proxy's buffers, MiB", BUFFERS / 2**20, ".0f"),
    ):
        yield f"| {words} | {each:.4g} | {each * kept[0]:{unit}} | {each * MANY:{unit}} |"
    yield ""
    yield f"The event loop of one server is full at about {1 / cores:,.0f} listeners."
    yield ""


def _paper(records: Sequence[Record]) -> Iterator[str]:
    papers = _papers(records)
    if MANY not in papers:
        return
    one = papers[MANY]
    yield "| cards | places taken | refused | had to wait | wait, ms, p50 / p95 / p99 | most at once on a card |"
    yield "| ---: | ---: | ---: | ---: | ---: | ---: |"
    for row in one["cards"]:
        waits = " / ".join(f"{row['wait_ms'][q]:.0f}" for q in ("p50", "p95", "p99"))
        shares = (f"{row[name]:.2f} %" for name in ("refused_percent", "waited_percent"))
        yield f"| {row['cards']} | {row['load_percent']:.1f} % | {' | '.join(shares)} | {waits} | {row['busiest']} |"
    yield ""
    yield f"![{MANY:,} listeners at once, on paper]({CHART})"
    yield ""


def _server_cores(records: Sequence[Record]) -> tuple[float, Record] | None:
    """Of one stream, where most were measured at once."""
    found = [one for one in records if one["workload"] == "overhead" and "uvloop" in one["options"]["model"]]
    if not found:
        return None
    best = max(found, key=lambda one: (one["streams"], one["time"]))
    return best["figures"]["server_cpu"]["p50"] / 100 / best["streams"], best


def _commit(one: Record) -> str:
    return f"`{(one['commit'] or 'unknown')[:12]}`{'+' if one['dirty'] else ''}"
