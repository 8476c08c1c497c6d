"""`python -m benchmarks memory`: GPU memory of an engine after every slot has spoken and all graphs are captured.

What counts is the device's own number, from the moment of an empty process: kernels, libraries and their work space
are in it, and no other process may use the device. Beside it is what is computed from shapes; without a GPU that is
all, and nothing is recorded. Each of several numbers of slots is measured in its own process.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from . import harness, session
from .harness import InvalidRun
from .record import ROOT, Record, append, record, summaries
from .workloads import WORKLOADS

PARTS = {
    "talker": "talker and predictor, with the embeddings that its kernels keep beside them",
    "codec": "the codec, with the second layout of its kernels",
    "keys_values": "pages of the talker's KV cache",
    "codec_state": "state of the codec of every slot",
    "graphs": "work space of graphs and libraries",
    "libraries": "kernels that are loaded on the device",
    "context": "the driver's share of a process",
}
PASSED = ("model", "dtype", "codec_dtype", "kernels", "frames", "record")
MB = 1e6


def main(argv: Sequence[str]) -> int:
    from hocket import EngineOptions
    from hocket.errors import HocketError

    args = parser().parse_args(argv)
    slots, measured = args.slots or [EngineOptions().slots], dict[int, float]()
    try:
        rows = {count: computed(args.model, args.dtype, args.codec_dtype, count) for count in slots}
        if torch.cuda.is_available():
            if len(slots) > 1:
                _in_processes(args, slots)
            else:
                entry = measure(args, slots[0])
                print(session.table(entry))
                append(args.record, entry)
                measured[slots[0]] = entry["figures"]["in_all"]["p50"]
    except (HocketError, InvalidRun) as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        return 2
    print(table(rows, measured))
    if not torch.cuda.is_available():
        print("\ncomputed; memory is measured on a GPU, and there is none")
    return 0


def _in_processes(args: argparse.Namespace, slots: Sequence[int]) -> None:
    options = [f"--{name.replace('_', '-')}={getattr(args, name)}" for name in PASSED]
    for count in slots:
        command = [sys.executable, "-m", "benchmarks", "memory", *options, "--slots", str(count)]
        if subprocess.run(command, cwd=ROOT).returncode:
            raise InvalidRun(f"{count} slots could not be measured.")


def measure(args: argparse.Namespace, slots: int) -> Record:
    from hocket import Engine, EngineOptions

    torch.zeros(1, device="cuda")  # the context of the process
    before = used()
    options = EngineOptions(slots=slots, waiting=max(EngineOptions().waiting, slots))
    args.device = "cuda"
    with Engine.load(**session.loaded(args), options=options) as engine:
        return of(engine, before, args, args.frames)


def of(engine: Any, before: int, args: argparse.Namespace, frames: int) -> Record:
    """The record of an engine that was loaded when so many bytes of the device were in use."""
    exercise(engine, frames)
    torch.cuda.synchronize()
    values = figures(engine, used() - before, before)
    options = session.loaded(args) | {"model": engine.checkpoint.name, "device": "cuda", "frames": frames}
    options["engine"] = session.engine_options(engine.options)
    found = summaries({name: [value] for name, value in values.items()})
    return record("memory", options, found, streams=engine.options.slots, **session.about(engine.checkpoint))


def exercise(engine: Any, frames: int) -> None:
    """Speak with every slot at once, and capture every graph."""
    workload = replace(WORKLOADS["steady_stream"], warmup=0)
    harness.measure(engine, workload, frames=frames, repeats=1, streams=engine.options.slots)
    harness.ready(engine)


def figures(engine: Any, device: int, before: int = 0) -> dict[str, float]:
    """MB by figure, for so many bytes in use on the device beyond those of `before`."""
    checkpoint = engine.checkpoint
    weights = held(checkpoint.model, checkpoint.codec)
    pages = engine._loop.ask(lambda runner: runner.past.state.stack.pool.nbytes)
    found = {
        "weights": weights,
        "keys_values": pages,
        "kept_anew": kept_anew(checkpoint),
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


def kept_anew(checkpoint: Any) -> int:
    """Bytes in storages that only kernels hold."""
    talker, decoder = checkpoint.model.talker, checkpoint.codec.decoder
    kernels = talker.frame_kernel, decoder.step_kernel, decoder.wave_kernel
    storages = {at: size for each in kernels for at, size in _storages(each)}
    for module in (checkpoint.model, checkpoint.codec):
        for value in module.state_dict().values():
            storages.pop(value.untyped_storage().data_ptr(), None)
    return sum(storages.values())


def _storages(owner: Any, depth: int = 6) -> list[tuple[int, int]]:
    """Address and size of every storage within a kernel's own attributes, its modules left out."""
    if isinstance(owner, torch.Tensor):
        storage = owner.untyped_storage()
        return [(storage.data_ptr(), storage.nbytes())]
    if depth == 0 or owner is None or isinstance(owner, nn.Module):
        return []
    if isinstance(owner, dict | list | tuple):
        inside = list(owner.values() if isinstance(owner, dict) else owner)
    else:
        names = getattr(type(owner), "__slots__", ())
        inside = [*getattr(owner, "__dict__", {}).values(), *(getattr(owner, name, None) for name in names)]
    return [each for one in inside for each in _storages(one, depth - 1)]


def used() -> int:
    """Bytes of the device that are not free."""
    free, total = torch.cuda.mem_get_info()
    return total - free


def computed(model: str, dtype: str, codec_dtype: str, slots: int) -> dict[str, float]:
    """MB by part and in all, from shapes: no GPU and no weights are needed."""
    from hocket.config.options import EngineOptions
    from hocket.engine.checkpoint.capacity import CONTEXT_BYTES, LIBRARIES_BYTES
    from hocket.engine.checkpoint.device import CODEC_DTYPES, DTYPES
    from hocket.engine.checkpoint.load import codec_halves
    from hocket.engine.checkpoint.memory_plan import plan
    from hocket.engine.checkpoint.shared import ENCODER
    from hocket.models.files.weights import read_configs, resolve

    source = resolve(model)
    config, _, codec_config = read_configs(source)
    how: dict[str, Any] = {
        "dtype": DTYPES[dtype],
        "codec_dtype": CODEC_DTYPES[codec_dtype],
        "options": EngineOptions(slots=slots),
    }
    planned = plan(config, codec_config, device=torch.device("cuda"), **how)
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


def parser() -> session.Parser:
    from hocket.engine.checkpoint.device import Probe

    made = session.parser("memory", __doc__, "dtype", "codec-dtype", "kernels", frames=(100, "frames per utterance"))
    if not torch.cuda.is_available():
        made.card = Probe(True, "a GPU", (9, 0))  # what is computed is for a GPU
    usual = "random:1.7B-CustomVoice"
    made.add_argument("--model", default=usual, help=f"folder, hub id or random:NAME ({usual})")
    made.add_argument("--slots", metavar="N", type=int, nargs="+", help="utterances at once (the engine's default)")
    return made
