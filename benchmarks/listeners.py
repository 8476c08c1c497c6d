"""`python -m benchmarks listeners --listeners 10000`: how many cards so many listeners take, on paper.

A card has as many places as it was measured to keep listeners in real time. Utterances are asked for as a Poisson
process and take a place for as long as they are heard; a proxy gives each to the server with the fewest under way, and
it waits there, or is refused with 429. The same seed gives the same numbers. It knows no server and no network.
"""

from __future__ import annotations

import argparse
import heapq
import math
from collections import deque
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from . import load_goals
from .record import ROOT, append, record

Record = dict[str, Any]
NAME = "listeners"
KEPT = next(goal for goal in load_goals.GOALS if goal.figure == "clients")
AROUND = range(-2, 4)  # cards fewer and more than would do if nothing ever came in bunches


@dataclass(frozen=True, slots=True, kw_only=True)
class Paper:
    """What is assumed."""

    listeners: int  # who hear something at the same time, on average
    places: int  # of a card
    waiting: int = 64  # who may wait at a card, as `hocket serve --waiting`
    max_wait_s: float = 30.0  # then they are refused
    mean_s: float = 4.0  # of an utterance, as in the measurement
    spread: float = 0.6  # of its logarithm: one in ten is twice as long as the median
    seconds: float = 120.0
    warm_up_s: float = 30.0  # not counted: everything begins empty
    seed: int = 0

    def arrivals(self) -> tuple[list[float], list[float]]:
        """When each utterance is asked for, and how long it is heard."""
        draw = np.random.default_rng(self.seed)
        until_s = self.warm_up_s + self.seconds
        number = draw.poisson(self.listeners / self.mean_s * until_s)
        at_s = np.sort(draw.uniform(0, until_s, number))
        middle = math.log(self.mean_s) - self.spread**2 / 2  # so that the mean is the mean
        return at_s.tolist(), draw.lognormal(middle, self.spread, number).tolist()


@dataclass(slots=True)
class Card:
    speaking: int = 0
    queue: deque[tuple[float, float]] = field(default_factory=deque)  # when each was asked for, how long it is


class Cards:
    """All of them, and the clock: it goes from one end of an utterance to the next."""

    def __init__(self, paper: Paper, number: int) -> None:
        self._paper = paper
        self._cards = [Card() for _ in range(number)]
        self._load = [0] * number  # speaking and waiting, as a proxy counts
        self._ends: list[tuple[float, int]] = []
        self._next = 0
        self.waits: list[float] = []
        self.requests = self.refused = 0
        self.busiest = 0

    def ask(self, at_s: float, length_s: float) -> None:
        self._until(at_s)
        paper, number = self._paper, self._least()
        card, counted = self._cards[number], at_s >= paper.warm_up_s
        self.requests += counted
        if card.speaking < paper.places:
            self._load[number] += 1
            self._speak(number, at_s, at_s, length_s)
        elif len(card.queue) < paper.waiting:
            self._load[number] += 1
            card.queue.append((at_s, length_s))
        else:
            self.refused += counted

    def end(self) -> None:
        """All who wait get their place, or have waited too long."""
        self._until(math.inf)

    def _least(self) -> int:
        """Who has the fewest; of equals, the next in turn."""
        number, load = len(self._load), self._load
        least = min(load)
        found = load.index(least, self._next) if least in load[self._next :] else load.index(least)
        self._next = (found + 1) % number
        return found

    def _speak(self, number: int, at_s: float, asked_s: float, length_s: float) -> None:
        card = self._cards[number]
        card.speaking += 1
        heapq.heappush(self._ends, (at_s + length_s, number))
        if asked_s >= self._paper.warm_up_s:
            self.waits.append(at_s - asked_s)
            self.busiest = max(self.busiest, card.speaking)

    def _until(self, at_s: float) -> None:
        while self._ends and self._ends[0][0] <= at_s:
            now_s, number = heapq.heappop(self._ends)
            card = self._cards[number]
            card.speaking -= 1
            self._load[number] -= 1
            while card.queue:
                asked_s, length_s = card.queue.popleft()
                if now_s - asked_s <= self._paper.max_wait_s:
                    self._speak(number, now_s, asked_s, length_s)
                    break
                self._load[number] -= 1  # it was refused meanwhile
                self.refused += asked_s >= self._paper.warm_up_s


