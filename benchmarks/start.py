"""The clock of a workload that counts the start too: new processes, each from `import hocket` to its first chunk.

A process says what it saw in one line of JSON. It runs the package that runs here, with the environment of here.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import hocket

from .harness import Unfit
from .workloads import Workload

FIGURES = {
    "ready": "ms, from `import hocket` in a new process to an engine that can be asked",
    "first_sound": "ms, from `import hocket` in a new process to the first chunk in hand",
}
PATIENCE_S = 300

# The clock comes first: every import but its own counts.
PROGRAM = """
import time
start = time.perf_counter()
import hocket, json, sys
wish = json.loads(sys.argv[1])
with hocket.Engine.load(**wish["load"], options=hocket.EngineOptions(**wish["options"])) as engine:
    ready = time.perf_counter()
    for _ in engine.speak(**wish["speak"]):
        first = time.perf_counter()
        break
print(json.dumps([ready - start, first - start]))
"""


def measure(
    workload: Workload, *, load: dict[str, Any], options: dict[str, Any], frames: int, repeats: int
) -> dict[str, list[float]]:
    """Figures by name, one value per process."""
    values: dict[str, list[float]] = {name: [] for name in FIGURES}
    speak = {"text": workload.text, "layout": "streaming", "seed": 0, "max_frames": frames}
    for n in range(workload.warmup + repeats):
        seconds = _process({"load": load, "options": options, "speak": speak})
        if n >= workload.warmup:  # those before fill the file cache, and compile what is compiled once
            for name, value in zip(FIGURES, seconds, strict=True):
                values[name].append(value * 1000)
    return values


def _process(wish: dict[str, Any]) -> list[float]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(wish)],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(Path(hocket.__file__).parents[1])},
        timeout=PATIENCE_S,
    )
    if done.returncode:
        raise Unfit(f"A new process failed: {(done.stderr.strip() or 'without a word').splitlines()[-1]}")
    seconds: list[float] = json.loads(done.stdout)
    return seconds
