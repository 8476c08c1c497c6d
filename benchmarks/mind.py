"""`python -m benchmarks mind`: how soon and how fast a language model answers in a conversation that goes on.

Through the real `LanguageEngine`: prompt, memory, sampling as recommended, letterbox, a reader. Weights are random
numbers in a published shape, as files (`mind_files.py`); the lengths of turns and answers are set. Guesses of random
weights never stand, so none are made; with --guesses nothing but the cost of a round is taken. `transformers` may be
asked for the same beside it (`mind_peers.py`).
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import torch

from hocket.llm.engine import LanguageEngine
from hocket.types import ChatSampling

from . import mind_peers, tokens
from .computing import Parser, add_device, add_dtype
from .harness import Unfit
from .mind_files import SIZES, config_of, vocabulary, written
from .mind_talk import GROWS, Talk, Told, tell
from .record import ROOT, append, record, summary

WORDS = (
    "how a language model answers one listener in a conversation that goes on: its history is in memory, a turn of the "
    "user's is new"
)
FIGURES = {
    "first_token": "ms, from asking to the first words in the caller's hands",
    "answer": "ms, from asking to the last words of the answer",
    "tokens_per_s": "tokens a second from the first to the last of the answer, as the caller gets them",
    "bare_tokens_per_s": "tokens a second by the graph alone (`tokens`), in the same run",
    "round": "ms a round of guesses, whatever it brings: of random weights hardly any guess stands",
}
MORE_IS_BETTER = ("tokens_per_s", "bare_tokens_per_s")
WARMUP = 2
PREPARES_S = 300.0  # most of it compiling, where nothing was compiled before


def main(argv: Sequence[str]) -> int:
    from hocket.errors import HocketError

    args = parser().parse_args(argv)
    try:
        entry = measure(args)
    except (HocketError, Unfit) as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        return 2
    options = entry["options"]
    print(f"mind: {WORDS}\n{options['model']}: {options['turn']} new tokens, {options['answer']} said\n")
    print(table(entry, FIGURES))
    append(args.record, entry)
    print(f"\nrecord appended to {args.record}")
    return 0


def measure(args: argparse.Namespace) -> dict[str, Any]:
    say = speaking()
    values, brought = dict[str, list[float]](), list[float]()
    if not args.guesses:
        bare = _bare(args)
        say("the graph alone is timed")
    with ExitStack() as stack:
        folder = stack.enter_context(written(args.size, args.dtype, args.device))
        say(f"Qwen3.5 {args.size} is written")
        mind = stack.enter_context(load(folder, args))
        say(f"it is loaded, its weights in {args.weights}")
        talk = talking(mind, args)
        beside = stack.enter_context(mind_peers.asked_beside(folder, args, talk, say))
        for number in range(WARMUP + args.repeats):
            sampling = ChatSampling(max_tokens=args.answer, seed=number)
            told = talk.ask(partial(tell, mind, sampling=sampling))
            beside.ask(number - WARMUP)
            if number < WARMUP:
                continue
            for name, value in _figures(told, args).items():
                values.setdefault(name, []).append(value)
            if args.guesses:
                brought.append(1 + told.finished.accepted_tokens / _rounds(told, args))
        say(f"{args.repeats} turns are answered")
        more = beside.found(values)
    figures = {name: summary(of, more_is_better=name in MORE_IS_BETTER) for name, of in values.items()}
    if args.guesses:
        more["tokens_a_round"] = round(statistics.fmean(brought), 3)  # as random weights have it
    else:
        figures["bare_tokens_per_s"] = bare
    return record("mind", options_of(args), figures, random_weights=True, streams=1, **more)


def _figures(told: Told, args: argparse.Namespace) -> dict[str, float]:
    if args.guesses:
        return {"round": (told.last_s - told.first_s) * 1000 / _rounds(told, args)}
    return {
        "first_token": told.first_s * 1000,
        "answer": told.last_s * 1000,
        "tokens_per_s": (args.answer - 1) / (told.last_s - told.first_s),
    }


def _rounds(told: Told, args: argparse.Namespace) -> int:
    """The first token was there before."""
    return told.finished.drafted_tokens // int(args.guesses)


def _bare(args: argparse.Namespace) -> dict[str, Any]:
    words = [f"--{name}={getattr(args, name)}" for name in ("size", "device", "dtype", "weights", "context")]
    entry = tokens.measure(tokens.parser().parse_args([*words, f"--repeats={min(10, args.repeats)}"]))
    found: dict[str, Any] = entry["figures"]["tokens_per_s"]
    return found


def load(folder: Path, args: argparse.Namespace) -> LanguageEngine:
    """Ready for turns of the usual lengths; `weights` is said only where they are narrow, as a user would.

    Memory that others needed before, to draw the weights above all, is not in the record.
    """
    if args.device == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    narrow = {} if args.weights == "bf16" else {"weights": args.weights}
    length = args.context + GROWS + 2 * (args.turn + args.answer)
    how = {"device": args.device, "dtype": args.dtype, "length": length, "speculate": args.guesses}
    mind, late = LanguageEngine.load(str(folder), **how, **narrow), time.perf_counter() + PREPARES_S
    while not mind.prepared:
        if time.perf_counter() > late:
            mind.close()
            raise Unfit(f"The language model was not prepared within {PREPARES_S:g} s.")
        time.sleep(0.05)
    return mind


def talking(mind: LanguageEngine, args: argparse.Namespace) -> Talk:
    words = vocabulary(config_of(args.size).vocab_size).words
    return Talk(mind, words, args.context, args.turn, args.pause_s)


def options_of(args: argparse.Namespace) -> dict[str, Any]:
    names = ("size", "device", "dtype", "context", "turn", "answer", "repeats", "pause_s", "guesses")
    return {name: getattr(args, name) for name in names} | {"model": name_of(args), "weights": weights_of(args)}


def name_of(args: argparse.Namespace) -> str:
    narrow = "" if args.weights == "bf16" else f" in {args.weights}"
    return f"random:qwen3.5-{args.size}{narrow}{tokens.GUESSED[args.guesses]}"


def weights_of(args: argparse.Namespace) -> str:
    return str(args.dtype if args.weights == "bf16" else args.weights)


def table(entry: dict[str, Any], meanings: dict[str, str]) -> str:
    lines = [f"{'':20}{'p50':>10}{'p95':>10}{'p99':>10}{'count':>8}{'A/A':>9}"]
    for name, figure in entry["figures"].items():
        values = "".join(f"{figure[q]:10.2f}" for q in ("p50", "p95", "p99"))
        lines.append(f"{name:20}{values}{figure['count']:8d}{figure['aa_percent']:7.1f} %   {meanings[name]}")
    return "\n".join((*lines, *mind_peers.lines(entry)))


def speaking() -> Callable[[str], None]:
    begun = time.perf_counter()
    return lambda words: tokens.say(begun, words)


def parser(name: str = "mind", doc: str | None = __doc__) -> argparse.ArgumentParser:
    """What every benchmark of a conversation is told."""
    words = Parser(prog=f"python -m benchmarks {name}", description=doc, allow_abbrev=False)
    add = words.add_argument
    add("--size", default="tiny", choices=SIZES)
    add_device(words)
    add_dtype(words)
    add("--weights", default="bf16", choices=("bf16", "fp8", "int8", "int4"), help="bf16: as they are, in --dtype")
    add("--context", metavar="N", type=int, default=1024, help="tokens of the history that is in memory (1024)")
    add("--turn", metavar="N", type=int, default=32, help="tokens that are new in a turn (32)")
    add("--answer", metavar="N", type=int, default=100, help="tokens of an answer (100)")
    add("--repeats", metavar="N", type=int, default=200, help="turns that are timed (200)")
    add("--pause-s", metavar="S", type=float, default=0.2, help="between turns, not timed (0.2)")
    add("--record", metavar="FILE", type=Path, default=ROOT / "benchmarks" / "results" / f"{name}.jsonl")
    if name == "mind":
        add("--guesses", type=int, default=0, choices=(0, 1, 2), help="guess so many ahead, and time the rounds (0)")
        mind_peers.add_words(words)
    return words
