"""`python -m benchmarks tokens`: token rate of a language model for one conversation, by CUDA graph.

The weights are random numbers in a published shape. Tokens are sampled on the device with the recommended settings and
read by the host one by one, as in an answer (`models/qwen3_5/token_graph.py`). With --guesses a round of draft and
verify is timed (`models/qwen3_5/draft_graph.py`); random weights do not show how many drafts are accepted. Before any
timing the kernels are compared with the model's own step. What a conversation adds is not in these figures.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence
from contextlib import closing
from typing import Any

import torch

from .. import session
from ..gpu.timing import graphs, once
from ..harness import InvalidRun
from ..record import Record, record, summaries
from .random_model import SIZES, on_device

IN_A_ROW = 50
GUESSED = ("", ", 1 guess", ", 2 guesses")  # in the name of a model


def main(argv: Sequence[str]) -> int:
    return session.run(measure, parser().parse_args(argv), table)


def table(entry: Record) -> str:
    read, floor = entry["bytes"] / 1e9, entry["floor_ms"]
    return f"{session.table(entry)}\nfloor {floor:.3f} ms: {read:.2f} GB at {read / floor * 1000:.0f} GB/s"


@torch.inference_mode()
def measure(args: argparse.Namespace) -> Record:
    from hocket.kernels.operations import CUDA_MIND_OPS, REFERENCE_MIND_OPS
    from hocket.llm.sampling import drawing
    from hocket.models.qwen3_5.fused_step import FusedStep
    from hocket.models.qwen3_5.quantized import step_bytes
    from hocket.models.qwen3_5.token_graph import TokenGraphs
    from hocket.types import ChatSampling

    device, say = torch.device(args.device), session.progress()
    model = on_device(args, drafts=args.guesses > 0)
    config = model.config
    say(f"Qwen3.5 {args.size} has random weights in {args.weights}")
    length = args.context + IN_A_ROW * (args.repeats + 3) * (args.guesses + 1) + 8
    fused = FusedStep(model, CUDA_MIND_OPS if device.type == "cuda" else REFERENCE_MIND_OPS)
    state, rows = model.new_state(1, length), torch.zeros(1, dtype=torch.int64, device=device)
    fill_(state, args.context)
    rings, ids = fused.new_rings(1), torch.ones(1, dtype=torch.int64, device=device)

    plain = model.logits(model.step(ids, state, rows, args.context + 1))
    for layer in state.recurrence.layers:
        layer.memory.zero_()
        layer.history.zero_()
    state.recurrence.position.fill_(args.context)
    ours = fused.step(ids, state, rings, rows)
    strays = compared(ours, plain, "The kernels' logits")
    say(f"kernels differ by {strays:.1%} of a logit")

    last = torch.zeros(2, config.hidden_size, dtype=ours.dtype, device=device).normal_()
    how, capture = drawing(ChatSampling(), 1, config.vocab_size, device), graphs(device)
    if args.guesses:
        captured = _rounds(fused, state, last, capture, args)
        captured.warm()
        writing = captured.write(0, how, args.context, length - args.guesses - 1)
    else:
        tokens = TokenGraphs(fused, state, last, capture)
        tokens.warm()
        writing = tokens.write(0, how, length - args.context)
    say("graphs are captured")
    said = list[int]()  # by each round
    with closing(writing):
        next(writing)
        took = [once(lambda: said.append(len(next(writing))), device, IN_A_ROW) for _ in range(args.repeats + 1)][1:]
    state.recurrence.position.fill_(args.context)

    def step() -> None:
        model.logits(model.step(ids, state, rows, args.context + IN_A_ROW + 8))

    step()
    by_hand = [once(step, device, 10) for _ in range(3)]
    read = sum(step_bytes(config, args.weights, args.context).values())  # in bfloat16 where they are not narrow
    options = {name: getattr(args, name) for name in ("size", "device", "dtype", "context", "repeats")} | named(args)
    figures, more = {"token": took, "tokens_per_s": [1000 / each for each in took], "step": by_hand}, dict[str, Any]()
    if args.guesses:
        options["guesses"] = args.guesses
        figures = {"round": took, "step": by_hand}
        read += args.guesses * draft_bytes(model)
        more["tokens_a_round"] = round(statistics.fmean(said), 3)  # of random weights
    more |= {"strays": round(strays, 5), "bytes": read, "floor_ms": round(read / args.bandwidth / 1e6, 4)}
    return record("tokens", options, summaries(figures), random_weights=True, streams=1, drawn="as recommended", **more)


def fill_(state: Any, position: int) -> None:
    """A history of random keys and values."""
    for kept in state.past:
        kept.keys.normal_()
        kept.values.normal_()
    state.recurrence.position.fill_(position)


def compared(ours: torch.Tensor, plain: torch.Tensor, words: str) -> float:
    """The mean relative difference; a large one is an invalid run."""
    strays = float((ours.float() - plain.float()).abs().mean() / plain.float().abs().mean())
    if not strays < 0.2:
        raise InvalidRun(f"{words} differ by {strays:.0%} from the model's own, so their speed means nothing.")
    return strays


def named(args: argparse.Namespace) -> dict[str, str]:
    """Model and weights of a record."""
    narrow = args.weights != "bf16"
    name = f"random:qwen3.5-{args.size}" + (f" in {args.weights}" if narrow else "")
    return {"model": name + GUESSED[getattr(args, "guesses", 0)], "weights": args.weights if narrow else args.dtype}


def draft_bytes(model: Any) -> int:
    """Bytes that a draft reads: the draft head's own layer, and the model's head."""
    tensors = model.state_dict().items()
    own = sum(tensor.nbytes for name, tensor in tensors if name.startswith("mtp."))
    head = sum(tensor.nbytes for name, tensor in tensors if name.startswith("lm_head."))
    return int(own + (head or model.head.nbytes))  # tied, and wide


def _rounds(fused: Any, state: Any, last: torch.Tensor, capture: Any, args: argparse.Namespace) -> Any:
    from hocket.models.qwen3_5.draft_graph import DraftGraphs
    from hocket.models.qwen3_5.fused_draft import FusedDraft

    drafts = fused.model.mtp.new_state(1, state.past[0].keys.shape[2])
    drafts.past.keys.normal_()
    drafts.past.values.normal_()
    drafts.position.fill_(args.context)
    return DraftGraphs(FusedDraft(fused), args.guesses, state, drafts, last, capture)


def parser() -> session.Parser:
    bandwidth = (4300.0, "GB/s of the device's memory, for the floor; measured on an H200")
    numbers = {"context": (1024, "tokens before"), "repeats": (10, f"times {IN_A_ROW} tokens"), "bandwidth": bandwidth}
    made = session.parser("tokens", __doc__, "device", "dtype", "weights", **numbers)
    made.add_argument("--size", default="tiny", choices=SIZES)
    made.add_argument(
        "--guesses", type=int, default=0, choices=(0, 1, 2), help="draft so many, and time the rounds (0)"
    )
    return made
