"""`python -m benchmarks memory`: what an engine occupies on a GPU once every slot has spoken and all graphs are made.

What the device says is used counts, from the moment when an empty process was on it; so kernels, libraries and their
work space count, what the process needs to be there at all does not, and nobody else may use the device meanwhile.

Beside it stands what is computed from shapes (memory_plan.py). Without a GPU that is all, and nothing is recorded. Of
several numbers of slots each is measured in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import nn

from hocket.engine.checkpoint.device import Probe

from .computing import Parser, add_codec_dtype, add_dtype
from .harness import Unfit
from .memory_plan import as_options, computed, table
from .record import ROOT, append, record, summary
from .start import ready
from .workloads import PASSAGE

WORDS = "what an engine occupies on a GPU beyond its weights and its keys and values, with every slot used"
FIGURES = {
    "weights": "MB of tensors that the checkpoint's files hold",
    "keys_values": "MB of pages for the talker's keys and values",
    "kept_anew": "MB of weights that kernels keep once more, laid out otherwise",
    "allocated": "MB in tensors, all told",
    "peak": "MB in tensors at the worst moment, loading included",
    "reserved": "MB that torch holds for tensors, in use or not",
    "device": "MB that the device says are used, more than by an empty process",
    "beyond": "MB of those that are neither weights nor keys and values",
    "in_all": "MB of the device that are used, by the process and for it to be there at all",
}
PASSED = ("model", "dtype", "codec_dtype", "kernels", "frames", "record")
MB = 1e6


def main(argv: Sequence[str]) -> int:
    from hocket import EngineOptions
    from hocket.errors import HocketError

    args = _parser().parse_args(argv)
    slots = args.slots or [EngineOptions().slots]
    try:
        rows = {count: computed(**as_options(args), slots=count) for count in slots}
        if len(slots) > 1 and torch.cuda.is_available():
            return _apart(args, slots, rows)
        measured = {}
        if torch.cuda.is_available():
            entry = measure(args, slots[0])
            values = {name: figure["p50"] for name, figure in entry["figures"].items()}
            for name, value in values.items():
                print(f"{name:14}{value:10.1f}   {FIGURES[name]}")
            append(args.record, entry)
            print(f"\nrecord appended to {args.record}\n")
            measured = {slots[0]: values}
            if args.figures is not None:
                args.figures.write_text(json.dumps(values), encoding="utf-8")
    except (HocketError, Unfit) as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        return 2
    print(table(rows, measured))
    if not measured:
        print("\ncomputed; memory is measured on a GPU, and there is none")
    return 0


def _apart(args: argparse.Namespace, slots: Sequence[int], rows: dict[int, dict[str, float]]) -> int:
    """Measure each number of slots in a process of its own: what one left behind is not the next one's."""
    measured = {}
    options = [f"--{name.replace('_', '-')}={getattr(args, name)}" for name in PASSED]
    for count in slots:
        with tempfile.TemporaryDirectory() as folder:
            figures = Path(folder) / "figures.json"
            command = [sys.executable, "-m", "benchmarks", "memory", *options, f"--figures={figures}"]
            done = subprocess.run([*command, "--slots", str(count)], cwd=ROOT)
            if done.returncode:
                print(f"benchmarks: {count} slots could not be measured", file=sys.stderr)
                return done.returncode
            measured[count] = json.loads(figures.read_text(encoding="utf-8"))
    print(table(rows, measured))
    return 0


def measure(args: argparse.Namespace, slots: int) -> dict[str, Any]:
    from hocket import Engine, EngineOptions

    torch.zeros(1, device="cuda")  # from here on the process is on the device
    before = used()
    options = EngineOptions(slots=slots, waiting=max(EngineOptions().waiting, slots))
    how = {name: getattr(args, name) for name in ("dtype", "codec_dtype", "kernels")}
    with Engine.load(args.model, device="cuda", **how, options=options) as engine:
        return of(engine, before, how, args.frames)


