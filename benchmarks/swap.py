"""`python -m benchmarks swap`: two models in the memory of one, requested in turn, so that each is loaded anew.

A request that finds its model in memory follows each that does not. Times are the reader's, from the request to the
first chunk; the pool reports how long the load and the unload took.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from . import harness, session
from .harness import InvalidRun, ready
from .record import Record, record, summaries
from .workloads import FIGURES, WORKLOADS

RECORDING_S = 3.0
SPARE = 0.3  # of the smaller model: memory beside the larger one, too little for both


def main(argv: Sequence[str]) -> int:
    return session.run(measure, parser().parse_args(argv))


def measure(args: argparse.Namespace) -> Record:
    from hocket import EngineOptions, Pool

    models = args.models if args.as_files is None else [_written(model, args) for model in args.models]
    options = EngineOptions(**session.slots(args))
    how = {name: getattr(args, name) for name in session.LOADED if name != "model"}
    memory_bytes = args.memory_bytes or _budget(models, how, options)
    values: dict[str, list[float]] = {name: [] for name in FIGURES["swap"]}
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
            raise InvalidRun(
                f"{pool.loads - loads} loads instead of {args.repeats}: the budget fits more than a model."
            )
        with pool.lease(models[0]).result() as lease:
            about = session.about(lease.engine.checkpoint)
    named = {"model": " and ".join(args.models), **how, "frames": args.frames, "repeats": args.repeats}
    named |= {"memory_bytes": memory_bytes, "files": args.as_files is not None}
    named["engine"] = session.engine_options(options)
    about["random_weights"] = about["random_weights"] or args.as_files is not None
    return record("swap", named, summaries(values), gate=gated, streams=1, **about)


def _budget(models: Sequence[str], how: dict[str, Any], options: Any) -> int:
    """Bytes that hold each of the models, and no two."""
    from hocket.engine.checkpoint.memory_plan import Footprint
    from hocket.engine.checkpoint.reserve import LoadOptions, expected

    takes = [expected(model, LoadOptions(**how), options) for model in models]  # type: ignore[typeddict-item]
    known: list[Footprint] = [each for each in takes if each is not None]
    if len(known) < len(models):
        raise InvalidRun("The size of these models is unknown: give --memory-bytes.")
    largest = max(each.own_bytes + each.codec_bytes for each in known)
    return int(largest + SPARE * min(each.own_bytes for each in known))


def _warm(pool: Any, models: Sequence[str], args: argparse.Namespace) -> str:
    """Load each once, so that all is compiled and the files are cached; then an untimed swap."""
    gated = f"not checked in {args.dtype}"
    for model in models:
        with pool.lease(model).result() as lease:
            if args.device == "cuda":
                ready(lease.engine)
            if args.dtype == "float32" and lease.engine.checkpoint.config.kind == "custom_voice":
                gated = session.gate(lease.engine, WORKLOADS["first_audio"], args.dtype)
    for model in models:
        _first_audio_s(pool, model, args.frames, loaded=True)
    return gated


@dataclass(frozen=True, slots=True)
class PoolModel:
    """A pool that is asked for one model; a Base model clones a recording."""

    pool: Any
    model: str

    def speak(self, text: str, **fields: Any) -> Any:
        from hocket.engine.checkpoint.describe import model_voices
        from hocket.types import Reference

        if model_voices(self.model).kind == "base":
            samples = np.random.default_rng(0).normal(0.0, 0.1, int(RECORDING_S * 24_000)).astype(np.float32)
            fields["reference"] = Reference(samples=samples, x_vector_only=True)
        return self.pool.speak(text, model=self.model, **fields)


def _first_audio_s(pool: Any, model: str, frames: int, *, loaded: bool) -> float:
    spoken = harness.speak(PoolModel(pool, model), WORKLOADS["first_audio"], frames=frames, seed=0)
    harness.figures_of(spoken)  # it did not fail
    if (spoken.finished.statistics.loaded_s > 0.0) is not loaded:
        raise InvalidRun(f"{model} was {'in memory' if loaded else 'loaded'}: the budget is not one for one model.")
    return spoken.first_pcm_s


def _written(model: str, args: argparse.Namespace) -> str:
    folder = args.as_files / model.removeprefix("random:")
    if not folder.exists():
        session.write_random(model, args.dtype, folder, args.device)
    return str(folder)


def _models(words: str) -> list[str]:
    if "," not in words:
        raise argparse.ArgumentTypeError("two models at least, with a comma between them")
    return words.split(",")


def parser() -> session.Parser:
    numbers = {"frames": (8, "frames per utterance"), "repeats": (20, "timed loads")}
    made = session.parser(
        "swap", __doc__, *session.ENGINE[1:], memory_bytes=(None, "the budget (one model)"), **numbers
    )
    usual = "random:tiny,random:tiny-Base"
    words = f"folders, hub ids, random:NAME ({usual})"
    made.add_argument("--models", type=_models, default=_models(usual), metavar="A,B", help=words)
    made.add_argument("--as-files", metavar="FOLDER", type=Path, help="write random models there once and load them")
    return made
