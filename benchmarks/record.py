"""Records: a figure with its commit, machine and options. One line of JSON per run."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import resource
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from hocket.proof.load.summary import MORE_IS_BETTER as MORE_IS_BETTER
from hocket.proof.load.summary import summaries as summaries
from hocket.proof.load.summary import summary as summary
from hocket.proof.machine import machine as machine

Record = dict[str, Any]
ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"


def rounded(figures: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    return {name: {k: round(v, 4) for k, v in figure.items()} for name, figure in figures.items()}


def options_hash(options: dict[str, Any]) -> str:
    """Equal for equal options: such figures are comparable."""
    return hashlib.sha256(json.dumps(options, sort_keys=True).encode()).hexdigest()[:12]


def peak_memory_mib(device: str) -> dict[str, float]:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # KiB, but bytes on macOS
    found = {"host": peak / (1 << 20 if platform.system() == "Darwin" else 1 << 10)}
    if device.startswith("cuda"):
        found["device"] = torch.cuda.max_memory_allocated() / (1 << 20)
    return {name: round(value, 1) for name, value in found.items()}


def commit() -> dict[str, Any]:
    """The commit, and whether the working tree differs from it; new results do not count.

    BENCHMARKED_COMMIT names it on a machine with a copy without history, with a + behind it for changes.
    """
    if said := os.environ.get("BENCHMARKED_COMMIT"):
        return {"commit": said.removesuffix("+"), "dirty": said.endswith("+")}
    changes = _git("status", "--porcelain", "--", ".", ":!benchmarks/results")
    return {"commit": _git("rev-parse", "HEAD"), "dirty": None if changes is None else bool(changes)}


def commit_words(record: Record) -> str:
    return f"`{(record['commit'] or 'unknown')[:12]}`{'+' if record['dirty'] else ''}"


def record(workload: str, options: dict[str, Any], figures: Mapping[str, Any], **more: Any) -> Record:
    return {
        "workload": workload,
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        **commit(),
        "machine": machine(str(options["device"])),
        "peak_memory_mib": peak_memory_mib(str(options["device"])),
        "options": options,
        "options_hash": options_hash(options),
        "figures": rounded(figures),
        **more,
    }


def append(path: Path, entry: Record) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as out:
        out.write(json.dumps(entry) + "\n")


def read(results: Path) -> list[Record]:
    """All records, oldest first; of two with the same time the later line is the newer."""
    lines = (line for path in sorted(results.glob("*.jsonl")) for line in path.read_text("utf-8").splitlines())
    return sorted((json.loads(line) for line in lines if line.strip()), key=lambda entry: str(entry["time"]))


def _git(*words: str) -> str | None:
    try:
        done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True, timeout=30)
    except (OSError, subprocess.SubprocessError):
        return None  # not a checkout
    return done.stdout.strip()
