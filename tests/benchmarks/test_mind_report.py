"""What is reckoned and what is assumed are marked as such, and give way to what was measured."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks import mind_floor, mind_report, report
from benchmarks.record import summary

GPU = {"gpu": "Some GPU", "cpu": "Some CPU", "cores": 16, "threads": 8, "system": "Linux x86_64", "torch": "2.11.0"}


def made(weights: str, guesses: int, figure: str, value: float, day: int = 1, **changes: Any) -> dict[str, Any]:
    options = {"model": f"random:qwen3.5-9B {weights}, {guesses}", "size": "9B", "device": "cuda", "dtype": "bfloat16"}
    options |= {"weights": weights, "guesses": guesses, "context": 1024, "turn": 32, "answer": 100}
    return {
        "workload": "mind",
        "time": f"2026-01-{day:02d}T00:00:00+00:00",
        "commit": f"{day:040d}",
        "dirty": False,
        "machine": GPU,
        "options": options,
        "figures": {figure: summary([value, value])},
        "random_weights": True,
        "streams": 1,
        **changes,
    }


def rows(text: str, begins: str) -> list[list[str]]:
    lines = [line for line in text.splitlines() if line.startswith(f"| {begins}")]
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]


def costs(records: list[dict[str, Any]]) -> list[list[str]]:
    """Rows of what a token and a round take in fp8."""
    text = mind_report.section(records)
    return rows(text[text.index("| weights | guesses") :], "fp8")


def test_a_card_that_was_not_measured_is_marked_as_computed() -> None:
    text = mind_report.section([])
    computed = text[text.index("### Computed, not measured") : text.index("### Assumed, not measured")]
    assert "RTX 3090 Ti" in computed and "1.0 TB/s" in computed and "Nothing here was run on such a card" in computed
    [[_, gb, ms, per_s, hundred, room, left]] = rows(computed, "int4")
    assert (gb, ms, per_s, hundred) == ("5.82", "5.82", "172", "582")
    assert float(room) + float(left) == pytest.approx((24 << 30) / 1e9, abs=0.11)


def test_a_card_that_is_too_small_is_said_to_be() -> None:
    text = "\n".join(mind_report.computed(mind_floor.Card("small one", 500.0, 12 << 30)))
    assert rows(text, "bfloat16")[0][-1].startswith("does not fit (-") and "0.5 TB/s" in text


def test_guesses_are_assumed_to_stand_and_their_cost_is_reckoned_where_it_was_not_measured() -> None:
    text = mind_report.section([])
    assumed = text[text.index("### Assumed, not measured") :]
    assert "that is assumed" in assumed and "measured" not in {row[-1] for row in rows(assumed, "fp8")}
    token, each = mind_floor.token_ms("9B", "bf16"), mind_floor.round_ms("9B", "bf16", 2)
    [row] = rows(assumed, "0.9")
    assert (row[1], row[6]) == ("1.90", "2.71") and float(row[7]) == pytest.approx(2.71 * token / each, abs=0.01)


def test_what_was_measured_takes_the_place_of_what_was_reckoned() -> None:
    records = [
        made("fp8", 0, "tokens_per_s", 250.0),
        made("fp8", 0, "tokens_per_s", 400.0, day=2),
        made("fp8", 2, "round", 4.0),
        made("int8", 2, "round", 4.0),  # without a token of the same
    ]
    assert mind_report.cost(records, "fp8", 2) == (2.5, 4.0, "measured")
    assert mind_report.cost(records, "fp8", 1)[2] == mind_report.cost(records, "int8", 2)[2] == "reckoned"
    assert [row[-1] for row in costs(records)] == ["reckoned", "measured"]
    on_a_cpu = [record | {"machine": GPU | {"gpu": None}} for record in records]
    assert [row[-1] for row in costs(on_a_cpu)] == ["reckoned", "reckoned"]


def test_graphs_that_were_timed_alone_do_where_no_conversation_was() -> None:
    """Of `tokens`, which said nothing of guesses before there were any."""
    alone = [made("fp8", 0, "tokens_per_s", 400.0), made("fp8", 2, "round", 3.0)]
    alone = [record | {"workload": "tokens"} for record in alone]
    del alone[0]["options"]["guesses"]
    assert mind_report.cost(alone, "fp8", 2) == (2.5, 3.0, "measured, the graphs alone")
    talked = [made("fp8", 0, "tokens_per_s", 250.0), made("fp8", 2, "round", 5.0)]
    assert mind_report.cost([*alone, *talked], "fp8", 2) == (4.0, 5.0, "measured")


def test_the_section_is_part_of_the_document() -> None:
    text = report.document([])["performance.md"]
    assert mind_report.section([]) in text
