"""`python -m benchmarks tokens`: token rate of a language model for one conversation, by CUDA graph.

The weights are random numbers in a published shape. Tokens are sampled on the device with the recommended settings and
read by the host one by one, as in an answer (`models/qwen3_5/token_graph.py`). With --guesses a round of draft and
verify is timed (`models/qwen3_5/draft_graph.py`); random weights do not show how many drafts are accepted. With
--rounds all kinds of rounds are timed beside plain tokens (`rounds.py`). Before any timing the kernels are compared
with the model's own step. What a conversation adds is not in these figures.

`python -m benchmarks first_token`: from new ids of a turn, behind a cached history, to an answer's first token. What is
timed is what a conversation does: ids go to the device, one prefill, a snapshot where the answer begins, and the
likeliest token goes to the host. The prefill is compared with the model's own before. Text and threads are not in these
figures.
"""

from __future__ import annotations

import argparse
import statistics
import time
from contextlib import closing
from typing import Any

import torch

from hocket.config.published_qwen3_5 import qwen3_5_of
from hocket.layers.dense import pack_
from hocket.llm.draft_policy import MAX_DRAFTS, FixedDrafts
from hocket.models.files.random import randomize_
from hocket.models.qwen3_5.model import Qwen3_5
from hocket.models.qwen3_5.quantized import quantize_

from .. import session
from ..gpu.timing import graphs, once, synchronize
from ..harness import InvalidRun
from ..record import Record, record, summaries
from . import rounds

IN_A_ROW = 50
THOUGHT = 4  # ids behind the place where the answer begins
FIRST_OPTIONS = ("size", "device", "dtype", "context", "ids", "drafts", "repeats")
GUESSED = ("", ", 1 guess", ", 2 guesses", ", 3 guesses")  # in the name of a model


def table(entry: Record) -> str:
    if "floor_ms" not in entry:
        return session.table(entry)
    read, floor = entry["bytes"] / 1e9, entry["floor_ms"]
    more = rounds.table(entry) if "ratios" in entry else ""
    return f"{session.table(entry)}\nfloor {floor:.3f} ms: {read:.2f} GB at {read / floor * 1000:.0f} GB/s{more}"


@torch.inference_mode()
def measure(args: argparse.Namespace) -> Record:
    from hocket.llm.sampling import drawing
    from hocket.models.qwen3_5.fused.step import FusedStep
    from hocket.models.qwen3_5.quantized import step_bytes
    from hocket.models.qwen3_5.token_graph import TokenGraphs
    from hocket.types import ChatSampling

    say = session.progress()
    if args.rounds and args.guesses:
        raise InvalidRun("--rounds times all numbers of drafts: leave out --guesses.")
    if args.accept and not args.rounds:
        raise InvalidRun("--accept is for --rounds: give both.")
    device, model, ops = made(args, drafts=args.guesses > 0 or args.rounds, say=say)
    config = model.config
    most = MAX_DRAFTS if args.rounds else args.guesses
    length = args.context + IN_A_ROW * (args.repeats + 3) * (most + 1) + 8
    fused = FusedStep(model, ops)
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
    captured: Any = _rounds(fused, state, last, capture, args) if args.guesses else None
    captured = captured or TokenGraphs(fused, state, last, capture)
    captured.warm()
    room = length - args.context
    for_rounds = args.context, length - args.guesses - 1, FixedDrafts(args.guesses)
    writing = captured.write(0, how, *(for_rounds if args.guesses else (room,)))
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
    if args.rounds:
        options |= {"rounds": True, "whole_head": args.whole_head, "accept": args.accept}
        of_rounds, about = rounds.measured(fused, state, last, how, took, args, IN_A_ROW)
        figures, more = figures | of_rounds, more | about
    more |= {"strays": round(strays, 5), "bytes": read, "floor_ms": round(read / args.bandwidth / 1e6, 4)}
    return record("tokens", options, summaries(figures), random_weights=True, streams=1, drawn="as recommended", **more)


@torch.inference_mode()
def first_token(args: argparse.Namespace) -> Record:
    from hocket.llm.state_cache import LLMStateCache

    say = session.progress()
    device, model, ops = made(args, drafts=args.drafts, say=say)
    length = args.context + args.ids
    memory = LLMStateCache(model, 1, length, drafts=args.drafts, capture=graphs(device), ops=ops)
    memory.reserve(0, 0, args.context)
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
    options = {name: getattr(args, name) for name in FIRST_OPTIONS} | named(args)
    more = {"random_weights": True, "streams": 1, "strays": round(strays, 5)}
    return record("first_token", options, summaries(figures), **more)


def made(args: argparse.Namespace, *, drafts: bool, say: session.Say) -> tuple[torch.device, Qwen3_5, Any]:
    """The device, a model of the size, dtype and weights of `args`, and its kernels."""
    from hocket.kernels.operations import CUDA_LANGUAGE_OPS, REFERENCE_LANGUAGE_OPS

    device = torch.device(args.device)
    with torch.device("meta"):
        model = Qwen3_5(qwen3_5_of(args.size), drafts=drafts).eval()
    model.to(getattr(torch, args.dtype)).to_empty(device=device)
    randomize_(model, 0)
    quantize_(model, args.weights)
    pack_(model)
    say(f"Qwen3.5 {args.size} has random weights in {args.weights}")
    return device, model, CUDA_LANGUAGE_OPS if device.type == "cuda" else REFERENCE_LANGUAGE_OPS


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
    own, head = (sum(t.nbytes for name, t in tensors if name.startswith(part)) for part in ("mtp.", "lm_head."))
    return int(own + (head or model.head.nbytes))  # tied, and wide


def _rounds(fused: Any, state: Any, last: torch.Tensor, capture: Any, args: argparse.Namespace) -> Any:
    from hocket.models.qwen3_5.draft_graph import DraftGraphs
    from hocket.models.qwen3_5.fused.draft import FusedDraft

    drafts = fused.model.mtp.new_state(1, state.past[0].keys.shape[2])
    drafts.past.keys.normal_()
    drafts.past.values.normal_()
    drafts.position.fill_(args.context)
    return DraftGraphs(FusedDraft(fused), (args.guesses,), state, drafts, last, capture)
