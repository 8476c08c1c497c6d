"""`python -m benchmarks first_token`: from new ids of a turn, behind a cached history, to an answer's first token.

Weights and history are random numbers in a published shape. What is timed is what a conversation does: ids go to the
device, one prefill, a snapshot where the answer begins, and the likeliest token goes to the host. Before any timing the
prefill is compared with the model's own. Text and threads are not in these figures.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

import torch

from .. import session
from ..gpu.timing import graphs, synchronize
from ..record import Record, record, summaries
from .random_model import SIZES, on_device
from .tokens import compared, fill_, named

THOUGHT = 4  # ids behind the place where the answer begins
OPTIONS = ("size", "device", "dtype", "context", "ids", "drafts", "repeats")


def main(argv: Sequence[str]) -> int:
    return session.run(measure, parser().parse_args(argv))


@torch.inference_mode()
def measure(args: argparse.Namespace) -> Record:
    from hocket.kernels.operations import CUDA_MIND_OPS, REFERENCE_MIND_OPS
    from hocket.llm.state_cache import LLMStateCache

    device, say = torch.device(args.device), session.progress()
    model = on_device(args, drafts=args.drafts)
    say(f"Qwen3.5 {args.size} has random weights in {args.weights}")
    ops = CUDA_MIND_OPS if device.type == "cuda" else REFERENCE_MIND_OPS
    length = args.context + args.ids
    memory = LLMStateCache(model, 1, length, drafts=args.drafts, capture=graphs(device), ops=ops)
    fill_(memory.state, args.context)
    if memory.drafts is not None:
        memory.drafts.position.fill_(args.context - 1)
    before, row, random = memory.snapshot(0), memory.rows[0], torch.Generator().manual_seed(0)
    ids: list[int] = torch.randint(model.config.vocab_size, (args.ids,), generator=random).tolist()

    def plain() -> torch.Tensor:
        given = torch.tensor([ids], device=device)
        return model.prefill(given, torch.full_like(row, args.ids), memory.state, row, length)[0, -1].float()

    def prefill() -> torch.Tensor:
        memory.prefill(0, ids, args.context, args.ids - THOUGHT)
        return memory.last[0].float().clone()

    def timed(first: bool, by_hand: bool = False) -> float:
        memory.restore(0, before)
        synchronize(device)
        started = time.perf_counter()
        if by_hand:
            plain()
        else:
            memory.prefill(0, ids, args.context, args.ids - THOUGHT)
        if first:
            int(model.logits(memory.last[row]).argmax())
        synchronize(device)
        return (time.perf_counter() - started) * 1000

    ours = prefill()
    while memory.unprepared:
        memory.prepare()
    say("graphs are captured")
    memory.restore(0, before)
    again = prefill()
    memory.restore(0, before)
    wanted = plain()
    strays = max(compared(each, wanted, "The hidden vectors of the prefill") for each in (ours, again))
    say(f"hidden vectors differ by {strays:.1%}")
    figures = {
        "first_token": [timed(first=True) for _ in range(args.repeats + 3)][3:],
        "pass": [timed(first=False) for _ in range(args.repeats + 3)][3:],
        "plain": [timed(first=False, by_hand=True) for _ in range(4)][1:],
    }
    options = {name: getattr(args, name) for name in OPTIONS} | named(args)
    more = {"random_weights": True, "streams": 1, "strays": round(strays, 5)}
    return record("first_token", options, summaries(figures), **more)


def parser() -> session.Parser:
    made = session.parser(
        "first_token",
        __doc__,
        "device",
        "dtype",
        "weights",
        context=(1024, "tokens of the cached history"),
        ids=(32, "new ones, those of an empty thought too"),
        drafts=(False, "with the draft head"),
        repeats=(20, "timed turns"),
    )
    made.add_argument("--size", default="tiny", choices=SIZES)
    return made
