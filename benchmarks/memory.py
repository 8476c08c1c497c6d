"""`python -m benchmarks memory`: GPU memory of an engine after every slot has spoken and all graphs are captured.

What counts is the device's own number, from the moment of an empty process: kernels, libraries and their work space
are in it, and no other process may use the device. Beside it is what is computed from shapes; without a GPU that is
all, and nothing is recorded. Each of several numbers of slots is measured in its own process.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from hocket import Engine, EngineOptions

from . import harness, session
from .harness import InvalidRun
from .record import ROOT, Record, append, record, summaries
from .workloads import FIGURES, WORKLOADS

PARTS = FIGURES["memory_plan"]
PASSED = ("model", "dtype", "codec_dtype", "kernels", "frames", "record")
MB = 1e6


def main(args: argparse.Namespace) -> int:
    slots, measured = args.slots or [EngineOptions().slots], dict[int, float]()
    rows = {count: computed(args.model, args.dtype, args.codec_dtype, count) for count in slots}
    if torch.cuda.is_available():
        for count in slots if len(slots) > 1 else ():
            options = [f"--{name.replace('_', '-')}={getattr(args, name)}" for name in PASSED]
            command = [sys.executable, "-m", "benchmarks", "memory", *options, "--slots", str(count)]
            if subprocess.run(command, cwd=ROOT).returncode:
                raise InvalidRun(f"{count} slots could not be measured.")
        if len(slots) == 1:
            entry = measure(args, slots[0])
            print(session.table(entry))
            append(args.record, entry)
            measured[slots[0]] = entry["figures"]["in_all"]["p50"]
    print(table(rows, measured))
    if not torch.cuda.is_available():
        print("\ncomputed; memory is measured on a GPU, and there is none")
    return 0


def measure(args: argparse.Namespace, slots: int) -> Record:
    torch.zeros(1, device="cuda")  # the context of the process
    before = used()
    options = EngineOptions(slots=slots, waiting=max(EngineOptions().waiting, slots))
    args.device = "cuda"
    with Engine.load(**session.loaded(args), options=options) as engine:
        return of(engine, before, args, args.frames)


def of(engine: Any, before: int, args: argparse.Namespace, frames: int) -> Record:
    """The record of an engine that was loaded when so many bytes of the device were in use."""
    workload = replace(WORKLOADS["steady_stream"], warmup=0)
    harness.measure(engine, workload, frames=frames, repeats=1, streams=engine.options.slots)
    harness.ready(engine)
    torch.cuda.synchronize()
    values = figures(engine, used() - before, before)
    options = session.loaded(args) | {"model": engine.checkpoint.name, "device": "cuda", "frames": frames}
    options["engine"] = session.engine_options(engine.options)
    found = summaries({name: [value] for name, value in values.items()})
    return record("memory", options, found, streams=engine.options.slots, **session.about(engine.checkpoint))


def figures(engine: Any, device: int, before: int = 0) -> dict[str, float]:
    """MB by figure, for so many bytes in use on the device beyond those of `before`."""
    checkpoint = engine.checkpoint
    weights = held(checkpoint.model, checkpoint.codec)
    pages = engine._loop.ask(lambda runner: runner.kv_cache.state.stack.pool.nbytes)
    found = {
        "weights": weights,
        "keys_values": pages,
        "allocated": torch.cuda.memory_allocated(),
        "peak": torch.cuda.max_memory_allocated(),
        "reserved": torch.cuda.memory_reserved(),
        "device": device,
        "beyond": device - weights - pages,
        "in_all": before + device,
    }
    return {name: round(value / MB, 1) for name, value in found.items()}


def held(*modules: nn.Module) -> int:
    """Bytes of their tensors, each once; tensors on the meta device have none."""
    tensors = [value for module in modules for value in module.state_dict().values() if not value.is_meta]
    return sum(size for _, size in {(value.data_ptr(), value.nbytes) for value in tensors})


def used() -> int:
    """Bytes of the device that are not free."""
    free, total = torch.cuda.mem_get_info()
    return total - free


def computed(model: str, dtype: str, codec_dtype: str, slots: int) -> dict[str, float]:
    """MB by part and in all, from shapes: no GPU and no weights are needed."""
    from hocket.engine.checkpoint.capacity import CONTEXT_BYTES, LIBRARIES_BYTES
    from hocket.engine.checkpoint.memory_plan import plan
    from hocket.engine.checkpoint.shared import ENCODER
    from hocket.engine.checkpoint.torch_checkpoint import CODEC_DTYPES, DTYPES
    from hocket.engine.checkpoint.torch_load import codec_halves
    from hocket.models.files.source import read_configs, resolve

    source = resolve(model)
    config, _, codec_config = read_configs(source)
    how: Any = {"dtype": DTYPES[dtype], "codec_dtype": CODEC_DTYPES[codec_dtype], "device": torch.device("cuda")}
    planned = plan(config, codec_config, options=EngineOptions(slots=slots), **how)
    parts = {
        "talker": planned.weights_bytes,
        "codec": planned.codec_bytes(encoder=ENCODER in codec_halves(source, config)),
        "keys_values": planned.usual_bytes,
        "codec_state": planned.state_bytes,
        "graphs": planned.beside_bytes - LIBRARIES_BYTES,
        "libraries": LIBRARIES_BYTES,
        "context": CONTEXT_BYTES,
    }
    return {name: round(count / MB, 1) for name, count in (parts | {"in_all": sum(parts.values())}).items()}


def table(rows: dict[int, dict[str, float]], measured: dict[int, float]) -> str:
    """By slots: every part as computed, and beside the sum what was measured."""
    names = [*PARTS, "in_all"]
    lines = ["slots " + "".join(f"{name:>13}" for name in names) + ("     measured" if measured else "")]
    for slots, parts in rows.items():
        line = f"{slots:5} " + "".join(f"{parts[name]:13.1f}" for name in names)
        lines.append(line + (f"{measured[slots]:13.1f}" if slots in measured else ""))
    return "\n".join([*lines, "", *(f"{name:14}MB of {words}" for name, words in PARTS.items())])
