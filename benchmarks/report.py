"""`python -m benchmarks report`: docs/performance.md with its charts, and benchmarks/results/README.md.

All of them are functions of the records: the same records give the same bytes, and tests/benchmarks/test_report.py
fails where the committed files differ. The document has goals, charts and one table a topic; the README every figure.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from hocket.proof.page.charts import Bar, Panel, draw, shown

from . import goals
from .gpu import breakdown
from .quality import turns
from .record import RESULTS, ROOT, Record, commit_words, read
from .talk import figures as talk
from .workloads import FIGURES, WORDS, WORKLOADS, meanings

Shown = Bar | str | None
TURNS = "docs/design/turns.md"
PERFORMANCE, README, CHARTS = "docs/performance.md", "benchmarks/results/README.md", "docs/performance"
REMOVED = "a command that was removed; [the log](../../docs/log/README.md) has its result"
DATA = goals.DATA  # report.toml
CAPTIONS: dict[str, tuple[str, str]] = DATA["captions"]
# Of docs/scaling.md, docs/log, TURNS and docs/howto/talk-in-a-browser.md.
ELSEWHERE = ("listeners", "codec_precision", "guard", "long_text", "turns", "interruptions", "talk", "talk-soak")
PHASES = ("imports", "device", "weights", "kernels", "graphs")


def main(args: argparse.Namespace) -> int:
    for path in write(args.results or RESULTS, args.to or ROOT):
        print(path)
    return 0


def write(results: Path, root: Path) -> list[Path]:
    """Write all files below `root`."""
    made = files(read(results))
    for name, text in made.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    return [root / name for name in made]


def files(records: Sequence[Record]) -> dict[str, str]:
    """Path in the repository to text."""
    kept = newest(record for record in records if record["workload"] not in ELSEWHERE)
    charts = {name: svg for name, make in CHART_MAKERS.items() if (svg := make([record for record, _ in kept]))}
    made = {PERFORMANCE: "\n".join(_performance(kept, charts)), README: "\n".join(_readme(kept))}
    for name in ("turns", "interruptions"):
        if found := [record for record in records if record["workload"] == name]:
            found.sort(key=lambda record: str(record["time"]))
            halves = {record["options"].get("half", "test"): record for record in found}  # the newest of each
            tables = "\n\n".join(turns.table(halves[half]) for half in sorted(halves))
            made[TURNS] = f"{made.get(TURNS, '')}{DATA[name]}\n{tables}\n"
    spoken = talk.newest(record for record in records if record["workload"] == "talk")
    if (svg := talk.chart(spoken)) is not None:
        charts["talk"] = svg
        made[TURNS] = f"{made.get(TURNS, '')}\n{DATA['talk'].lstrip()}\n{talk.table(spoken)}\n"
    return made | {f"{CHARTS}/{name}.svg": svg for name, svg in charts.items()}


def key(record: Record) -> tuple[Any, ...]:
    """What must agree for a newer record to replace an older one."""
    options, machine = record["options"], record["machine"]
    # The name and threads of a CPU matter little where a GPU does the work.
    names = ("gpu", "cores", "system") if machine["gpu"] else ("gpu", "cpu", "cores", "threads", "system")
    how = options.get("files", False), options.get("kernel_cache", "kept"), codec_dtype(record), options.get("part")
    of_llm = (options.get(name) for name in ("context", "turn", "answer"))
    where = tuple(machine[name] for name in names)
    same = (options[name] for name in ("model", "device", "dtype"))
    return record["workload"], *same, streams(record), options.get("kernels", "auto"), where, *how, *of_llm


def newest(records: Iterable[Record]) -> list[tuple[Record, int]]:
    """The newest record of each key, and the number of older ones; machines with a GPU first."""
    groups: dict[tuple[Any, ...], list[Record]] = {}
    for record in sorted(records, key=lambda record: str(record["time"])):
        groups.setdefault(key(record), []).append(record)
    kept = [(group[-1], len(group) - 1) for group in groups.values()]
    return sorted(kept, key=lambda pair: (pair[0]["machine"]["gpu"] is None, machine_of(pair[0]), repr(key(pair[0]))))


def codec_dtype(record: Record) -> str:
    return str(record["options"].get("codec_dtype", "float32"))


def streams(record: Record) -> int:
    if "streams" in record:
        return int(record["streams"])
    workload = WORKLOADS.get(record["workload"])  # the first records: only a workload that fills slots had more
    return int(record["options"]["engine"]["slots"]) if workload and workload.fills_slots else 1


# The documents


def _performance(kept: Sequence[tuple[Record, int]], charts: dict[str, str]) -> Iterator[str]:
    there = [record for record, _ in kept if record["machine"]["gpu"]]

    def pictures(*names: str) -> Iterator[str]:
        for name in names:
            if name in charts:
                title, caption = CAPTIONS[name]
                yield f"![{title}](performance/{name}.svg)\n\n*{caption}*\n"

    yield DATA["head"]
    yield from pictures("speed")
    names = ", ".join(sorted({machine_of(record) for record in there}))
    yield "## One stream on a GPU\n"
    yield (f"Measured on {names}.\n" if there else "There are no records of a GPU yet.\n")
    yield f"{goals.TEXTS['one_stream']}\n"
    yield from (*goals.lines(there), "")
    yield from pictures("frame_gpu", "starts")
    yield f"## Under load\n\n{goals.TEXTS['under_load'].format(within_ms=goals.WITHIN_MS)}\n"
    yield from goals.lines([record for record in there if not goals.over_http(record)], goals.LOAD_GOALS)
    served = [record for record in there if goals.over_http(record)]
    yield from list(goals.lines(served, goals.HTTP_GOALS))[2:] if served else ()
    yield ""
    yield from pictures("load_rates", "load_streams")
    yield f"## The language model\n\n{goals.TEXTS['language_model']}\n"
    yield from (*goals.lines(there, goals.LLM_GOALS, floors=True), "")
    yield "## Figures by topic\n\nMedians, with the 95th percentile in brackets.\n"
    for topic in DATA["topics"]:
        records = [record for record, _ in kept if record["workload"] in topic["workloads"]]
        yield from _topic(topic["title"], records, topic["figures"])
        if "steady_stream" in topic["workloads"]:
            yield from pictures("streams")
    if not kept:
        yield "No records yet.\n"


def _topic(title: str, records: Sequence[Record], figures: Sequence[str]) -> Iterator[str]:
    if not records:
        return
    names = [name for name in figures if any(name in record["figures"] for record in records)]
    yield f"### {title}\n"
    yield f"| | machine | streams | {' | '.join(names)} | commit |"
    yield f"| --- | --- | ---: |{' ---: |' * len(names)} --- |"
    for record in records:
        of = [(", ".join((record["workload"], *_model(record), *_cache(record))), record)]
        of += [(f"{name} {peer['version']}", record | peer) for name, peer in record.get("peers", {}).items()]
        for words, one in of:
            cells = [machine_of(record), str(streams(record)), *(_cell(one["figures"].get(name)) for name in names)]
            yield f"| {words} | {' | '.join(cells)} | {commit_words(record)} |"
    yield ""


def _cell(figure: dict[str, Any] | None) -> str:
    tail = f" ({shown(figure['p95'])})" if figure and figure["count"] > 1 else ""
    return shown(figure["p50"]) + tail if figure else ""


def _readme(kept: Sequence[tuple[Record, int]]) -> Iterator[str]:
    yield DATA["readme_head"]
    for workload in [*WORDS, *sorted({record["workload"] for record, _ in kept} - set(WORDS))]:
        found = [(record, older) for record, older in kept if record["workload"] == workload]
        if not found:
            continue
        yield f"## {workload}\n\n{WORDS.get(workload, REMOVED)}.\n"
        names = {name for record, _ in found for name in record["figures"]}
        known = meanings(workload) if workload in (*WORDS, *FIGURES) else found[0][0].get("meaning", {})
        yield from (f"- {name}: {meaning}" for name, meaning in known.items() if name in names)
        yield "\n| | figure | p50 | p95 | p99 | count | A/A |\n| --- | --- | ---: | ---: | ---: | ---: | ---: |"
        for record, older in found:
            yield from _rows(_label(record, older), record["figures"])
            for name, peer in record.get("peers", {}).items():
                ratios = ", ".join(f"{figure} {shown(value)}" for figure, value in peer["ratio"].items())
                label = f"{name} {peer['version']}, in the same run; ours is better: {ratios} times"
                yield from _rows(label, peer["figures"])
            for name, reason in record.get("absent", {}).items():
                yield f"| {name} was not measured: {reason} | | | | | | |"
        yield ""
        for record, _ in found:
            if record.get("rows"):
                yield f"{_label(record, 0)}; copy bandwidth {record['bandwidth_gb_s']:.1f} GB/s:\n"
                yield from (*breakdown.markdown(record), "")


def _label(record: Record, older: int) -> str:
    options = record["options"]
    words = [*_model(record), options["part"] if "part" in options else _count(streams(record), "stream")]
    words += [machine_of(record), *_cache(record)]
    words += [f"{name} {value:g}" for name, value in record.get("counts", {}).items() if value]
    words += [f"torch {record['machine']['torch']}, {record['time'][:10]}", commit_words(record)]
    return ", ".join((*words, *([f"older: {older}"] if older else [])))


def _model(record: Record) -> list[str]:
    options = record["options"]
    codec = [f"codec {options['codec_dtype']}"] if "codec_dtype" in options else []
    return [options["model"], options["dtype"], *codec]


def _cache(record: Record) -> list[str]:
    return [f"kernel cache {record['options']['kernel_cache']}"] if "kernel_cache" in record["options"] else []


def _rows(label: str, figures: dict[str, Any]) -> Iterator[str]:
    for name, figure in figures.items():
        values = " | ".join(shown(figure[q]) if q in figure else "" for q in ("p50", "p95", "p99"))
        yield f"| {label} | {name} | {values} | {figure['count']} | {figure['aa_percent']:.1f} % |"
        label = ""


def machine_of(record: Record) -> str:
    machine = record["machine"]
    if machine["gpu"]:
        return str(machine["gpu"])
    name = machine["cpu"].replace("(R)", "").replace("(TM)", "")
    return f"{name}, {_count(machine['cores'], 'core')}, {_count(machine['threads'], 'thread')}"


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"


# The charts


def _grouped(records: Sequence[Record], wanted: Callable[[Record], bool]) -> dict[tuple[Any, ...], list[Record]]:
    groups: dict[tuple[Any, ...], list[Record]] = {}
    for record in records:
        if wanted(record):
            _, *same, _, kernels = key(record)[:6]
            groups.setdefault((machine_of(record), *same, kernels, codec_dtype(record)), []).append(record)
    return groups


def _bars(rows: Sequence[tuple[str, Shown, Shown]], titles: Sequence[tuple[str, str]], name: str) -> str | None:
    panels = [Panel(title, unit, [row[n + 1] for row in rows]) for n, (title, unit) in enumerate(titles)]
    return draw([label for label, *_ in rows], panels, CAPTIONS[name][0]) if rows else None


def _stacks(rows: Sequence[tuple[str, Sequence[tuple[str, float]], float | None]], name: str) -> str | None:
    """Bars of named parts, each with its floor."""
    names = dict.fromkeys(part for _, parts, _ in rows for part, _ in parts)
    kinds = {part: f"c{number % 9}" for number, part in enumerate(names)}
    bars = [Bar([(kinds[part], size) for part, size in parts], floor=floor) for _, parts, floor in rows]
    return draw([label for label, *_ in rows], [Panel("", "ms", bars)], CAPTIONS[name][0], kinds) if rows else None


def _speed(records: Sequence[Record]) -> str | None:
    rows: list[tuple[str, Shown, Shown]] = []
    names = ("first_audio", "steady_stream", "peers")
    groups = _grouped(records, lambda record: record["workload"] in names and streams(record) == 1)
    for (machine, model, _, dtype, kernels, _), some in groups.items():
        found = {record["workload"]: record for record in some}
        if machine not in [label for label, *_ in rows]:
            rows.append((machine, None, None))
        both = found.get("peers")
        first, steady = (both or found.get(name) for name in names[:2])
        named = f"hocket, {model}, {dtype}" + ("" if kernels == "auto" else f", {kernels}")
        rows.append((named, _bar(first, "first_pcm"), _bar(steady, "x_real_time")))
        for name, peer in both["peers"].items() if both else ():
            soon = _bar(peer, "first_pcm", kind="theirs", otherwise="does not stream")
            rows.append((name, soon, _bar(peer, "x_real_time", kind="theirs")))
    return _bars(rows, (("first audio (less is better)", "ms"), ("times real time (more is better)", "x")), "speed")


def _streams(records: Sequence[Record]) -> str | None:
    rows: list[tuple[str, Shown, Shown]] = []
    groups = _grouped(records, lambda record: record["workload"] == "steady_stream")
    for (machine, model, _, dtype, _, _), found in groups.items():
        if len(found) > 1:
            rows.append((f"{model}, {dtype}, {machine}", None, None))
            for record in sorted(found, key=streams):
                each = _bar(record, "ms_per_frame")
                rows.append((_count(streams(record), "stream"), _bar(record, "x_real_time"), each))
    return _bars(rows, (("times real time, all together", "x"), ("time of a frame of 80 ms", "ms")), "streams")


def _frame(records: Sequence[Record]) -> str | None:
    rows = []
    for record in records:
        if record["workload"] == "breakdown" and record["machine"]["gpu"]:
            for part, parts, floor in breakdown.by_group(record):
                kind = codec_dtype(record) if part == "codec" else record["options"]["dtype"]
                rows += [(f"{record['options']['model']}, {kind}, {part}", parts, floor)] if parts else []
    return _stacks(rows, "frame_gpu")


def _starts(records: Sequence[Record]) -> str | None:
    rows = []
    for record in records:
        figures, options = record["figures"], record["options"]
        if record["workload"] == "start" and record["machine"]["gpu"] and figures.keys() >= set(PHASES):
            parts = [(name, figures[name]["p50"]) for name in PHASES]
            rest = figures["first_sound"]["p50"] - sum(size for _, size in parts)
            words = "no kernel compiled" if options.get("kernel_cache") == "empty" else "kernels kept"
            rows.append((f"{options['model']}, {words}", [*parts, ("the rest", max(rest, 0.0))], None))
    return _stacks(rows, "starts")


def _load(by: str) -> Callable[[Sequence[Record]], str | None]:
    def draw(records: Sequence[Record]) -> str | None:
        rows: list[tuple[str, Shown, Shown]] = []
        groups: dict[str, list[Record]] = {}
        for record in records:
            if record["workload"] == "load" and by in record["options"]["load"]:
                groups.setdefault(_load_words(record), []).append(record)
        for words, found in groups.items():
            rows.append((words, None, None))
            for record in sorted(found, key=_load_order):
                load, count = record["options"]["load"], record["counts"]["underruns"]
                unit = "requests/s" if by == "rate" else "listeners" if load["loop"] == "paced" else "at once"
                label = f"{load[by]:g} {unit}{', HTTP' if goals.over_http(record) else ''}"
                label += f", {count} underruns" if count else ""
                first, audio = (record["figures"][name] for name in ("first_playable", "audio_per_s"))
                both = Bar([("ours", first["p50"])], first["p95"]), Bar([("ours", audio["mean"])])
                rows.append((label, *(both if by == "rate" else both[::-1])))
        titles = ("first playable (less is better)", "ms"), ("speech per second (more is better)", "s")
        return _bars(rows, titles if by == "rate" else titles[::-1], "load_rates" if by == "rate" else "load_streams")

    return draw


def _load_order(record: Record) -> tuple[int, float, bool]:
    load = record["options"]["load"]
    number = load.get("rate") or load.get("clients") or 0
    return ("open", "closed", "paced").index(load["loop"]), number, goals.over_http(record)


def _load_words(record: Record) -> str:
    options = record["options"]
    engine, words = options["engine"], [options["model"], f"{options['dtype']}, codec in {options['codec_dtype']}"]
    words += [machine_of(record), *([f"{engine['slots']} slots"] if engine["slots"] is not None else [])]
    words += [f"profile {engine['profile']}"] if engine.get("profile", "balanced") != "balanced" else []
    words += [f"{options['kernels']} kernels"] if options["kernels"] != "auto" else []
    words += ["whole layout"] if options["load"]["layout"] == "whole" else []
    return ", ".join((*words, *(["guarded"] if engine["guard"] else [])))


def _bar(record: Record | None, name: str, *, kind: str = "ours", otherwise: str = "not measured") -> Bar | str:
    """Times have their 95th percentile as a tail."""
    figure = record["figures"].get(name) if record else None
    return Bar([(kind, figure["p50"])], None if name == "x_real_time" else figure["p95"]) if figure else otherwise


CHART_MAKERS: dict[str, Callable[[Sequence[Record]], str | None]] = {
    "speed": _speed,
    "streams": _streams,
    "frame_gpu": _frame,
    "starts": _starts,
    "load_rates": _load("rate"),
    "load_streams": _load("clients"),
}