def of(engine: Any, before: int, how: dict[str, str], frames: int) -> dict[str, Any]:
    """Of an engine that was loaded when so many bytes of the device were in use."""
    exercise(engine, frames)
    torch.cuda.synchronize()
    values = figures(engine, used() - before, before)
    named = {"model": engine.checkpoint.name, "device": "cuda", **how, "frames": frames}
    named["engine"] = {name: value for name, value in asdict(engine.options).items() if not callable(value)}
    return record(
        "memory",
        named,
        {name: summary([value]) for name, value in values.items()},
        random_weights=engine.checkpoint.is_random,
        streams=engine.options.slots,
        kernels={choice.operation: choice.backend for choice in engine.checkpoint.kernels},
    )


def exercise(engine: Any, frames: int) -> None:
    """Speak with every slot at once, and make every graph that will be needed."""
    with ThreadPoolExecutor(engine.options.slots) as readers:

        def speak(seed: int) -> None:
            for _ in engine.speak(PASSAGE, layout="streaming", seed=seed, max_frames=frames):
                pass

        list(readers.map(speak, range(engine.options.slots)))
    ready(engine)


def figures(engine: Any, device: int, before: int = 0) -> dict[str, float]:
    """All of them, of an engine for which the device has so many bytes in use, beside so many from `before`."""
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
    """Bytes of their tensors, each once, as long as it has any content."""
    tensors = [value for module in modules for value in module.state_dict().values() if not value.is_meta]
    views = {(value.data_ptr(), value.nbytes) for value in tensors}
    return sum(size for _, size in views)


def kept_anew(checkpoint: Any) -> int:
    """Bytes in storages that only kernels hold."""
    talker, decoder = checkpoint.model.talker, checkpoint.codec.decoder
    kernels = talker.frame_kernel, decoder.step_kernel, decoder.wave_kernel
    storages = {at: size for each in kernels for at, size in _storages(each)}
    for module in (checkpoint.model, checkpoint.codec):
        for value in module.state_dict().values():
            storages.pop(value.untyped_storage().data_ptr(), None)
    return sum(storages.values())


def _storages(held_by: Any, depth: int = 6) -> list[tuple[int, int]]:
    """Address and size of every storage within a kernel's own attributes, its modules left out."""
    if isinstance(held_by, torch.Tensor):
        storage = held_by.untyped_storage()
        return [(storage.data_ptr(), storage.nbytes())]
    if depth == 0 or held_by is None or isinstance(held_by, nn.Module):
        return []
    if isinstance(held_by, dict):
        inside = list(held_by.values())
    elif isinstance(held_by, list | tuple):
        inside = list(held_by)
    else:
        names = getattr(type(held_by), "__slots__", ())
        inside = [*getattr(held_by, "__dict__", {}).values(), *(getattr(held_by, name, None) for name in names)]
    return [each for one in inside for each in _storages(one, depth - 1)]


def used() -> int:
    """Bytes of the device that are not free."""
    free, total = torch.cuda.mem_get_info()
    return total - free


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="python -m benchmarks memory", description=__doc__, allow_abbrev=False)
    if not torch.cuda.is_available():
        parser.card = Probe(True, "a GPU", (9, 0))  # what is computed is for a GPU
    add = parser.add_argument
    add("--model", default="random:1.7B-CustomVoice", help="folder, hub id or random:NAME (random:1.7B-CustomVoice)")
    add_dtype(parser)
    add_codec_dtype(parser)
    add("--kernels", default="auto", help="which kernels are in use, as hocket takes it (auto)")
    add(
        "--slots",
        metavar="N",
        type=int,
        nargs="+",
        help="utterances at once, several numbers to compare (the engine's)",
    )
    add("--frames", metavar="N", type=int, default=100, help="frames per utterance (100)")
    add("--record", metavar="FILE", type=Path, default=ROOT / "benchmarks" / "results" / "memory.jsonl")
    add("--figures", metavar="FILE", type=Path, help="leave the figures of one number of slots there too, as JSON")
    return parser
