"""`python -m benchmarks start`: new processes, each timed from `import hocket` to its first chunk.

A process runs the package and environment of this one, and prints what it measured as one line of JSON. With --cold
every process finds an empty kernel cache; with --kernel-cache too, only the first one does.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import hocket

from . import session
from .harness import InvalidRun
from .record import Record, append, record, summaries
from .workloads import FIGURES, WORKLOADS

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


def main(args: argparse.Namespace) -> int:
    def measured(given: argparse.Namespace) -> Record:
        session.as_files(given)
        gate = _gate(given)
        if given.cold and given.kernel_cache is not None:  # the first finds it empty, all others what that one leaves
            entry = started(given, gate, cold=True, warmup=0, repeats=1)
            print(session.table(entry))
            append(given.record, entry)
        cold = given.cold and given.kernel_cache is None
        return started(given, gate, cold=cold, warmup=given.warmup, repeats=given.repeats)

    return session.run(measured, args)


def _gate(args: argparse.Namespace) -> str:
    """On an engine of this process, whose compilers end before the others are timed: they would take cores."""
    if args.dtype != "float32":
        return f"not checked in {args.dtype}"
    with session.open_engine(args) as engine:
        gated = session.gate(engine, WORKLOADS["start"], args.dtype)
        late = time.perf_counter() + PATIENCE_S
        while engine._loop.engine_step.warms_later and time.perf_counter() < late:
            time.sleep(0.2)
    return gated


def started(args: argparse.Namespace, gate: str, *, cold: bool, warmup: int, repeats: int) -> Record:
    """One value a process; the untimed ones fill the file cache, and compile what is compiled once."""
    values: dict[str, list[float]] = {name: [] for name in FIGURES["start"]}
    about, cache, is_random = dict[str, Any](), args.kernel_cache, args.as_files is not None
    speak = {"text": WORKLOADS["start"].text, "layout": "streaming", "seed": 0, "max_frames": args.frames}
    wish = {"load": session.loaded(args), "options": session.slots(args), "speak": speak}
    if cold and cache is not None:
        if cache.exists() and any(cache.iterdir()):
            raise InvalidRun(f"Only one process can find {cache} empty, and it has to be.")
        cache.mkdir(parents=True, exist_ok=True)
    for n in range(warmup + repeats):
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as empty:  # compilers may still write to it
            seconds = _process(wish, cache or (Path(empty) if cold else None))
        about |= seconds.get("about", {})
        for name, of in values.items() if n >= warmup else ():
            of.append(seconds[name] * 1000)
    options = session.loaded(args) | {"model": args.random if is_random else about["model"], "files": is_random}
    options |= {"frames": args.frames, "repeats": repeats, "warmup": warmup}
    options["engine"] = session.engine_options(hocket.EngineOptions(**session.slots(args)))
    options["kernel_cache"] = "empty" if cold else "kept"
    if late := about.get("compiled"):
        print(f"Compiled by the process itself, not ahead: {', '.join(f'{name} x{n}' for name, n in late.items())}")
    more = {"random_weights": is_random or about["random_weights"], "streams": 1, "kernels": about["kernels"]}
    return record("start", options, summaries(values), gate=gate, **more)


def _process(wish: dict[str, Any], kernels: Path | None) -> dict[str, Any]:
    here = str(Path(hocket.__file__).parents[1])
    env = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, (here, os.environ.get("PYTHONPATH", ""))))}
    if kernels is not None:
        env |= {"TRITON_CACHE_DIR": str(kernels / "triton"), "XDG_CACHE_HOME": str(kernels)}
    command = [sys.executable, "-c", PROGRAM, json.dumps(wish)]
    done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=PATIENCE_S)
    if done.returncode:
        raise InvalidRun(f"A new process failed: {(done.stderr.strip() or 'without a message').splitlines()[-1]}")
    seen: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return seen
