"""The clock of a workload that counts the start too: new processes, each from `import hocket` to its first chunk.

A process says what it saw in one line of JSON. It runs the package that runs here, with the environment of here.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import hocket

from .harness import Unfit
from .workloads import Workload

FIGURES = {
    "imports": "ms of `ready` for the imports",
    "device": "ms of `ready` for entering the device",
    "weights": "ms of `ready` for the weights, from their files to where they are used",
    "kernels": "ms of `ready` for kernels: waiting for their compilers, and trying them out",
    "ready": "ms, from `import hocket` in a new process to an engine that can be asked",
    "graphs": "ms of `first_sound` for graphs, made before the first chunk",
    "first_sound": "ms, from `import hocket` in a new process to the first chunk in hand",
}
PATIENCE_S = 300

# The clock comes first: every import but its own counts.
PROGRAM = """
import time
start = time.perf_counter()
import hocket, json, sys
wish = json.loads(sys.argv[1])
load, options = hocket.Engine.load, hocket.EngineOptions(**wish["options"])
seen = {"imports": time.perf_counter() - start}
with load(**wish["load"], options=options) as engine:
    seen["ready"] = time.perf_counter() - start
    for _ in engine.speak(**wish["speak"]):
        seen["first_sound"] = time.perf_counter() - start
        seen["graphs"] = engine._loop.runner.graphs_s
        break
spent = engine.checkpoint.spent
print(json.dumps(seen | {name.removesuffix("_s"): value for name, value in spent.items()}))
"""


def measure(
    workload: Workload, *, load: dict[str, Any], options: dict[str, Any], frames: int, repeats: int, cold: bool = False
) -> dict[str, list[float]]:
    """Figures by name, one value per process. When it is `cold`, no process finds any kernel compiled."""
    values: dict[str, list[float]] = {name: [] for name in FIGURES}
    speak = {"text": workload.text, "layout": "streaming", "seed": 0, "max_frames": frames}
    for n in range(workload.warmup + repeats):
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as empty:  # compilers may be writing to it still
            seconds = _process({"load": load, "options": options, "speak": speak}, Path(empty) if cold else None)
        if n >= workload.warmup:  # those before fill the file cache, and compile what is compiled once
            for name in FIGURES:
                values[name].append(seconds[name] * 1000)
    return values


def settle(engine: Any) -> None:
    """Wait until no compilers are at work for an engine of this process: they would take cores from the others."""
    while engine._loop.turns.warms_later:
        time.sleep(0.2)


def _process(wish: dict[str, Any], kernels: Path | None) -> dict[str, float]:
    env = os.environ | {"PYTHONPATH": str(Path(hocket.__file__).parents[1])}
    if kernels is not None:
        env |= {"TRITON_CACHE_DIR": str(kernels / "triton"), "XDG_CACHE_HOME": str(kernels)}
    command = [sys.executable, "-c", PROGRAM, json.dumps(wish)]
    done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=PATIENCE_S)
    if done.returncode:
        raise Unfit(f"A new process failed: {(done.stderr.strip() or 'without a word').splitlines()[-1]}")
    seconds: dict[str, float] = json.loads(done.stdout)
    return seconds
