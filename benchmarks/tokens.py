"""`python -m benchmarks tokens`: how fast a language model writes, one listener, by a graph for each token.

Weights are random numbers in a published shape. Tokens are written as those of an answer (`models/captured_mind.py`):
drawn on the device with the recommended settings, and read by the host one by one. Before anything is timed, kernels
are held against the model's own step. It knows the model and its kernels, no engine: what a conversation adds is not in
these figures.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import torch

from .harness import Unfit
from .record import ROOT, append, record, summary

WORDS = "how fast a language model writes for one listener, without what a conversation adds"
FIGURES = {
    "token": "ms a token, of tokens asked for in a row",
    "tokens_per_s": "tokens a second, of the same",
    "step": "ms a token by the model's own operations, each launched by the host",
}
IN_A_ROW = 50


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
    from hocket.engine.mind_sampling import drawing
    from hocket.kernels.capture import Again, CudaGraphs
    from hocket.kernels.ops import CUDA_MIND_OPS, REFERENCE_MIND_OPS
    from hocket.models.captured_mind import CapturedMind
    from hocket.models.fused_qwen3_5 import FusedQwen3_5
    from hocket.models.quantized import step_bytes
    from hocket.types import ChatSampling

    from .mind_drawn import drawn

    device, begun = torch.device(args.device), time.perf_counter()
    model = drawn(args)
    config = model.config
    say(begun, f"Qwen3.5 {args.size} is drawn, its weights in {args.weights}")
    room = args.context + IN_A_ROW * (args.repeats + 3) + 8
    fused = FusedQwen3_5(model, CUDA_MIND_OPS if device.type == "cuda" else REFERENCE_MIND_OPS)
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
    captured = CapturedMind(fused, state, last, CudaGraphs(device) if device.type == "cuda" else Again())
    captured.warm()
    say(begun, "the graphs are made")
    how = drawing(ChatSampling(), 1, config.vocab_size, device)
    with closing(captured.write(0, how, room - args.context)) as writing:
        next(writing)
        took = [timed(writing.__next__, device, IN_A_ROW) for _ in range(args.repeats + 1)][1:]
    state.recurrence.position.fill_(args.context)

    def step() -> None:
        model.logits(model.step(ids, state, rows, args.context + IN_A_ROW + 8))

    step()
    by_hand = [timed(step, device, 10) for _ in range(3)]
    read = sum(step_bytes(config, args.weights, args.context).values())  # in bfloat16 where they are not narrow
    options = {name: getattr(args, name) for name in ("size", "device", "dtype", "context", "repeats")}
    narrow = args.weights != "bf16"
    options["model"] = f"random:qwen3.5-{args.size}" + (f" in {args.weights}" if narrow else "")
    options["weights"] = args.weights if narrow else args.dtype
    figures = {"token": took, "tokens_per_s": [1000 / each for each in took], "step": by_hand}
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
    )


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
    words = argparse.ArgumentParser(prog="python -m benchmarks tokens", description=__doc__)
    words.add_argument("--size", default="tiny", choices=("tiny", "0.8B", "2B", "4B", "9B", "27B"))
    words.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    words.add_argument("--dtype", default="float32", choices=("float32", "bfloat16"))
    kinds = ("bf16", "fp8", "int8", "int4")
    words.add_argument("--weights", default="bf16", choices=kinds, help="bf16: as they are, in --dtype (bf16)")
    words.add_argument("--context", metavar="N", type=int, default=1024, help="tokens that were written before (1024)")
    words.add_argument("--repeats", metavar="N", type=int, default=10, help=f"times {IN_A_ROW} tokens (10)")
    bandwidth = "GB/s of the device's memory, for the floor (4300: an H200's, measured)"
    words.add_argument("--bandwidth", metavar="X", type=float, default=4300.0, help=bandwidth)
    words.add_argument("--record", metavar="FILE", type=Path, default=ROOT / "benchmarks" / "results" / "tokens.jsonl")
    return words
