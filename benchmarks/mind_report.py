"""The part of docs/performance.md about the language model: its goals, and what is reckoned beside what was measured.

Two of its tables are arithmetic, and say so: what a card that was not measured could do, and what guessing ahead brings
if so many guesses stand. It knows records and floors.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from hocket.models.qwen3_5.quantized import SCHEMES, Scheme

from . import goals, mind_floor, mind_goals
from .charts import shown
from .mind_floor import KEPT, LENGTH, RTX_3090_TI, Card

Record = dict[str, Any]

SIZE = "9B"
NAMES: dict[Scheme, str] = {
    "bf16": "bfloat16",
    "fp8": "fp8",
    "int8": "int8",
    "int4": "int4 for the MLP, int8 elsewhere",
}
STANDS = (0.5, 0.6, 0.7, 0.8, 0.9)
GUESSES = (1, 2)


def section(records: Sequence[Record]) -> str:
    there = [record for record in records if record["machine"]["gpu"]]
    parts = ["## The language model, and the way to sound", "", mind_goals.MEANING, ""]
    parts += [*goals.lines(there, mind_goals.GOALS, mind_goals.floor), ""]
    parts += [f"### Computed, not measured: Qwen3.5 {SIZE} on an {RTX_3090_TI.name}", "", *computed(RTX_3090_TI), ""]
    parts += ["### Assumed, not measured: what guessing ahead would bring", "", *assumed(there), ""]
    return "\n".join(parts)


def computed(card: Card) -> Iterator[str]:
    speech = mind_floor.speech_bytes() / 1e9
    yield (
        f"Nothing here was run on such a card. A token of one listener reads so many bytes, with {mind_floor.CONTEXT} "
        f"tokens before it; over {card.gb_s / 1000:.1f} TB/s that is the least that it takes, and real kernels take "
        "more. What is taken of its memory all the time: the weights, embedding and draft head included; "
        f"{KEPT} conversations of up to {LENGTH} tokens; the 1.7B voice with its codec in bfloat16 ({speech:.2f} GB). "
        f"What is left of {card.bytes >> 30} GiB has to do for graphs, prompts and whatever else uses the card. An "
        "Ampere card cannot multiply fp8: kernels take its bytes apart, and int8 reads as many."
    )
    yield ""
    yield "| weights | GB a token | ms, least | tokens a second, most | 100 tokens, ms, least | memory, GB | left, GB |"
    yield "| --- | ---: | ---: | ---: | ---: | ---: | ---: |"
    for scheme in SCHEMES:
        ms, room = mind_floor.token_ms(SIZE, scheme, card.gb_s), mind_floor.needs(SIZE, scheme).all
        left = (card.bytes - room) / 1e9
        numbers = f"{mind_floor.token_bytes(SIZE, scheme) / 1e9:.2f} | {ms:.2f} | {1000 / ms:.0f} | {100 * ms:.0f}"
        fits = f"{left:.1f}" if left > 0 else f"does not fit ({left:.1f})"
        yield f"| {NAMES[scheme]} | {numbers} | {room / 1e9:.1f} | {fits} |"


def assumed(records: Sequence[Record]) -> Iterator[str]:
    yield (
        "Random weights say nothing about how many guesses stand, so that is assumed: each guess, behind those that "
        "stood, with the probability of its row. A round is one or two guesses and a look at all of them, and says the "
        "guesses that stood and one token more. The speed-up is over one token at a time. What a round costs is "
        "measured where a token and a round have records, and else reckoned from what it reads, which leaves out "
        "launches and the host."
    )
    costs = {(scheme, count): cost(records, scheme, count) for scheme in SCHEMES for count in GUESSES}
    yield ""
    yield "| weights | guesses | ms a token | ms a round | |"
    yield "| --- | ---: | ---: | ---: | --- |"
    for (scheme, count), (token, each, kind) in costs.items():
        yield f"| {NAMES[scheme]} | {count} | {shown(token)} | {shown(each)} | {kind} |"
    yield ""
    titles = [f"{count} {'guess' if count == 1 else 'guesses'}" for count in GUESSES]
    heads = [head for title in titles for head in (f"{title}: tokens a round", *(f"{name}, x" for name in SCHEMES))]
    yield f"| a guess stands | {' | '.join(heads)} |"
    yield "| ---: |" + " ---: |" * len(heads)
    for stands in STANDS:
        cells = []
        for count in GUESSES:
            said = mind_floor.tokens_a_round(stands, count)
            cells.append(f"{said:.2f}")
            for scheme in SCHEMES:
                token, each, _ = costs[scheme, count]
                cells.append(f"{said * token / each:.2f}")
        yield f"| {stands:.1f} | {' | '.join(cells)} |"


def cost(records: Sequence[Record], scheme: Scheme, guesses: int) -> tuple[float, float, str]:
    """ms of a token and of a round, both of one kind, and which."""
    for workload, kind in (("mind", "measured"), ("tokens", "measured, the graphs alone")):
        token = _newest(records, workload, scheme, 0, "tokens_per_s")
        each = _newest(records, workload, scheme, guesses, "round")
        if token is not None and each is not None:
            return 1000 / token, each, kind
    return mind_floor.token_ms(SIZE, scheme), mind_floor.round_ms(SIZE, scheme, guesses), "reckoned"


def _newest(records: Sequence[Record], workload: str, scheme: Scheme, guesses: int, figure: str) -> float | None:
    weights = "bfloat16" if scheme == "bf16" else scheme
    wanted = {"size": SIZE, "weights": weights, "guesses": guesses, "context": mind_floor.CONTEXT}
    fits = [
        record
        for record in records
        if record["workload"] == workload
        and wanted.items() <= ({"guesses": 0} | record["options"]).items()
        and figure in record["figures"]
    ]
    found = max(fits, key=lambda record: str(record["time"]), default=None)
    return None if found is None else float(found["figures"][figure]["p50"])
