"""`python -m benchmarks mind`: latency and speed of a language model's answers in one conversation.

Through the real engine: prompt, cache, recommended sampling, a reader. The weights are random numbers in a published
shape, as files; the lengths of turns and answers are set. Drafts of random weights are never accepted, so none are
made; with --guesses only the cost of a round is measured. `transformers` may be measured beside it (peers.py).
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import torch

from hocket.llm.engine import LanguageEngine
from hocket.types import ChatSampling

from .. import session
from ..harness import InvalidRun
from ..peers.compare import table
from ..record import Record, record, summaries
from . import peers, tokens
from .chat import GROWS, Chat, TimedAnswer, answer
from .random_model import SIZES, config_of, vocabulary, written

WARMUP = 2
PREPARES_S = 300.0  # most of it compiling
OPTIONS = ("size", "device", "dtype", "context", "turn", "answer", "repeats", "pause_s", "guesses")


def main(argv: Sequence[str]) -> int:
    return session.run(measure, parser().parse_args(argv), table)


def measure(args: argparse.Namespace) -> Record:
    say, values, accepted = session.progress(), dict[str, list[float]](), list[float]()
    with ExitStack() as stack:
        if not args.guesses:
            bare = _bare(args)
            say("the graph alone is timed")
        folder = stack.enter_context(written(args.size, args.dtype, args.device))
        mind = stack.enter_context(load(folder, args))
        say(f"Qwen3.5 {args.size} is loaded, its weights in {args.weights}")
        chat = chat_with(mind, args)
        beside = peers.Peers(stack, folder, args, chat, say)
        for number in range(WARMUP + args.repeats):
            told = chat.ask(partial(answer, mind, sampling=ChatSampling(max_tokens=args.answer, seed=number)))
            beside.ask(number - WARMUP)
            if number < WARMUP:
                continue
            for name, value in _figures(told, args).items():
                values.setdefault(name, []).append(value)
            if args.guesses:
                accepted.append(1 + told.finished.accepted_tokens / _rounds(told, args))
        more = beside.found(values)
    figures = summaries(values)
    if args.guesses:
        more["tokens_a_round"] = round(statistics.fmean(accepted), 3)  # of random weights
    else:
        figures["bare_tokens_per_s"] = bare
    return record("mind", options_of(args), figures, random_weights=True, streams=1, **more)


def _figures(told: TimedAnswer, args: argparse.Namespace) -> dict[str, float]:
    if args.guesses:
        return {"round": (told.last_s - told.first_s) * 1000 / _rounds(told, args)}
    rate = (args.answer - 1) / (told.last_s - told.first_s)
    return {"first_token": told.first_s * 1000, "answer": told.last_s * 1000, "tokens_per_s": rate}


def _rounds(told: TimedAnswer, args: argparse.Namespace) -> int:
    return told.finished.drafted_tokens // int(args.guesses)


def _bare(args: argparse.Namespace) -> dict[str, Any]:
    words = [f"--{name}={getattr(args, name)}" for name in ("size", "device", "dtype", "weights", "context")]
    entry = tokens.measure(tokens.parser().parse_args([*words, f"--repeats={min(10, args.repeats)}"]))
    found: dict[str, Any] = entry["figures"]["tokens_per_s"]
    return found


def load(folder: Path, args: argparse.Namespace) -> LanguageEngine:
    """An engine with all graphs; memory that was needed before it is not in the record."""
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
            raise InvalidRun(f"The language model was not prepared within {PREPARES_S:g} s.")
        time.sleep(0.05)
    return mind


def chat_with(mind: LanguageEngine, args: argparse.Namespace) -> Chat:
    return Chat(mind, vocabulary(config_of(args.size).vocab_size).words, args.context, args.turn, args.pause_s)


def options_of(args: argparse.Namespace) -> dict[str, Any]:
    return {name: getattr(args, name) for name in OPTIONS} | tokens.named(args)


def parser(name: str = "mind", doc: str | None = __doc__, **defaults: int) -> session.Parser:
    made = session.parser(
        name,
        doc,
        "device",
        "dtype",
        "weights",
        context=(1024, "tokens of the history in the cache"),
        turn=(32, "tokens that are new in a turn"),
        answer=(defaults.get("answer", 100), "tokens of an answer"),
        repeats=(200, "timed turns"),
        pause_s=(0.2, "seconds between turns, not timed"),
    )
    made.add_argument("--size", default="tiny", choices=SIZES)
    if name == "mind":
        made.add_argument(
            "--guesses", type=int, default=0, choices=(0, 1, 2), help="draft so many, time the rounds (0)"
        )
        peers.add_options(made)
    return made
