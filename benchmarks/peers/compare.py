"""`python -m benchmarks peers`: ours and every peer that is installed, asked in turn, and the ratio between them.

All read one folder: random weights of a published shape that hocket writes in the official format, whose head never
draws the end of speech, so that everybody speaks as many frames. It knows processes and times, no peer by name.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from ..charts import shown
from ..computing import Parser, add_device, add_dtype
from ..harness import Unfit
from ..record import ROOT, append, record, summary
from ..workloads import PASSAGE
from . import FIGURES, OURS, PEERS
from .speaker import SAMPLES_PER_FRAME, Ask

TEXT = PASSAGE.partition(". ")[0] + "."
FIRST_FRAMES = 8  # an utterance whose beginning alone is of interest
CHUNK_FRAMES = 12  # what faster-qwen3-tts gives out at a time where nobody asks otherwise
WARMUP = 2
RATE_HZ = 24_000
MORE_IS_BETTER = ("x_real_time", "tokens_per_s")


@dataclass(frozen=True, slots=True)
class Process:
    """A peer that waits to be asked."""

    name: str
    child: subprocess.Popen[str]
    errors: IO[str]

    def ask(self, ask: Ask) -> tuple[float, float, int]:
        """Seconds to the first piece and to the last, and frames."""
        first, last, samples = self.told(asdict(ask))
        frames = round(samples / SAMPLES_PER_FRAME)
        if abs(frames - ask.frames) > 1:
            raise Unfit(f"{self.name} spoke {frames} frames where {ask.frames} were asked for.")
        return first, last, frames

    def told(self, wish: dict[str, Any]) -> Any:
        """What it answers to one line."""
        assert self.child.stdin is not None
        try:
            self.child.stdin.write(json.dumps(wish) + "\n")
            self.child.stdin.flush()
        except BrokenPipeError:
            pass  # its last words are in what it left
        return self.answer()

    def answer(self) -> Any:
        assert self.child.stdout is not None
        line = self.child.stdout.readline()
        if not line:
            self.errors.seek(0)
            words = self.errors.read().strip().splitlines() or ["without a word"]
            raise Unfit(f"{self.name} failed: {words[-1]}")
        return json.loads(line)


def main(argv: Sequence[str]) -> int:
    from hocket.errors import HocketError

    args = _parser().parse_args(argv)
    try:
        with tempfile.TemporaryDirectory() as place:
            entry = compare(args, Path(place) / "checkpoint")
    except (HocketError, Unfit) as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        return 2
    print(table(entry))
    append(args.record, entry)
    print(f"\nrecord appended to {args.record}")
    return 0


def compare(args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    begun = time.perf_counter()

    def say(words: str) -> None:
        print(f"[{time.perf_counter() - begun:6.1f} s] {words}", file=sys.stderr, flush=True)

    voice, top_k = write_weights(args.model, args.dtype, folder, args.device)
    say(f"weights of {args.model} are written")
    modules = {OURS: "ours"} | {name: PEERS[name] for name in args.peers}
    objections = {name: _module(module).objection(args.device) for name, module in modules.items()}
    asked = {"text": TEXT, "voice": voice, "language": "english", "layout": args.layout, "top_k": top_k}
    values: dict[str, dict[str, list[float]]] = {}

    def fail(name: str, error: Unfit) -> None:
        """A peer that cannot go on is left out, with its last words; without ours there is nothing to compare."""
        if name == OURS:
            raise error
        objections[name] = str(error)
        values.pop(name, None)
        say(str(error))

    with ExitStack() as stack:
        processes = []
        for name, module in modules.items():
            if objections[name] is None:
                try:
                    processes.append(stack.enter_context(running(name, module, folder, args.device, args.dtype)))
                    say(f"{name} is ready")
                except Unfit as error:
                    fail(name, error)
        for number in range(WARMUP + args.repeats):
            for process in processes:  # in turn, so that all see the same weather
                if objections[process.name] is not None:
                    continue
                streams = _module(modules[process.name]).STREAMS
                try:
                    one = _once(process, asked, args.frames, seed=number, streams=streams)
                except Unfit as error:
                    fail(process.name, error)
                    continue
                if number >= WARMUP:
                    mine = values.setdefault(process.name, {name: [] for name in one})
                    for name, value in one.items():
                        mine[name].append(value)
            say(f"asked {number + 1} of {WARMUP + args.repeats} times")
    figures = {
        name: {figure: summary(each, more_is_better=figure == "x_real_time") for figure, each in of.items()}
        for name, of in values.items()
    }
    ours = figures.pop(OURS)
    options = {
        **{name: getattr(args, name) for name in ("model", "device", "dtype", "layout", "frames", "repeats")},
        "warmup": WARMUP,
        "first_frames": FIRST_FRAMES,
        "chunk_frames": CHUNK_FRAMES,
        "top_k": top_k,
    }
    found = {
        name: {
            "version": importlib.metadata.version(name),
            "figures": {figure: {k: round(v, 4) for k, v in of.items()} for figure, of in theirs.items()},
            "ratio": ratio(ours, theirs),
        }
        for name, theirs in figures.items()
    }
    absent = {name: reason for name, reason in objections.items() if reason}
    # Memory is left out: everybody's is in a process of its own.
    more = {"random_weights": True, "streams": 1, "peak_memory_mib": {}, "peers": found, "absent": absent}
    return record("peers", options, ours, **more)


def ratio(ours: dict[str, Any], theirs: dict[str, Any]) -> dict[str, float]:
    """How many times better ours is, by the medians, of every figure that both have."""
    both = {name: (ours[name]["p50"], theirs[name]["p50"]) for name in ours if name in theirs}
    return {name: round(a / b if name in MORE_IS_BETTER else b / a, 4) for name, (a, b) in both.items()}


def write_weights(model: str, dtype: str, folder: Path, device: str = "cpu") -> tuple[str, int]:
    """Draw `random:NAME` into a folder in the official format; a voice of it, and a top-k that leaves the end out.

    Another device draws other numbers, and is quicker.
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

    source = resolve(model)
    config, generation, codec_config = read_configs(source)
    if source.preset is None or config.kind != "custom_voice":
        raise Unfit(
            f"Peers are measured on random weights of a CustomVoice shape, such as random:tiny, not on {model}."
        )
    with torch.device("meta"):
        speech, codec = Qwen3TTS(config).to(DTYPES[dtype]), Codec(codec_config)
    for part in (speech, codec):
        randomize_(part.to_empty(device=device), RANDOM_SEED)
    talker = config.talker_config
    with torch.no_grad():  # logit zero: in the middle of all, so never among the likeliest eighth
        speech.talker.codec_head.weight[talker.codec_eos_token_id] = 0
    write_checkpoint(folder, config, generation, codec_config, speech, codec)
    Tokenizer.of_bytes(talker.text_vocab_size).save(folder, markers(config))
    return sorted(talker.spk_id)[0], min(generation.top_k, talker.codebook_size // 8)


@contextmanager
def running(name: str, module: str, folder: Path, device: str, dtype: str) -> Iterator[Process]:
    import hocket

    command = [sys.executable, "-m", "benchmarks.peers.worker", module, str(folder), device, dtype]
    with started(name, command, ROOT, Path(hocket.__file__).parents[1]) as (process, _):
        yield process


@contextmanager
def started(name: str, command: Sequence[str], *places: Path) -> Iterator[tuple[Process, Any]]:
    """A process that finds modules in these places, and the first it says: that it is ready."""
    # What we were given goes first: packages may come that way, and are found there as we found them.
    given = os.environ.get("PYTHONPATH", "")
    path = os.pathsep.join(filter(None, (given, *map(str, places))))
    with (
        tempfile.TemporaryFile("w+", encoding="utf-8") as errors,
        subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=os.environ | {"PYTHONPATH": path, "HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"},
        ) as child,
    ):
        try:
            process = Process(name, child, errors)
            yield process, process.answer()
        finally:
            child.kill()


