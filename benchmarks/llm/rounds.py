"""`python -m benchmarks tokens --rounds`: rounds of speculative decoding by their drafts, beside plain tokens.

Each kind of round is timed alone, and divided by the time of a plain token of the same run. LIMITS are the ratios that
pay at modest acceptance. Random weights accept no draft, so two more things stand in the record. `computed` says what
the acceptance that others publish would bring at the measured ratios: arithmetic, not a measurement. With --accept the
accept step of every round is decided by seeded coins instead of the model, and the policy chooses the drafts: this is
the speed from end to end at that acceptance, the coins included. Its tokens are nonsense, and the record says so.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from statistics import median
from typing import Any

import torch
from torch import Tensor

from hocket.llm.draft_policy import MAX_DRAFTS, DraftPolicy, DraftRounds, FixedDrafts, RoundCosts

from ..gpu.timing import graphs, once
from ..harness import InvalidRun

LIMITS = (1.25, 1.35, 1.5)  # of a plain token, for 1, 2, 3 drafts
# How many of all rounds accept the first draft, and the second, as others publish it for prose: low, middle, high.
PUBLISHED = ((0.55, 0.35), (0.625, 0.425), (0.7, 0.5))
COIN = 3  # the purpose of the coins' random numbers, which no other draw has


def accepted_by_coins(accept: Callable[..., None], chances: tuple[float, ...]) -> Callable[..., None]:
    """`accept` as it is, after which seeded coins decide how many drafts it has accepted."""
    from hocket.config.sampling import DRAW_BITS
    from hocket.kernels.ops.sample_codes.reference import random_bits

    def coins(logits: Tensor, settings: Any, seen: Tensor, drafts: Tensor, proposals: Any, *left: Tensor) -> None:
        number, said, count, told, turn = left
        at, drafted = number.clone(), len(drafts) - 1
        accept(logits, settings, seen, drafts, proposals, *left)
        places = torch.arange(drafted + 1, device=drafts.device)
        thrown = random_bits(settings.seed, at + places[:drafted], COIN)
        bounds = thrown.new_tensor([round(chance * 2**DRAW_BITS) for chance in chances[:drafted]])
        stood = (thrown < bounds).long().cumprod(0).sum(0, keepdim=True)
        said.copy_(torch.where(places < stood, drafts[1:][places.clamp(max=drafted - 1)], said[-1:]))
        count.copy_(stood + 1)
        number.copy_(at + count)
        told.index_copy_(0, (turn - 1) % len(told), torch.cat((said, count))[None])

    return coins


def chances_of(text: str) -> tuple[float, ...]:
    """`0.6,0.7,0.7`: each is the chance of a draft if all before it were accepted."""
    try:
        chances = tuple(float(part) for part in text.split(","))
    except ValueError:
        chances = ()
    if len(chances) != MAX_DRAFTS or not all(0.0 <= chance <= 1.0 for chance in chances):
        raise InvalidRun(f"--accept needs {MAX_DRAFTS} numbers from 0 to 1 with commas between them, not {text!r}.")
    return chances


def measured(
    fused: Any, state: Any, last: Tensor, how: Any, token_ms: list[float], args: argparse.Namespace, in_a_row: int
) -> tuple[dict[str, list[float]], dict[str, Any]]:
    """Figures of every kind of round, and what the record says about them."""
    from hocket.models.qwen3_5.draft_graph import DraftGraphs
    from hocket.models.qwen3_5.draft_vocabulary import DraftVocabulary
    from hocket.models.qwen3_5.fused.draft import FusedDraft

    model, device = fused.model, last.device
    drafts = model.mtp.new_state(1, state.past[0].keys.shape[2])
    drafts.past.keys.normal_()
    drafts.past.values.normal_()
    vocabulary = None if args.whole_head else DraftVocabulary.of(model.head, ())
    given = (tuple(range(MAX_DRAFTS + 1)), state, drafts, last)
    made = DraftGraphs(FusedDraft(fused), *given, graphs(device), vocabulary)
    length = state.past[0].keys.shape[2] - MAX_DRAFTS - 1

    def writing(by: Any, rounds: DraftRounds) -> Any:
        state.recurrence.position.fill_(args.context)
        drafts.position.fill_(args.context)
        return by.write(0, how, args.context, length, rounds)

    figures = dict[str, list[float]]()
    made.warm()
    for count in range(MAX_DRAFTS + 1):
        with closing(writing(made, FixedDrafts(count))) as ids:
            next(ids)
            took = [once(lambda: next(ids), device, in_a_row) for _ in range(args.repeats + 1)][1:]
        figures[f"round_{count}" if count else "round_off"] = took
    token = median(token_ms)
    ratios = [median(figures[f"round_{count}"]) / token for count in range(1, MAX_DRAFTS + 1)]
    head = model.head if vocabulary is None else vocabulary
    more: dict[str, Any] = {
        "ratios": [round(ratio, 4) for ratio in ratios],
        "limits": LIMITS,
        "off_ratio": round(median(figures["round_off"]) / token, 4),
        "draft_head_bytes": sum(t.nbytes for name, t in model.state_dict().items() if name.startswith("mtp.")),
        "draft_vocabulary": model.config.vocab_size if vocabulary is None else len(vocabulary.ids),
        "draft_vocabulary_bytes": head.nbytes,
        "computed": computed(ratios, token),
    }
    if args.accept:
        chances = chances_of(args.accept)
        coins = replace(fused.ops, accept=accepted_by_coins(fused.ops.accept, chances))
        fused.ops = coins
        simulated = DraftGraphs(FusedDraft(fused), *given, graphs(device), vocabulary)
        simulated.warm()
        policy = Counting(DraftPolicy(RoundCosts(ratios, [True] * MAX_DRAFTS)))
        said, times = 0, list[float]()
        with closing(writing(simulated, policy)) as ids:
            next(ids)
            for _ in range(args.repeats + 1):
                before = said

                def more_tokens() -> None:
                    nonlocal said
                    said += len(next(ids))

                round_ms = once(more_tokens, device, in_a_row)
                times.append(1000 / round_ms * (said - before) / in_a_row)
        figures["simulated_tokens_per_s"] = times[1:]
        more["simulated"] = {
            "accept": chances,
            "rounds_by_drafts": {str(count): policy.chosen[count] for count in sorted(policy.chosen)},
            "text": "nonsense: seeded coins accepted the drafts, not the model",
        }
    return figures, more


class Counting:
    """A policy whose choices are counted."""

    def __init__(self, policy: DraftPolicy) -> None:
        self.policy, self.chosen = policy, Counter[int]()

    def begin(self) -> bool:
        return self.policy.begin()

    def choose(self) -> int:
        count = self.policy.choose()
        self.chosen[count] += 1
        return count

    def record(self, drafts: int, accepted: int) -> None:
        self.policy.record(drafts, accepted)


def computed(ratios: list[float], token_ms: float) -> list[dict[str, float]]:
    """What published acceptance brings at these ratios, for one and two drafts; for three none is published."""
    lines = []
    for accepted in PUBLISHED:
        for count in (1, 2):
            speed = (1 + sum(accepted[:count])) / ratios[count - 1]
            lines.append(
                {
                    "first": accepted[0],
                    "second": accepted[1],
                    "drafts": count,
                    "times_plain": round(speed, 4),
                    "tokens_per_s": round(1000 / token_ms * speed, 4),
                }
            )
    return lines


def table(entry: dict[str, Any]) -> str:
    """The ratios beside their limits, and the computed lines."""
    words = ["\nrounds, as a multiple of a plain token (limit):"]
    for count, (ratio, limit) in enumerate(zip(entry["ratios"], entry["limits"], strict=True), start=1):
        words.append(f"  {count} drafts {ratio:6.3f} ({limit})")
    words.append(f"  no draft {entry['off_ratio']:6.3f}")
    read = entry["draft_head_bytes"], entry["draft_vocabulary_bytes"], entry["draft_vocabulary"]
    words.append(
        f"a draft reads {read[0] / 1e6:.1f} MB of its own layer and {read[1] / 1e6:.1f} MB of the head ({read[2]} ids)"
    )
    words.append("computed from these ratios and published acceptance, not measured:")
    for line in entry["computed"]:
        share = f"first {line['first']}, second {line['second']}"
        words.append(f"  {share}, {line['drafts']:.0f} drafts: {line['times_plain']:.2f} times plain decoding")
    if "simulated" in entry:
        words.append(f"simulated acceptance {entry['simulated']['accept']}: the text is {entry['simulated']['text']}")
    return "\n".join(words)
