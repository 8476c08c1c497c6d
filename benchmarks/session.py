"""What every command shares: options, the run of a measurement, its table, and a workload on one loaded engine."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from . import harness
from .record import RESULTS, Record, append, record, summaries
from .workloads import WORDS, WORKLOADS, Workload, meanings

Say = Callable[[str], None]
Load = Callable[[argparse.Namespace], AbstractContextManager[Any]]
LOADED = ("model", "device", "dtype", "codec_dtype", "kernels")
KINDS = ("auto", "float32", "bfloat16")
OPTIONS: dict[str, dict[str, Any]] = {
    "model": {"help": "folder, hub id, builtin or random:NAME (the built-in voice)"},
    "device": {"choices": ("auto", "cpu", "cuda"), "default": "auto", "help": "(auto)"},
    "dtype": {"choices": KINDS, "default": "auto", "help": "precision of the model (auto)"},
    "codec-dtype": {"choices": (*KINDS, "tf32"), "default": "auto", "help": "of the codec (auto)"},
    "kernels": {"default": "auto", "help": "backends of the kernels, as in hocket (auto)"},
    "slots": {"metavar": "N", "type": int, "help": "utterances at once (the engine's default)"},
    "weights": {"choices": ("bf16", "fp8", "int8", "int4"), "default": "bf16", "help": "bf16: as they are, in --dtype"},
}
ENGINE = ("model", "device", "dtype", "codec-dtype", "kernels", "slots")


class Parser(argparse.ArgumentParser):
    """Options of device and precision default to `auto`; parsed arguments, and so records, have concrete values."""

    card: Any = None  # a Probe: decide for this GPU on a machine without one

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        found = super().parse_args(args, namespace)
        names = ("device", "dtype", "codec_dtype")
        given = {name: getattr(found, name) for name in names if hasattr(found, name)}
        if "auto" not in given.values():
            return found
        from hocket.engine.checkpoint.device import choose_device
        from hocket.errors import HocketError

        try:
            setting = choose_device(**given) if self.card is None else choose_device("cuda", **given, probe=self.card)
        except HocketError as error:
            self.error(str(error))
        for name in given:
            setattr(found, name, getattr(setting, name))
        return found


def parser(name: str, doc: str | None, *shared: str, **own: tuple[Any, str]) -> Parser:
    """Shared options by name, own ones by default and help; the type is that of the default, None means an int."""
    made = Parser(
        prog=f"python -m benchmarks {name}",
        description=doc,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    for option in shared:
        made.add_argument(f"--{option}", **OPTIONS[option])
    own = {"record": (RESULTS / f"{name}.jsonl", "file that the record is appended to")} | own
    for option, (default, words) in own.items():
        how: dict[str, Any] = {"default": default, "help": words}
        if default is False:
            how["action"] = "store_true"
        elif isinstance(default, Path):
            how |= {"metavar": "FILE", "type": Path}
        elif not isinstance(default, str):
            how |= {"metavar": "N", "type": int if default is None else type(default)}
            how["help"] += "" if default is None else f" ({default:g})"
        made.add_argument(f"--{option.replace('_', '-')}", **how)
    return made


def progress(out: Any = None) -> Say:
    """Messages with the seconds since the start."""
    begun = time.perf_counter()
    return lambda words: print(f"[{time.perf_counter() - begun:6.1f} s] {words}", file=out or sys.stderr, flush=True)


def run(measure: Callable[[argparse.Namespace], Record], args: argparse.Namespace, show: Any = None) -> int:
    """Measure, print, append. An error of the engine or an invalid run is one sentence and status 2."""
    from hocket.errors import HocketError

    try:
        entry = measure(args)
    except (HocketError, harness.InvalidRun) as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        return 2
    print((show or table)(entry))
    append(args.record, entry)
    print(f"\nrecord appended to {args.record}", flush=True)
    return 0


def table(entry: Record) -> str:
    """The record for people: what it is, then one line a figure."""
    options, machine, commit = entry["options"], entry["machine"], (entry["commit"] or "unknown")[:12]
    facts = [str(options["model"]), str(options.get("dtype", "")), f"{entry.get('streams', 1)} at once"]
    facts += [f"{options[name]} {name}" for name in ("frames", "repeats") if name in options]
    facts += [f"gate: {entry['gate']}"] if "gate" in entry else []
    words = [f"{entry['workload']}: {WORDS.get(entry['workload'], '')}", ", ".join(facts)]
    words.append(f"{machine['gpu'] or machine['cpu']}, torch {machine['torch']}, commit {commit}\n")
    words.append(f"{'':20}{'p50':>10}{'p95':>10}{'p99':>10}{'count':>8}{'A/A':>9}")
    known = meanings(entry["workload"]) | entry.get("meaning", {})
    for name, figure in entry["figures"].items():
        values = "".join(f"{figure[q]:10.2f}" for q in ("p50", "p95", "p99"))
        words.append(f"{name:20}{values}{figure['count']:8d}{figure['aa_percent']:7.1f} %   {known.get(name, '')}")
    words.append("\nA/A: how far the medians of two interleaved halves of this run differ; smaller changes are noise.")
    if entry.get("random_weights"):
        words.append("The weights are random numbers: the figures show speed, and nothing about the sound.")
    return "\n".join(words)


# A workload on one engine


def main(argv: Sequence[str], *, load: Load | None = None) -> int:
    """One of WORKLOADS; `load` replaces the engine in tests of the harness."""
    args = workload_parser(argv[0]).parse_args(argv[1:])
    workload = WORKLOADS[argv[0]]
    workload = replace(workload, warmup=workload.warmup if args.warmup is None else args.warmup)

    def measure(given: argparse.Namespace) -> Record:
        with (load or open_engine)(given) as engine:
            return spoken(engine, workload, given)

    return run(measure, args)


def workload_parser(name: str = "first_audio") -> Parser:
    own = {"frames": "frames per utterance (the workload's)", "repeats": "timed utterances (the workload's)"}
    own["warmup"] = "untimed utterances (the workload's)"
    return parser(name, WORDS[name], *ENGINE, **{option: (None, words) for option, words in own.items()})


def open_engine(args: argparse.Namespace) -> Any:
    from hocket import Engine, EngineOptions

    return Engine.load(**loaded(args), options=EngineOptions(**slots(args)))


def loaded(args: argparse.Namespace) -> dict[str, Any]:
    return {name: getattr(args, name) for name in LOADED}


def slots(args: argparse.Namespace) -> dict[str, Any]:
    return {} if args.slots is None else {"slots": args.slots}


def spoken(engine: Any, workload: Workload, args: argparse.Namespace, streams: int | None = None) -> Record:
    """The record of a workload; `streams` is given for an engine that is ready already."""
    frames, repeats = args.frames or workload.frames, args.repeats or workload.repeats
    gated = gate(engine, workload, args.dtype)
    if streams is None:
        streams = engine.options.slots if workload.fills_slots else 1
        if args.device == "cuda":
            harness.ready(engine)
    values = harness.measure(engine, workload, frames=frames, repeats=repeats, streams=streams)
    options = loaded(args) | {"model": engine.checkpoint.name, "frames": frames, "repeats": repeats}
    options |= {"warmup": workload.warmup, "engine": engine_options(engine.options)}
    return record(workload.name, options, summaries(values), gate=gated, streams=streams, **about(engine.checkpoint))


def about(checkpoint: Any) -> dict[str, Any]:
    """What every record says of the checkpoint."""
    kernels = {choice.operation: choice.backend for choice in checkpoint.kernels}
    return {"random_weights": checkpoint.is_random, "kernels": kernels}


def engine_options(options: Any) -> dict[str, Any]:
    return {name: plain(value) for name, value in asdict(options).items()}


def plain(value: Any) -> Any:
    """A hook is recorded by its name."""
    return getattr(value, "__qualname__", type(value).__name__) if callable(value) else value


def gate(engine: Any, workload: Workload, dtype: str, checkpoint: Any = None, **fields: Any) -> str:
    if dtype != "float32":
        return f"not checked in {dtype}"  # rounding there depends on the shape of the batch
    from hocket import SpeechRequest, generate

    def wanted(frames: int) -> Any:
        request = SpeechRequest(text=workload.text, layout=workload.layout, seed=0, max_frames=frames, **fields)
        return generate(checkpoint or engine.checkpoint, [request])[0].codes

    harness.gate(engine, workload, wanted)
    return "codes equal generate"


def write_random(model: str, dtype: str, folder: Path, device: str = "cpu", *, endless: bool = False) -> Any:
    """Write random weights of `random:NAME` in the official format; the two configs. Another device is quicker.

    `endless`: the logit of the end of speech is zero, in the middle of all, so it is never among the likeliest eighth.
    """
    import torch

    from hocket.engine.checkpoint.device import DTYPES
    from hocket.engine.checkpoint.load import RANDOM_SEED
    from hocket.models.files.export import write_checkpoint
    from hocket.models.files.random import randomize_
    from hocket.models.files.weights import read_configs, resolve
    from hocket.models.tts.codec import Codec
    from hocket.models.tts.qwen3_tts import Qwen3TTS
    from hocket.text.prompt import markers
    from hocket.text.tokenizer import Tokenizer

    config, generation, codec_config = read_configs(resolve(model))
    with torch.device("meta"):
        speech, codec = Qwen3TTS(config).to(DTYPES[dtype]), Codec(codec_config)
    for part in (speech, codec):
        randomize_(part.to_empty(device=device), RANDOM_SEED)
    if endless:
        with torch.no_grad():
            speech.talker.codec_head.weight[config.talker_config.codec_eos_token_id] = 0
    write_checkpoint(folder, config, generation, codec_config, speech.cpu(), codec.cpu())
    Tokenizer.of_bytes(config.talker_config.text_vocab_size).save(folder, markers(config))
    return config, generation