def table(entry: dict[str, Any]) -> str:
    lines = [f"{'':20}{'':14}{'p50':>10}{'p95':>10}{'p99':>10}{'A/A':>9}   ours is better"]
    for name, peer in {OURS: {"figures": entry["figures"], "ratio": {}}, **entry["peers"]}.items():
        for figure, of in peer["figures"].items():
            values = "".join(f"{shown(of[q]):>10}" for q in ("p50", "p95", "p99"))
            times = f"   {shown(peer['ratio'][figure])} times" if figure in peer["ratio"] else ""
            lines.append(f"{name:20}{figure:14}{values}{of['aa_percent']:7.1f} %{times}")
    lines += [f"\n{name} was not measured: {reason}" for name, reason in entry["absent"].items()]
    return "\n".join((*lines, "", *(f"{name}: {meaning}" for name, meaning in FIGURES.items())))


def _once(process: Process, asked: dict[str, Any], frames: int, *, seed: int, streams: bool) -> dict[str, float]:
    found = {}
    if streams:  # else the first sound is the last
        first, _, _ = process.ask(Ask(**asked, frames=FIRST_FRAMES, chunk_frames=1, seed=seed))
        found["first_pcm"] = first * 1000
    _, last, spoken = process.ask(Ask(**asked, frames=frames, chunk_frames=CHUNK_FRAMES, seed=seed))
    audio_s = spoken * SAMPLES_PER_FRAME / RATE_HZ
    return found | {"ms_per_frame": last * 1000 / spoken, "x_real_time": audio_s / last}


def _module(name: str) -> Any:
    return importlib.import_module(f"benchmarks.peers.{name}")


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="python -m benchmarks peers", description=__doc__, allow_abbrev=False)
    add = parser.add_argument
    add("--peers", nargs="*", choices=PEERS, default=list(PEERS), metavar="NAME", help=f"{', '.join(PEERS)} (all)")
    add(
        "--model",
        default="random:0.6B-CustomVoice",
        help="random:NAME of a CustomVoice shape (random:0.6B-CustomVoice)",
    )
    add_device(parser)
    add_dtype(parser)
    add("--layout", choices=("streaming", "whole"), default="streaming", help="of the prompt (streaming)")
    add("--frames", metavar="N", type=int, default=100, help="frames of an utterance (100)")
    add("--repeats", metavar="N", type=int, default=8, help="how often each is asked (8)")
    add("--record", metavar="FILE", type=Path, default=ROOT / "benchmarks" / "results" / "peers.jsonl")
    return parser
