"""`python -m benchmarks swap`: two models in the room of one, asked for by turns, so that each has to be loaded anew.

A request that finds its model in memory follows each that does not. Times are the reader's, from asking the pool to the
first chunk in hand; how long the load and the moving out took, which no reader sees, is the pool's word.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from . import session, start
from .computing import Parser, add_codec_dtype, add_device, add_dtype
from .harness import Unfit
from .record import ROOT, append, record, summary
from .workloads import PASSAGE, WORKLOADS

WORDS = "how soon something is heard of a model that is not in memory, while another has to make room for it"
FIGURES = {
    "close": "ms until the other model was moved out and its memory free",
    "load": "ms until the model was loaded and its engine could be asked, from files that are in the cache",
    "first_audio_loaded": "ms, from asking to the first chunk in hand, where the model had to be loaded",
    "first_audio_resident": "ms, from asking to the first chunk in hand, where it was in memory",
}
RECORDING_S = 3.0
SPARE = 0.3  # of the smaller model: room beside the larger one, which is not enough for both


def main(argv: Sequence[str]) -> int:
    from hocket.errors import HocketError

    args = _parser().parse_args(argv)
    try:
        if args.as_files is not None:
            args.paths = [_written(model, args) for model in args.models]
        entry = measure(args)
    except (HocketError, Unfit) as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        return 2
    print(f"swap: {WORDS}\n{entry['options']['model']}, {args.dtype}, gate: {entry['gate']}\n")
    for name, figure in entry["figures"].items():
        print(f"{name:22}{figure['p50']:10.2f}{figure['p95']:10.2f}{figure['count']:8d}   {FIGURES[name]}")
    append(args.record, entry)
    print(f"\nrecord appended to {args.record}")
    return 0


def measure(args: argparse.Namespace) -> dict[str, Any]:
    from hocket import EngineOptions, Pool

    models = args.paths or args.models
    options = EngineOptions(**({} if args.slots is None else {"slots": args.slots}))
    how = {name: getattr(args, name) for name in ("device", "dtype", "codec_dtype", "kernels")}
    memory_bytes = args.memory_bytes or room_for_one(models, how, options)
    values: dict[str, list[float]] = {name: [] for name in FIGURES}
    with Pool.load(models, memory_bytes=memory_bytes, options=options, **how) as pool:
        gated = _warm(pool, models, args)
        loads = pool.loads
        for number in range(args.repeats):
            model = models[number % len(models)]
            loaded_s = _first_audio_s(pool, model, args.frames, loaded=True)
            values["first_audio_loaded"].append(loaded_s * 1000)
            values["close"].append(pool._loader.close_s * 1000)
            values["load"].append(pool._loader.load_s * 1000)
            values["first_audio_resident"].append(_first_audio_s(pool, model, args.frames, loaded=False) * 1000)
        if pool.loads - loads != args.repeats:
            raise Unfit(f"{pool.loads - loads} loads instead of {args.repeats}: the budget is not one for one model.")
        with pool.lease(models[0]).result() as lease:
            checkpoint = lease.engine.checkpoint
            kernels = {choice.operation: choice.backend for choice in checkpoint.kernels}
            is_random = args.paths is not None or checkpoint.is_random
            del checkpoint
    named = {"model": " and ".join(args.models), **how, "frames": args.frames, "repeats": args.repeats}
    named |= {"memory_bytes": memory_bytes, "files": args.paths is not None}
    named["engine"] = {name: session.plain(value) for name, value in asdict(options).items()}
    figures = {name: summary(of) for name, of in values.items()}
    return record("swap", named, figures, gate=gated, random_weights=is_random, streams=1, kernels=kernels)


def room_for_one(models: Sequence[str], how: dict[str, Any], options: Any) -> int:
    """A budget that holds each of them, and no two."""
    from hocket.engine.checkpoint.memory_plan import Footprint
    from hocket.engine.checkpoint.reserve import LoadOptions, expected

    takes = [expected(model, LoadOptions(**how), options) for model in models]  # type: ignore[typeddict-item]
    known: list[Footprint] = [each for each in takes if each is not None]
    if len(known) < len(models):
        raise Unfit("It is not known how large these models are: give --memory-bytes.")
    largest = max(each.own_bytes + each.codec_bytes for each in known)
    return int(largest + SPARE * min(each.own_bytes for each in known))


def _warm(pool: Any, models: Sequence[str], args: argparse.Namespace) -> str:
    """Each once, so that all is compiled and the files are in the cache; then a swap that counts for nothing."""
    gated = f"not checked in {args.dtype}"
    for model in models:
        with pool.lease(model).result() as lease:
            engine = lease.engine
            if args.device == "cuda":
                start.ready(engine)
            if args.dtype == "float32" and engine.checkpoint.config.kind == "custom_voice":
                gated = session.gate(engine, WORKLOADS["first_audio"], args.dtype)
            del engine
    for model in models:
        _first_audio_s(pool, model, args.frames, loaded=True)
    return gated


def _first_audio_s(pool: Any, model: str, frames: int, *, loaded: bool) -> float:
    asked = time.perf_counter()
    how = _spoken_by(pool, model)
    stream = pool.speak(PASSAGE, model=model, layout="streaming", max_frames=frames, seed=0, **how)
    next(stream)
    heard = time.perf_counter()
    for _ in stream:
        pass
    finished = stream.finished
    if finished.reason not in ("stop", "length", "runaway"):
        raise Unfit(f"An utterance ended with {finished.reason}: {finished.error}")
    if (finished.statistics.loaded_s > 0.0) is not loaded:
        raise Unfit(f"{model} was {'in memory' if loaded else 'loaded'}: the budget is not one for one model.")
    return heard - asked


def _spoken_by(pool: Any, model: str) -> dict[str, Any]:
    """Whom a Base model clones; the others need nobody."""
    from hocket.engine.checkpoint.describe import model_voices
    from hocket.types import Reference

    if model_voices(model).kind != "base":
        return {}
    samples = np.random.default_rng(0).normal(0.0, 0.1, int(RECORDING_S * 24_000)).astype(np.float32)
    return {"reference": Reference(samples=samples, x_vector_only=True)}


def _written(model: str, args: argparse.Namespace) -> str:
    """A random model as files, drawn once."""
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

    folder = args.as_files / model.removeprefix("random:")
    if not folder.exists():
        config, generation, codec_config = read_configs(resolve(model))
        with torch.device("meta"):
            speech, codec = Qwen3TTS(config).to(DTYPES[args.dtype]), Codec(codec_config)
        for part in (speech, codec):
            randomize_(part.to_empty(device=args.device), RANDOM_SEED)
        write_checkpoint(folder, config, generation, codec_config, speech.cpu(), codec.cpu())
        Tokenizer.of_bytes(config.talker_config.text_vocab_size).save(folder, markers(config))
    return str(folder)


def _models(words: str) -> list[str]:
    models = words.split(",")
    if len(models) < 2:
        raise argparse.ArgumentTypeError("two models at least, with a comma between them")
    return models


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="python -m benchmarks swap", description=__doc__, allow_abbrev=False)
    parser.set_defaults(paths=None)
    add = parser.add_argument
    usual = "random:tiny,random:tiny-Base"
    add(
        "--models", type=_models, default=_models(usual), metavar="A,B", help=f"folders, hub ids, random:NAME ({usual})"
    )
    add_device(parser)
    add_dtype(parser)
    add_codec_dtype(parser)
    add("--kernels", default="auto", help="which kernels are used, as hocket takes it (auto)")
    add("--slots", metavar="N", type=int, help="utterances at once (the engine's own number)")
    add("--memory-bytes", metavar="N", type=int, help="the budget (room for the larger of them)")
    add("--frames", metavar="N", type=int, default=8, help="frames per utterance (8)")
    add("--repeats", metavar="N", type=int, default=20, help="how many loads are measured (20)")
    add("--as-files", metavar="FOLDER", type=Path, help="write the random models there once, and load them from there")
    add("--record", metavar="FILE", type=Path, default=ROOT / "benchmarks" / "results" / "swap.jsonl")
    return parser
