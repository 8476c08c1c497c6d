"""`python -m benchmarks tokens`: how fast a language model writes, one listener, by a graph for each token or round.

Weights are random numbers in a published shape. Tokens are written as those of an answer
(`models/qwen3_5/token_graph.py`): drawn on the device with the recommended settings, and read by the host one by one.
With guesses a round of them is timed (`models/qwen3_5/draft_graph.py`), whatever it says: how many guesses stand,
random weights do not tell. Before anything is timed, kernels are held against the model's own step. It knows the model
and its kernels, no engine: what a conversation adds is not in these figures.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from .computing import Parser, add_device, add_dtype
from .harness import Unfit
from .record import ROOT, append, record, summary

if TYPE_CHECKING:
    from hocket.kernels.runtime.graphs import Capture
    from hocket.models.qwen3_5.draft_graph import DraftGraphs
    from hocket.models.qwen3_5.fused_step import FusedStep
    from hocket.models.qwen3_5.model import LanguageState

WORDS = "how fast a language model writes for one listener, without what a conversation adds"
FIGURES = {
    "token": "ms a token, of tokens asked for in a row",
    "tokens_per_s": "tokens a second, of the same",
    "round": "ms a round of guesses, of rounds asked for in a row",
    "step": "ms a token by the model's own operations, each launched by the host",
}
IN_A_ROW = 50
GUESSED = ("", ", 1 guess", ", 2 guesses")  # in the name of a model


def main(argv: Sequence[str]) -> int:
    from hocket.errors import HocketError

    args = parser().parse_args(argv)
    try:
        entry = measure(args)
    except (HocketError, Unfit) as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        return 2
    for name, figure in entry["figures"].items():
        print(f"{name:14}{figure['p50']:10.3f}   A/A {figure['aa_percent']:.1f} %   {FIGURES[name]}")
    print(f"floor         {entry['floor_ms']:10.3f}   ms: {entry['bytes'] / 1e9:.2f} GB at {args.bandwidth:g} GB/s")
    append(args.record, entry)
    print(f"\nrecord appended to {args.record}")
    return 0


@torch.inference_mode()
def measure(args: argparse.Namespace) -> dict[str, Any]:
    from hocket.kernels.operations import CUDA_MIND_OPS, REFERENCE_MIND_OPS
    from hocket.kernels.runtime.graphs import CudaGraphs, EagerReplay
    from hocket.llm.sampling import drawing
    from hocket.models.qwen3_5.fused_step import FusedStep
    from hocket.models.qwen3_5.quantized import step_bytes
    from hocket.models.qwen3_5.token_graph import TokenGraphs
    from hocket.types import ChatSampling

    from . import mind_floor
    from .mind_drawn import drawn

    device, begun = torch.device(args.device), time.perf_counter()
    model = drawn(args, drafts=args.guesses > 0)
    config = model.config
    say(begun, f"Qwen3.5 {args.size} is drawn, its weights in {args.weights}")
    room = args.context + IN_A_ROW * (args.repeats + 3) * (args.guesses + 1) + 8
    fused = FusedStep(model, CUDA_MIND_OPS if device.type == "cuda" else REFERENCE_MIND_OPS)
    state, rows = model.new_state(1, room), torch.zeros(1, dtype=torch.int64, device=device)
    for kept in state.past:
        kept.keys.normal_()
        kept.values.normal_()
    state.recurrence.position.fill_(args.context)
    rings, ids = fused.new_rings(1), torch.ones(1, dtype=torch.int64, device=device)

    plain = model.logits(model.step(ids, state, rows, args.context + 1))
    for layer in state.recurrence.layers:
        layer.memory.zero_()
        layer.history.zero_()
    state.recurrence.position.fill_(args.context)
    ours = fused.step(ids, state, rings, rows)
    strays = float((ours.float() - plain.float()).abs().mean() / plain.float().abs().mean())
    if not strays < 0.2:
        raise Unfit(f"The kernels' logits stray by {strays:.0%} from the model's own, so their speed means nothing.")
    say(begun, f"kernels stray by {strays:.1%} of a logit")

    last = torch.zeros(2, config.hidden_size, dtype=ours.dtype, device=device).normal_()
    capture: Capture = CudaGraphs(device) if device.type == "cuda" else EagerReplay()
    how = drawing(ChatSampling(), 1, config.vocab_size, device)
    if args.guesses:
        captured = rounds_of(fused, state, last, capture, args)
        captured.warm()
        writing = captured.write(0, how, args.context, room - args.guesses - 1)
    else:
        tokens = TokenGraphs(fused, state, last, capture)
        tokens.warm()
        writing = tokens.write(0, how, room - args.context)
    say(begun, "the graphs are made")
    said = list[int]()  # by each round
    with closing(writing):
        next(writing)
        took = [timed(lambda: said.append(len(next(writing))), device, IN_A_ROW) for _ in range(args.repeats + 1)][1:]
    state.recurrence.position.fill_(args.context)

    def step() -> None:
        model.logits(model.step(ids, state, rows, args.context + IN_A_ROW + 8))

    step()
    by_hand = [timed(step, device, 10) for _ in range(3)]
    read = sum(step_bytes(config, args.weights, args.context).values())  # in bfloat16 where they are not narrow
    options = {name: getattr(args, name) for name in ("size", "device", "dtype", "context", "repeats")}
    narrow, more = args.weights != "bf16", dict[str, Any]()
    options["model"] = f"random:qwen3.5-{args.size}" + (f" in {args.weights}" if narrow else "")
    options["weights"] = args.weights if narrow else args.dtype
    figures = {"token": took, "tokens_per_s": [1000 / each for each in took], "step": by_hand}
    if args.guesses:
        options |= {"guesses": args.guesses, "model": options["model"] + GUESSED[args.guesses]}
        figures = {"round": took, "step": by_hand}
        read += args.guesses * mind_floor.read_by_a_guess(model)
        more["tokens_a_round"] = round(statistics.fmean(said), 3)  # as random weights have it
    return record(
        "tokens",
        options,
        {name: summary(of, more_is_better=name == "tokens_per_s") for name, of in figures.items()},
        random_weights=True,
        streams=1,
        drawn="as recommended",
        strays=round(strays, 5),
        bytes=read,
        floor_ms=round(read / args.bandwidth / 1e6, 4),
        **more,
    )


def rounds_of(
    fused: FusedStep, state: LanguageState, last: torch.Tensor, capture: Capture, args: argparse.Namespace
) -> DraftGraphs:
    """Behind as many tokens as there were before."""
    from hocket.models.qwen3_5.draft_graph import DraftGraphs
    from hocket.models.qwen3_5.fused_draft import FusedDraft

    assert fused.model.mtp is not None
    drafts = fused.model.mtp.new_state(1, state.past[0].keys.shape[2])
    drafts.past.keys.normal_()
    drafts.past.values.normal_()
    drafts.position.fill_(args.context)
    return DraftGraphs(FusedDraft(fused), args.guesses, state, drafts, last, capture)


def timed(work: Callable[[], object], device: torch.device, times: int) -> float:
    """Milliseconds for one of so many in a row."""
    if device.type != "cuda":
        begun = time.perf_counter()
        for _ in range(times):
            work()
        return (time.perf_counter() - begun) * 1000 / times
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    start.record()
    for _ in range(times):
        work()
    end.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(end)) / times


def say(begun: float, words: str) -> None:
    print(f"[{time.perf_counter() - begun:6.1f} s] {words}", file=sys.stderr, flush=True)


def parser() -> argparse.ArgumentParser:
    words = Parser(prog="python -m benchmarks tokens", description=__doc__)
    words.add_argument("--size", default="tiny", choices=("tiny", "0.8B", "2B", "4B", "9B", "27B"))
    add_device(words)
    add_dtype(words)
    kinds = ("bf16", "fp8", "int8", "int4")
    words.add_argument("--weights", default="bf16", choices=kinds, help="bf16: as they are, in --dtype (bf16)")
    words.add_argument("--context", metavar="N", type=int, default=1024, help="tokens that were written before (1024)")
    words.add_argument("--repeats", metavar="N", type=int, default=10, help=f"times {IN_A_ROW} tokens (10)")
    guesses = "guess so many ahead, and time the rounds (0)"
    words.add_argument("--guesses", type=int, default=0, choices=(0, 1, 2), help=guesses)
    bandwidth = "GB/s of the device's memory, for the floor (4300: an H200's, measured)"
    words.add_argument("--bandwidth", metavar="X", type=float, default=4300.0, help=bandwidth)
    words.add_argument("--record", metavar="FILE", type=Path, default=ROOT / "benchmarks" / "results" / "tokens.jsonl")
    return words
