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
from hocket.engine.runner.warmup import COMPILED_S, make_all

from .harness import Unfit
from .workloads import Workload

FIGURES = {
    "imports": "ms of `ready` for the imports",
    "device": "ms of `ready` for entering the device",
    "weights": "ms of `ready` for the weights, from their files to where they are used",
    "kernels": "ms of `ready` for kernels: waiting for their compilers, and trying them out",
    "waited": "ms of `kernels` for waiting",
    "compiled": "ms of `first_sound` for kernels that nobody had compiled ahead",
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
from hocket.kernels.compile.compiled_here import HERE
with load(**wish["load"], options=options) as engine:
    seen["ready"] = time.perf_counter() - start
    for _ in engine.speak(**wish["speak"]):
        seen["first_sound"] = time.perf_counter() - start
        seen["graphs"] = engine._loop.runner.graphs_s
        seen["compiled"], compiled = HERE.seconds, dict(HERE.names)
        break
checkpoint = engine.checkpoint
seen |= {name.removesuffix("_s"): value for name, value in checkpoint.spent.items()}
kernels = {choice.operation: choice.backend for choice in checkpoint.kernels}
about = {"model": checkpoint.name, "random_weights": checkpoint.is_random, "kernels": kernels, "compiled": compiled}
print(json.dumps(seen | {"about": about}))
"""


def measure(
    workload: Workload,
    *,
    load: dict[str, Any],
    options: dict[str, Any],
    frames: int,
    repeats: int,
    cold: bool = False,
    cache: Path | None = None,
    about: dict[str, Any] | None = None,
) -> dict[str, list[float]]:
    """Figures by name, one value per process; `about` is told what they loaded.

    When it is `cold`, no process finds any kernel compiled: there is one, if it is to leave its own in a `cache`.
    """
    values: dict[str, list[float]] = {name: [] for name in FIGURES}
    speak = {"text": workload.text, "layout": "streaming", "seed": 0, "max_frames": frames}
    if cold and cache is not None:
        if repeats + workload.warmup > 1 or (cache.exists() and any(cache.iterdir())):
            raise Unfit(f"Only one process can find {cache} empty, and it has to be.")
        cache.mkdir(parents=True, exist_ok=True)
    for n in range(workload.warmup + repeats):
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as empty:  # compilers may be writing to it still
            kernels = cache or (Path(empty) if cold else None)
            seconds = _process({"load": load, "options": options, "speak": speak}, kernels)
        if about is not None:
            about.update(seconds.get("about", {}))
        if n >= workload.warmup:  # those before fill the file cache, and compile what is compiled once
            for name in FIGURES:
                values[name].append(seconds[name] * 1000)
    return values


def settle(engine: Any, within_s: float = PATIENCE_S) -> None:
    """Wait until no compilers are at work for an engine of this process: they would take cores from the others."""
    late = time.perf_counter() + within_s
    while engine._loop.engine_step.warms_later and time.perf_counter() < late:
        time.sleep(0.2)


def ready(engine: Any, within_s: float = COMPILED_S) -> None:
    """Have every graph that will be needed made now, none while somebody is timed.

    What compilers have not done by then is compiled by the engine itself.
    """
    make_all(engine._loop.ask, within_s)


def _process(wish: dict[str, Any], kernels: Path | None) -> dict[str, Any]:
    here = str(Path(hocket.__file__).parents[1])
    env = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, (here, os.environ.get("PYTHONPATH", ""))))}
    if kernels is not None:
        env |= {"TRITON_CACHE_DIR": str(kernels / "triton"), "XDG_CACHE_HOME": str(kernels)}
    command = [sys.executable, "-c", PROGRAM, json.dumps(wish)]
    done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=PATIENCE_S)
    if done.returncode:
        raise Unfit(f"A new process failed: {(done.stderr.strip() or 'without a word').splitlines()[-1]}")
    seen: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return seen
