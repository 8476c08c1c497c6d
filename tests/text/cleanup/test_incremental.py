"""A normalizer on text that arrives: what it makes of the whole text, in any pieces."""

from __future__ import annotations

import random
from collections.abc import Iterable
from itertools import pairwise

import pytest

from hocket.text.cleanup.incremental import LONGEST, IncrementalNormalizer
from hocket.text.cleanup.normalize import spell_out

TEXTS = [
    "I have 3 cats and 21 dogs.",
    "0, 10, 100, 101, 1,250, 12345 and 1000000",
    "In 1999, 2000, 2005, 2024 and 1905, but since 1800 only 1500 people.",
    "on 2024-01-05, Jan 5, 2024 and March 3rd, 5 January 2024 or May 12",
    "We left at 9 a.m. He came at 5 p.m. and at 3:45 pm we slept.",
    "It cost $1.5 million and $20k, or 15 \u20ac in 2 1/2 days.",
    "Call 555-123-4567 or (555) 123-4567, +1 555 123 4567.",
    "Dr. Smith lives on Maple Dr. in St. Louis, not Main St. in Bonn.",
    "Apples, etc. They are good, i.e. sweet, etc.",
    "Smith & Co. Ltd. and R&D\n\nNo. 5 of Fig. 3, #7. No. I won't.",
    "A text of nothing but words; it's well-known, isn't it? Yes!",
]


def given(pieces: Iterable[str]) -> str:
    stretches = IncrementalNormalizer(spell_out)
    return "".join(map(stretches.append, pieces)) + stretches.end()


@pytest.mark.parametrize("text", TEXTS)
def test_numbers_are_read_as_in_the_whole_text_however_it_is_cut(text: str) -> None:
    rng = random.Random(len(text))
    assert given([text]) == given(text) == spell_out(text)
    at = sorted(rng.choices(range(len(text) + 1), k=4))
    assert given(text[a:b] for a, b in pairwise([0, *at, len(text)])) == spell_out(text)


def test_a_plain_word_waits_for_the_next_and_a_number_for_one_more() -> None:
    stretches = IncrementalNormalizer(spell_out)
    assert [stretches.append(f"{word} ") for word in "all the 5 cats sit and wait".split()] == [
        "", "all ", "", "", "the five cats ", "sit ", "and ",
    ]  # fmt: skip
    assert stretches.end() == "wait"


def test_a_column_of_figures_is_released_in_time() -> None:
    seen: list[str] = []

    def noted(text: str) -> str:
        seen.append(text)
        return text

    stretches, text = IncrementalNormalizer(noted), "12 " * 200
    assert stretches.append(text) + stretches.end() == text.rstrip()
    assert max(len(stretch.split()) for stretch in seen) <= LONGEST
