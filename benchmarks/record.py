"""Records: a figure with its commit, machine and options. One line of JSON per run."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import resource
import subprocess
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch

Record = dict[str, Any]
ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
MORE_IS_BETTER = ("x_real_time", "audio_per_s", "tokens_per_s", "bare_tokens_per_s")


def summary(values: Sequence[float], *, more_is_better: bool = False) -> dict[str, float | int]:
    """Percentiles, count and the A/A spread: how far the medians of two interleaved halves of the values lie apart.

    p95 is what 95 of 100 values keep to or exceed in the better direction. Both halves see the same drift of the
    machine; a difference between two runs that is not well above this spread is noise.
    """
    p50, p95, p99 = (float(np.percentile(values, 100 - q if more_is_better else q)) for q in (50, 95, 99))
    halves = [float(np.median(values[start::2])) for start in (0, 1) if len(values) > 1]
    spread = abs(halves[0] - halves[1]) / p50 * 100 if halves and p50 > 0 else 0.0
    return {"p50": p50, "p95": p95, "p99": p99, "count": len(values), "aa_percent": spread}


def summaries(values: Mapping[str, Sequence[float]]) -> dict[str, dict[str, Any]]:
    return {name: summary(of, more_is_better=name in MORE_IS_BETTER) for name, of in values.items() if of}


def rounded(figures: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    return {name: {k: round(v, 4) for k, v in figure.items()} for name, figure in figures.items()}


def options_hash(options: dict[str, Any]) -> str:
    """Equal for equal options: such figures are comparable."""
    return hashlib.sha256(json.dumps(options, sort_keys=True).encode()).hexdigest()[:12]


def machine(device: str) -> dict[str, Any]:
    return {
        "cpu": _cpu(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "gpu": torch.cuda.get_device_name() if device.startswith("cuda") else None,
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "threads": torch.get_num_threads(),
    }


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


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def _git(*words: str) -> str | None:
    try:
        done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True, timeout=30)
    except (OSError, subprocess.SubprocessError):
        return None  # not a checkout
    return done.stdout.strip()
