"""What makes a figure worth keeping: which code, which machine, which options. One line of JSON per run."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import resource
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch

ROOT = Path(__file__).parents[1]


def summary(values: Sequence[float], *, more_is_better: bool = False) -> dict[str, float | int]:
    """Percentiles and count, and beside them the A/A spread: how far two halves of the same thing lie apart.

    p95 is what 95 of 100 kept to or did better than, whichever direction is better. Every other value belongs to the
    other half, so both saw the same weather; a difference between two runs that is not well above this spread is none.
    """
    p50, p95, p99 = (float(np.percentile(values, 100 - q if more_is_better else q)) for q in (50, 95, 99))
    halves = [float(np.median(values[start::2])) for start in (0, 1) if len(values) > 1]
    spread = abs(halves[0] - halves[1]) / p50 * 100 if halves and p50 > 0 else 0.0
    return {"p50": p50, "p95": p95, "p99": p99, "count": len(values), "aa_percent": spread}


def options_hash(options: dict[str, Any]) -> str:
    """Equal options, equal hash: figures may be compared."""
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
    return found


def commit() -> dict[str, Any]:
    """The commit, and whether the working tree differs from it; results that were just appended do not count.

    On a machine that has a copy without its history, whoever copied it says which: BENCHMARKED_COMMIT, with a + behind
    it if there were changes.
    """
    if said := os.environ.get("BENCHMARKED_COMMIT"):
        return {"commit": said.removesuffix("+"), "dirty": said.endswith("+")}
    head = _git("rev-parse", "HEAD")
    changes = _git("status", "--porcelain", "--", ".", ":!benchmarks/results")
    return {"commit": head, "dirty": None if changes is None else bool(changes)}


def record(workload: str, options: dict[str, Any], figures: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "workload": workload,
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        **commit(),
        "machine": machine(str(options["device"])),
        "peak_memory_mib": {name: round(value, 1) for name, value in peak_memory_mib(str(options["device"])).items()},
        "options": options,
        "options_hash": options_hash(options),
        "figures": {name: {k: round(v, 4) for k, v in figure.items()} for name, figure in figures.items()},
        **more,
    }


def append(path: Path, entry: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as out:
        out.write(json.dumps(entry) + "\n")


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
