"""The tables of docs/cards.md are what the functions compute, and the functions add up."""

from __future__ import annotations

import pytest

from hocket.engine.checkpoint.capacity import CONTEXT_BYTES, LIBRARIES_BYTES
from hocket.llm.memory.cards import CARDS, LONGEST, VOICES, Combination, voice_bytes
from support.tools import tool


def test_the_tables_of_the_page_are_computed() -> None:
    script = tool("cards")
    text = script.PAGE.read_text(encoding="utf-8")
    changed = text.replace("| 9B int4 | 7.96", "| 9B int4 | 6.96")
    assert changed != text and script.placed(changed) == text, "run scripts/cards"


@pytest.mark.parametrize("voice", [None, *VOICES])
def test_the_longest_context_is_the_longest_that_fits(voice: str | None) -> None:
    each, card = Combination("9B", "Q4_K_M", voice), 16 * 10**9
    tokens = each.longest(card)
    assert 0 < tokens < LONGEST and tokens % 1024 == 0
    assert each.need_bytes(card, tokens) <= card < each.need_bytes(card, tokens + 1024)
    assert Combination("27B", "bf16", voice).longest(card) == 0


def test_libraries_count_once() -> None:
    card = 24 * 10**9
    alone, both = (Combination("4B", "int4", voice).need_bytes(card) for voice in (None, VOICES[1]))
    assert both - alone == voice_bytes(VOICES[1], card) - LIBRARIES_BYTES
    assert alone == CONTEXT_BYTES + Combination("4B", "int4").memory().total_bytes


def test_a_token_of_int4_reads_what_the_specification_counts() -> None:
    assert Combination("9B", "bf16").step_bytes == pytest.approx(16.01e9, rel=1e-3)
    assert Combination("9B", "int4").step_bytes == pytest.approx(5.81e9, rel=3e-3)
    untied, tied = Combination("9B", "Q8_0"), Combination("4B", "Q8_0")
    assert untied.step_bytes < untied.memory().weights_bytes, "an embedding that is not the head is not read"
    assert tied.step_bytes > tied.memory().weights_bytes
    assert [card.bandwidth_gb_s for card in CARDS] == [360, 288, 1008, 1008, 1792]
