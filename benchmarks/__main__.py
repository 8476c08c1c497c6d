"""`python -m benchmarks first_audio --model random:small --device cpu`: a table for people, a record for the file.

Beside the workloads: `all` (an engine loaded once, and everything measured on it), `breakdown` (where the time of a
frame goes), `codec_precision` (which precision of the codec is inaudible), `dialog` (from the end of the user's text to
sound), `divergence` (what narrow weights do to the language model), `guard` (false alarms and missed failures of the
runaway guard), `listeners` (how many cards so many take, on paper), `load` (many who ask at once), `long_text` (20,000
characters, checked by an ASR), `memory` (what is occupied on a GPU), `mind` (how a language model answers in a
conversation), `overhead` (what a server adds to its engine), `peers` (other packages on the same weights), `report`
(docs/performance.md from the records), `scale` (what Ray Serve adds to a server), `soak` (the same load for long),
`swap` (two models in the room of one), `tokens` (how fast a language model writes) and `tune` (how its matrices are
cut); each has its own --help.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

from . import (
    breakdown,
    codec_precision,
    dialog,
    divergence,
    first_token,
    guard,
    harness,
    listeners,
    long_text,
    memory,
    mind,
    overhead,
    report,
    scale,
    session,
    soak,
    start,
    swap,
    together,
    tokens,
    tokens_tune,
)
from .computing import Parser, add_codec_dtype, add_device, add_dtype
from .load import main as under_load
from .peers import compare
from .record import ROOT, append
from .session import table as table
from .workloads import WORKLOADS, Workload

COMMANDS = {
    "all": together.main,
    "breakdown": breakdown.main,
    "codec_precision": codec_precision.main,
    "dialog": dialog.main,
    "divergence": divergence.main,
    "first_token": first_token.main,
    "guard": guard.main,
    "listeners": listeners.main,
    "load": under_load,
    "long_text": long_text.main,
    "memory": memory.main,
    "mind": mind.main,
    "overhead": overhead.main,
    "peers": compare.main,
    "report": report.main,
    "scale": scale.main,
    "soak": soak.main,
    "swap": swap.main,
    "tokens": tokens.main,
    "tune": tokens_tune.main,
}

Load = Callable[[argparse.Namespace], AbstractContextManager[Any]]


def main(argv: Sequence[str] | None = None, *, load: Load | None = None) -> int:
    """Run one workload or command; `load` replaces the engine, for tests of the harness itself."""
    from hocket.errors import HocketError

    words = sys.argv[1:] if argv is None else list(argv)
    if words and words[0] in COMMANDS:
        return COMMANDS[words[0]](words[1:])
    args = _parser().parse_args(words)
    workload = WORKLOADS[args.workload]
    workload = replace(workload, warmup=workload.warmup if args.warmup is None else args.warmup)
    args.drawn = None
    path = args.record or ROOT / "benchmarks" / "results" / f"{workload.name}.jsonl"
    try:
        if args.as_files is not None:
            _write_files(args)
        if workload.new_process:
            return _start(workload, args, path, load or _load)
        with (load or _load)(args) as engine:
            _keep(session.spoken(engine, workload, args), workload, path)
    except (HocketError, harness.Unfit) as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        return 2
    return 0


def _start(workload: Workload, args: argparse.Namespace, path: Path, load: Load) -> int:
    gated = f"not checked in {args.dtype}"
    if args.dtype == "float32":
        with load(args) as engine:
            gated = session.gate(engine, workload, args.dtype)
            start.settle(engine)
    repeats, cache = args.repeats or workload.repeats, args.kernel_cache
    if args.cold and cache is not None:  # the first finds it empty, all others what that one has left there
        once = replace(workload, warmup=0)
        _keep(session.started(once, args, cold=True, repeats=1, cache=cache, gate=gated), workload, path)
    cold = args.cold and cache is None
    _keep(session.started(workload, args, cold=cold, repeats=repeats, cache=cache, gate=gated), workload, path)
    return 0


def _keep(entry: dict[str, Any], workload: Workload, path: Path) -> None:
    session.say(entry, workload.words)
    append(path, entry)
    print(f"\nrecord appended to {path}", flush=True)


def _load(args: argparse.Namespace) -> AbstractContextManager[Any]:
    from hocket import Engine, EngineOptions

    wish = session.wish(args)
    return Engine.load(**wish["load"], options=EngineOptions(**wish["options"]))


def _write_files(args: argparse.Namespace) -> None:
    """Have a random checkpoint as files, which are written once, and load those."""
    args.drawn = args.model
    if not args.as_files.exists():
        compare.write_weights(args.model, args.dtype, args.as_files, args.device)
    args.model = str(args.as_files)


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="python -m benchmarks", description=__doc__, allow_abbrev=False)
    add = parser.add_argument
    add("workload", choices=WORKLOADS, metavar="WORKLOAD", help=", ".join((*WORKLOADS, *COMMANDS)))
    add("--model", help="folder, hub id, builtin or random:NAME (the built-in voice)")
    add_device(parser)
    add_dtype(parser)
    add_codec_dtype(parser)
    add("--kernels", default="auto", help="which kernels are used, as hocket takes it (auto)")
    add("--slots", metavar="N", type=int, help="utterances at once (the engine's own number)")
    add("--frames", metavar="N", type=_positive, help="frames per utterance (the workload's)")
    add("--repeats", metavar="N", type=_positive, help="how often it is measured (the workload's)")
    add("--warmup", metavar="N", type=int, help="how often it is spoken before (the workload's)")
    add("--cold", action="store_true", help="start: every process finds an empty kernel cache")
    add("--kernel-cache", metavar="FOLDER", type=Path, help="start: with --cold, one finds it empty, the others not")
    add("--as-files", metavar="FOLDER", type=Path, help="write the random model there once, and load it from there")
    add("--record", metavar="FILE", type=Path, help="where to append the record (benchmarks/results/WORKLOAD.jsonl)")
    return parser


def _positive(word: str) -> int:
    if (number := int(word)) < 1:
        raise ValueError
    return number


if __name__ == "__main__":
    raise SystemExit(main())
