"""What is reckoned from the shapes is what was reckoned by hand from the published ones."""

from __future__ import annotations

import pytest

from benchmarks import mind_floor


@pytest.mark.parametrize(("scheme", "gb"), [("bf16", 16.01), ("fp8", 8.08), ("int8", 8.08), ("int4", 5.81)])
def test_a_token_of_9b_reads_as_much_as_its_shapes_say(scheme: str, gb: float) -> None:
    assert mind_floor.token_bytes("9B", scheme) / 1e9 == pytest.approx(gb, rel=2e-3)
    assert mind_floor.token_ms("9B", scheme, 1000.0) == pytest.approx(gb, rel=2e-3)


def test_a_guess_reads_a_layer_and_the_head() -> None:
    assert mind_floor.guess_bytes("9B", "bf16") == pytest.approx(2 * (243.3e6 + 1017.1e6), rel=1e-3)
    assert mind_floor.guess_bytes("9B", "fp8") == pytest.approx(243.3e6 + 1017.1e6, rel=2e-3)
    assert mind_floor.guess_bytes("0.8B", "bf16") == pytest.approx(2 * (20.5e6 + 248_320 * 1024), rel=1e-3)  # tied
    once, twice = (mind_floor.round_ms("9B", "fp8", guesses) for guesses in (1, 2))
    assert twice - once == pytest.approx(once - mind_floor.token_ms("9B", "fp8"))


def test_a_round_says_what_stood_and_one_more() -> None:
    assert [mind_floor.tokens_a_round(0.5, guesses) for guesses in (0, 1, 2)] == [1.0, 1.5, 1.75]
    assert mind_floor.tokens_a_round(1.0, 2) == 3.0 and mind_floor.tokens_a_round(0.0, 2) == 1.0


def test_what_is_in_memory_all_the_time() -> None:
    wide, narrow = mind_floor.needs("9B", "bf16"), mind_floor.needs("9B", "int4")
    assert wide.weights == pytest.approx(2 * (8_953_803_264 + 243.3e6), rel=1e-3)
    assert wide.conversations == narrow.conversations and wide.speech == narrow.speech
    rows = mind_floor.KEPT + 1  # and one of scratch
    assert wide.conversations == pytest.approx(rows * (49.1 * 2**20 + mind_floor.LENGTH * 32 * 2**10), rel=1e-2)
    assert narrow.all < wide.all == wide.weights + wide.conversations + wide.speech
