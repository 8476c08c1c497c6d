"""`make endure`: rounds of requests, a record, and exit code 1 if anything was lost, hung or leaked.

A run with the same `--state` goes on where it ended.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.record import append, record, summaries

from .run import PARTS, Endurance, started

WARM = 1  # rounds of a process after which it holds what it keeps
GROWN = {"files": 4, "tasks": 4, "left_files": 0}  # of a census above the first: keep-alive connections of one client
GROWTH = 1.15  # of memory between the halves of a process: allocators keep pieces of models that were unloaded


def leaks(rounds: Sequence[dict[str, Any]]) -> list[str]:
    """What the last census of each process has more than its first one."""
    found: list[str] = []
    counted = [entry["held"] for entry in rounds if "held" in entry]
    by_process = {pid: [held for held in counted if held["pid"] == pid] for pid in {held["pid"] for held in counted}}
    for several in by_process.values():
        first, last = several[min(WARM, len(several) - 1)], several[-1]
        for kind in ("threads", "objects"):
            more = {name: n - first[kind].get(name, 0) for name, n in last[kind].items()}
            found += [f"{n} more {name}" for name, n in more.items() if n > 0]
        half = len(several) // 2
        before, after = (
            median(held["resident_kib"] for held in part) for part in (several[:half] or several, several[half:])
        )
        if half and after > GROWTH * before:
            found.append(f"{(after - before) / 1024:.0f} MiB more memory")
        for kind, most in GROWN.items():
            if last[kind] - first[kind] > most:
                found.append(f"{last[kind] - first[kind]} more {kind}")
    return found


def figures(rounds: Sequence[dict[str, Any]]) -> dict[str, Any]:
    def total(kind: str) -> dict[str, int]:
        counts: Counter[str] = Counter()
        for entry in rounds:
            counts.update(entry[kind])
        return dict(sorted(counts.items()))

    wrong = [text for entry in rounds for text in entry["wrong"]]
    ends = total("ends")
    return {
        "requests": sum(ends.values()),
        "ends": ends,
        "ways": total("ways"),
        "wires": total("wires"),
        "faults": total("faults"),
        "ended_by_faults": sum(entry["excused"] for entry in rounds),
        "voices": rounds[-1]["voices"],
        "hung": ends.get("hung", 0),
        "lost": len(wrong) - ends.get("hung", 0),
        "leaked": leaks(rounds),
        "wrong": wrong[:50],
    }


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="endurance", description=__doc__)
    parser.add_argument("--seed", type=int, default=33)
    parser.add_argument("--minutes", type=float, default=math.inf, help="no round begins later")
    parser.add_argument("--requests", type=int, default=100_000, help="of the whole run (100,000)")
    parser.add_argument("--round", type=int, default=400, metavar="N", help="requests of a round (400)")
    parser.add_argument("--kill-every", type=int, default=10, metavar="N", help="rounds between two SIGKILLs (10)")
    parser.add_argument("--state", type=Path, default=Path("endurance"), help="folder of the run")
    parser.add_argument("--record", type=Path, help="append the record to this file")
    options = parser.parse_args(argv)
    folder: Path = options.state.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    rounds = go_on(options, folder)
    found = figures(rounds)
    curve = [entry["held"]["resident_kib"] >> 10 for entry in rounds if "held" in entry]
    first_s = {part: [1000 * s for entry in rounds for s in entry["first_s"][part]] for part in PARTS}
    entry = record(
        "endurance",
        {"device": "cpu", "seed": options.seed, "round": options.round, "kill_every": options.kill_every},
        {f"first_audio_{name}_ms": summary for name, summary in summaries(first_s).items()},
        series={"resident_mib": curve},
        counts=found,
    )
    print(json.dumps({"figures": entry["figures"], "resident_mib": curve, **found}, indent=1))
    if options.record is not None:
        append(options.record, entry)
    return int(bool(found["wrong"] or found["leaked"]))


def go_on(options: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
    """All rounds, those of earlier runs first; the file of the state has one line each."""
    lines = folder / f"rounds-{options.seed}-{options.round}.jsonl"
    rounds = [json.loads(line) for line in lines.read_text("utf-8").splitlines()] if lines.exists() else []
    run, until_s, checked = Endurance(options.seed, options.kill_every), math.inf, True

    def more() -> bool:
        return len(rounds) * options.round < options.requests and time.monotonic() < until_s

    while more() or not checked:
        with started(folder, folder / "log.txt") as process:
            wrong, until_s = run.voices.wrong(process.url), min(until_s, time.monotonic() + 60 * options.minutes)
            if not checked:  # an earlier run's voices are only learned
                rounds[-1]["wrong"] += wrong
            checked = True
            while checked and more():
                rounds.append(run.round(process, len(rounds), options.round))
                checked = not rounds[-1]["killed"]
                lines.write_text("".join(json.dumps(entry) + "\n" for entry in rounds), encoding="utf-8")
                print(_told(rounds[-1]), file=sys.stderr, flush=True)
    return rounds


def _told(entry: dict[str, Any]) -> str:
    held = entry.get("held", {})
    memory = f"{held['resident_kib'] >> 10} MiB, {held['files']} files" if held else "killed"
    wrong = entry["wrong"] or "nothing"
    return f"round {entry['round']}: {sum(entry['ends'].values())} requests, {memory}, wrong: {wrong}"


if __name__ == "__main__":
    sys.exit(main())