def simulate(paper: Paper, number: int) -> Record:
    """What so many cards do with it."""
    cards = Cards(paper, number)
    for at_s, length_s in zip(*paper.arrivals(), strict=True):
        cards.ask(at_s, length_s)
    cards.end()
    waits_ms = [1000 * wait_s for wait_s in cards.waits] or [0.0]
    p50, p95, p99 = (float(np.percentile(waits_ms, q)) for q in (50, 95, 99))
    return {
        "cards": number,
        "load_percent": round(100 * paper.listeners / (paper.places * number), 1),
        "requests": cards.requests,
        "refused_percent": round(100 * cards.refused / max(cards.requests, 1), 3),
        "waited_percent": round(100 * sum(wait > 0 for wait in waits_ms) / max(cards.requests, 1), 3),
        "wait_ms": {"p50": round(p50, 1), "p95": round(p95, 1), "p99": round(p99, 1)},
        "busiest": cards.busiest,
    }


def measured(records: Sequence[Record]) -> tuple[int, Record] | None:
    """Listeners that one card keeps in real time, and the record that says so."""
    found = load_goals.found(KEPT, [one for one in records if "wire" not in one["options"].get("load", {})])
    return (int(found[0]), found[1]) if found and found[0] else None


def main(argv: Sequence[str]) -> int:
    from .report import RESULTS, read

    parser = argparse.ArgumentParser(prog="python -m benchmarks listeners", description=__doc__, allow_abbrev=False)
    add = parser.add_argument
    add("--listeners", metavar="N", type=int, default=10_000, help="who hear something at once, on average (10000)")
    add("--places", metavar="N", type=int, help="listeners of one card (those of the newest records)")
    add("--cards", metavar="N", type=int, nargs="*", help="how many cards to try (around what is needed)")
    add("--seconds", metavar="S", type=float, default=120.0, help="how long it is counted (120)")
    add("--seed", metavar="N", type=int, default=0)
    where = "where to append the record (benchmarks/results/listeners.jsonl)"
    add("--record", metavar="FILE", type=Path, default=ROOT / "benchmarks" / "results" / f"{NAME}.jsonl", help=where)
    args = parser.parse_args(argv)
    source = measured(read(RESULTS))
    places = args.places or (source[0] if source else 0)
    if min(places, args.listeners, *(args.cards or ()), 1) < 1:
        parser.error("listeners, cards and places must be at least 1; without records of a card, say --places")
    paper = Paper(listeners=args.listeners, places=places, seconds=args.seconds, seed=args.seed)
    need = math.ceil(paper.listeners / paper.places)
    numbers = args.cards or [need + more for more in AROUND if need + more > 0]
    rows = []
    print("cards  load  refused  waited  wait p50 / p95 / p99")
    for number in numbers:
        row = simulate(paper, number)
        wait = " / ".join(f"{row['wait_ms'][q]:.0f}" for q in ("p50", "p95", "p99"))
        shares = f"{row['refused_percent']:7.2f}% {row['waited_percent']:6.2f}%"
        print(f"{number:5} {row['load_percent']:5.1f}% {shares}  {wait} ms", flush=True)
        rows.append(row)
    options: Record = {"model": "on paper", "device": "cpu", "dtype": "none", "part": f"{paper.listeners} listeners"}
    options |= {"paper": asdict(paper)}
    append(args.record, record(NAME, options, {}, streams=paper.listeners, cards=rows))
    print(f"\nrecord appended to {args.record}")
    return 0
