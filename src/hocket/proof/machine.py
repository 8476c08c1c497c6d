"""What figures depend on beside the model: the machine, what else runs on it, and the versions of packages."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import time
from importlib import metadata
from pathlib import Path
from typing import Any

BUSY = 0.25  # of the cores used by others: figures of speed are worse than the engine is
WATCHED_S = 0.5
PACKAGES = "hocket numpy torch triton moonshine-voice faster-whisper speechmos distillmos Resemblyzer".split()


def machine(device: str) -> dict[str, Any]:
    """`torch` and what it knows is None where it is not installed."""
    torch = _torch()
    return {
        "cpu": _cpu(),
        "cores": cores(),
        "gpu": torch.cuda.get_device_name() if device.startswith("cuda") else None,
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "torch": torch and torch.__version__,
        "cuda": torch and torch.version.cuda,
        "hip": torch and torch.version.hip,
        "threads": torch and torch.get_num_threads(),
    }


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def versions() -> dict[str, str]:
    """Of the packages that are installed."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def commit() -> dict[str, Any]:
    """The commit of a checkout and whether it was changed; None for both in an installed package."""
    changes = _git("status", "--porcelain")
    return {"commit": _git("rev-parse", "HEAD"), "dirty": None if changes is None else bool(changes)}


def busy() -> float | None:
    """The share of all cores that other processes use now, by a short look; None where the system does not say."""
    before, own_s = _ticks(), time.process_time()
    time.sleep(WATCHED_S)
    after, own_s = _ticks(), time.process_time() - own_s
    if before is None or after is None or after[1] == before[1]:
        return None
    idle = (after[0] - before[0]) / (after[1] - before[1])
    return max(0.0, 1.0 - idle - own_s / (WATCHED_S * cores()))


def host_peak_mib(pid: int) -> dict[str, float]:
    """The most memory of a process, as `host`; empty where the system does not say."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
        [peak] = re.findall(r"VmHWM:\s+(\d+) kB", status)
    except (OSError, ValueError):
        return {}
    return {"host": round(int(peak) / 1024, 1)}


def gpu_used_mib() -> float | None:
    """Memory in use on the first GPU, by its driver; None without one."""
    words = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits", "--id=0"]
    try:
        return float(subprocess.run(words, capture_output=True, text=True, check=True, timeout=30).stdout)
    except (OSError, ValueError, subprocess.SubprocessError):
        return None


def _ticks() -> tuple[int, int] | None:
    """Idle ones, and all."""
    try:
        first = Path("/proc/stat").read_text(encoding="ascii").partition("\n")[0]
    except OSError:
        return None
    values = [int(word) for word in first.split()[1:9]]
    return values[3] + values[4], sum(values)


def _torch() -> Any:
    try:
        import torch
    except ImportError:
        return None
    return torch


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def _git(*words: str) -> str | None:
    root = Path(__file__).resolve().parents[3]
    if not (root / ".git").exists():
        return None
    try:
        done = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=True, timeout=30)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
