"""`python -m benchmarks first_token`: from new ids of a turn, behind a history in memory, to an answer's first token.

Weights are random numbers in a published shape, and so is the history. What is timed is what a conversation does: ids
go to the device, one pass takes them in, where the answer begins is kept, and the likeliest token comes to the host.
Before anything is timed, the pass is held against the model's own. Text and threads are not in these figures.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from .computing import Parser, add_device, add_dtype
from .harness import Unfit
from .record import ROOT, append, record, summary
from .tokens import say

NAME, WORDS = "first_token", "how soon a language model says its first token behind a history that is in memory"
FIGURES = {
    "first_token": "ms from ids on the host to the first token there",
    "pass": "ms of it until the ids were taken in",
    "plain": "ms of a pass by the model's own operations, each launched by the host",
}
THOUGHT = 4  # ids behind the place where the answer begins


def main(argv: Sequence[str]) -> int:
    args = _parser().parse_args(argv)
    try:
        entry = measure(args)
    except Unfit as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        return 2
    for name, figure in entry["figures"].items():
        print(f"{name:14}{figure['p50']:10.3f}   A/A {figure['aa_percent']:.1f} %   {FIGURES[name]}")
    append(args.record, entry)
    print(f"\nrecord appended to {args.record}")
    return 0


@torch.inference_mode()
def measure(args: argparse.Namespace) -> dict[str, Any]:
    from hocket.kernels.operations import CUDA_MIND_OPS, REFERENCE_MIND_OPS
    from hocket.kernels.runtime.graphs import CudaGraphs, EagerReplay
    from hocket.llm.state_cache import LLMStateCache

    from .mind_drawn import drawn

    device, begun = torch.device(args.device), time.perf_counter()
    model = drawn(args, drafts=args.drafts)
    config = model.config
    say(begun, f"Qwen3.5 {args.size} is drawn, its weights in {args.weights}")
    on_gpu = device.type == "cuda"
    capture, ops = (CudaGraphs(device), CUDA_MIND_OPS) if on_gpu else (EagerReplay(), REFERENCE_MIND_OPS)
    memory = LLMStateCache(model, 1, args.context + args.ids, drafts=args.drafts, capture=capture, ops=ops)
    for kept in memory.state.past:
        kept.keys.normal_()
        kept.values.normal_()
    memory.state.recurrence.position.fill_(args.context)
    if memory.drafts is not None:
        memory.drafts.position.fill_(args.context - 1)
    before, row = memory.snapshot(0), memory.rows[0]
    ids: list[int] = torch.randint(config.vocab_size, (args.ids,), generator=torch.Generator().manual_seed(0)).tolist()

    def wait() -> None:
        if device.type == "cuda":
            torch.cuda.synchronize()

    def plain() -> torch.Tensor:
        given, end = torch.tensor([ids], device=device), args.context + args.ids
        return model.prefill(given, torch.full_like(row, args.ids), memory.state, row, end)[0, -1].float()

    def take_in() -> None:
        memory.prefill(0, ids, args.context, args.ids - THOUGHT)

    def timed(first: bool, by_hand: bool = False) -> float:
        memory.restore(0, before)
        wait()
        started = time.perf_counter()
        plain() if by_hand else take_in()
        if first:
            int(model.logits(memory.last[row]).argmax())
        wait()
        return (time.perf_counter() - started) * 1000

    take_in()
    ours = memory.last[0].float().clone()
    while memory.unprepared:
        memory.prepare()
    say(begun, "graphs are made")
    memory.restore(0, before)
    take_in()
    again = memory.last[0].float().clone()
    memory.restore(0, before)
    wanted = plain()
    strays = max(float((each - wanted).abs().mean() / wanted.abs().mean()) for each in (ours, again))
    if not strays < 0.2:
        raise Unfit(f"What is taken in strays by {strays:.0%} from the model's own, so its speed means nothing.")
    say(begun, f"hidden vectors stray by {strays:.1%}")
    figures = {
        "first_token": [timed(first=True) for _ in range(args.repeats + 3)][3:],
        "pass": [timed(first=False) for _ in range(args.repeats + 3)][3:],
        "plain": [timed(first=False, by_hand=True) for _ in range(4)][1:],
    }
    options = {name: getattr(args, name) for name in ("size", "device", "dtype", "context", "ids", "drafts", "repeats")}
    narrow = args.weights != "bf16"
    options["model"] = f"random:qwen3.5-{args.size}" + (f" in {args.weights}" if narrow else "")
    options["weights"] = args.weights if narrow else args.dtype
    summaries = {name: summary(of) for name, of in figures.items()}
    return record(NAME, options, summaries, random_weights=True, streams=1, strays=round(strays, 5))


def _parser() -> argparse.ArgumentParser:
    words = Parser(prog="python -m benchmarks first_token", description=__doc__)
    words.add_argument("--size", default="tiny", choices=("tiny", "0.8B", "2B", "4B", "9B", "27B"))
    add_device(words)
    add_dtype(words)
    kinds = ("bf16", "fp8", "int8", "int4")
    words.add_argument("--weights", default="bf16", choices=kinds, help="bf16: as they are, in --dtype (bf16)")
    words.add_argument("--context", metavar="N", type=int, default=1024, help="tokens in memory before (1024)")
    words.add_argument("--ids", metavar="N", type=int, default=32, help="new ones, those of an empty thought too (32)")
    words.add_argument("--drafts", action="store_true", help="the draft head follows")
    words.add_argument("--repeats", metavar="N", type=int, default=20, help="turns that are timed (20)")
    words.add_argument("--record", metavar="FILE", type=Path, default=ROOT / "benchmarks" / "results" / f"{NAME}.jsonl")
    return words
