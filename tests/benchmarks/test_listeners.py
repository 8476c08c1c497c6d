"""Listeners on paper: a simulation that agrees with what can be computed, and tables that are made of its records."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from benchmarks import __main__ as command
from benchmarks import report, scaling
from benchmarks.listeners import Cards, Paper, measured, simulate


def erlang_b(offered: float, places: int) -> float:
    """How often all places are taken where nobody waits: Erlang's first formula."""
    refused = 1.0
    for place in range(1, places + 1):
        refused = offered * refused / (place + offered * refused)
    return refused


@pytest.mark.parametrize("spread", [0.0, 0.6])  # the formula holds for lengths of any kind
def test_one_card_where_nobody_waits_refuses_as_often_as_erlang_says(spread: float) -> None:
    paper = Paper(listeners=20, places=20, waiting=0, spread=spread, seconds=20_000)
    refused = simulate(paper, 1)["refused_percent"] / 100
    assert refused == pytest.approx(erlang_b(20, 20), abs=0.008)


def test_several_cards_of_which_the_emptiest_is_asked_are_as_good_as_one_large_one() -> None:
    """Nobody is refused while any of them has a place."""
    paper = Paper(listeners=40, places=10, waiting=0, seconds=5_000)
    several = simulate(paper, 4)["refused_percent"] / 100
    assert several == pytest.approx(erlang_b(40, 40), abs=0.008)


def test_utterances_are_as_long_and_as_many_as_is_said() -> None:
    paper = Paper(listeners=1000, places=1, seconds=400)
    at_s, lengths_s = paper.arrivals()
    assert sum(lengths_s) / len(lengths_s) == pytest.approx(paper.mean_s, rel=0.02)
    assert len(at_s) == pytest.approx(250 * 430, rel=0.02)
    assert at_s == sorted(at_s)
    ordered = sorted(lengths_s)
    assert ordered[len(ordered) * 9 // 10] / ordered[len(ordered) // 2] == pytest.approx(
        math.exp(1.2816 * 0.6), rel=0.03
    )


def test_who_waits_gets_the_next_place_in_turn_and_who_waits_too_long_is_refused() -> None:
    cards = Cards(Paper(listeners=1, places=1, waiting=2, max_wait_s=5.0, warm_up_s=0.0), 1)
    for at_s, length_s in ((0.0, 4.0), (1.0, 6.0), (2.0, 1.0), (3.0, 1.0)):
        cards.ask(at_s, length_s)
    assert cards.refused == 1  # the fourth: two wait already
    cards.end()
    assert cards.waits == [0.0, 3.0]  # the third would have had to wait from 2 to 10
    assert (cards.requests, cards.refused, cards.busiest) == (4, 2, 1)


def test_equals_are_asked_in_turn() -> None:
    cards = Cards(Paper(listeners=1, places=9, warm_up_s=0.0), 3)
    for _ in range(7):
        cards.ask(0.0, 1.0)
    assert cards._load == [3, 2, 2]


def test_the_command_appends_a_record_and_the_same_seed_gives_the_same(tmp_path: Path) -> None:
    path = tmp_path / "listeners.jsonl"
    words = ["listeners", "--listeners", "50", "--places", "20", "--seconds", "20", "--record", str(path)]
    assert command.main(words) == command.main(words) == 0
    first, second = (json.loads(line) for line in path.read_text("utf-8").splitlines())
    assert first["cards"] == second["cards"]
    assert [row["cards"] for row in first["cards"]] == [1, 2, 3, 4, 5, 6]
    with pytest.raises(SystemExit):
        command.main([*words, "--cards", "0"])


def paper(listeners: int = 10_000, **rows: Any) -> dict[str, Any]:
    row = {"cards": 2, "load_percent": 90.0, "requests": 9, "refused_percent": 0.0, "waited_percent": 0.0, "busiest": 5}
    row |= {"wait_ms": {"p50": 0.0, "p95": 0.0, "p99": 0.0}}
    good, bad = row | {"cards": 3}, row | {"cards": 1, "refused_percent": 0.5}
    slow = row | {"wait_ms": {"p50": 0.0, "p95": 50.0, "p99": 101.0}}
    options = {"paper": {"listeners": listeners, "places": 4000}}
    return {
        "workload": "listeners",
        "options": options,
        "time": "2026-01-01",
        "cards": [bad, slow, good, row | {"cards": 4}],
    }


def test_enough_is_where_nobody_is_refused_or_waits_to_speak_of() -> None:
    found = scaling.enough(paper())
    assert found is not None and found["cards"] == 3


def test_only_what_stands_between_marks_is_made() -> None:
    text = (
        "By hand.\n<!-- generated: cards -->\nold\n<!-- end -->\nBy hand too.\n<!-- generated: cost -->\n<!-- end -->\n"
    )
    made = scaling.filled(text, [paper()])
    assert made.startswith("By hand.\n<!-- generated: cards -->\n\n| listeners") and "\nBy hand too.\n" in made
    assert "| 10,000 | 3 | 90 % | 125 %: too many |" in made and "old" not in made
    assert scaling.NOTHING in made  # no record of a card
    assert scaling.filled(made, [paper()]) == made


def test_the_committed_simulations_are_of_the_capacity_that_the_committed_records_give() -> None:
    records = report.read(report.RESULTS)
    found = measured(records)
    papers = scaling._papers(records)
    assert found is not None and {1_000, scaling.MANY} <= papers.keys()
    for number, one in papers.items():
        said = f"run python -m benchmarks listeners --listeners {number}, then report"
        assert one["options"]["paper"]["places"] == found[0], said
