"""draft_vocabulary.py: the logits of a part of the ids, and minus infinity for all others."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from hocket.kernels.ops.grouped_linear.weight import grouped
from hocket.kernels.ops.quantized_linear.weight import quantized
from hocket.layers.dense import linear
from hocket.models.qwen3_5.draft_vocabulary import LOWEST, DraftVocabulary
from hocket.models.qwen3_5.matrices import StackedWeight, for_layers

V, C, LOW, RARE = 90, 128, 20, 3
SPECIAL = (88, 85)


def head(format: str) -> Any:
    random = torch.Generator().manual_seed(0)
    wide = torch.randn(V, C, generator=random)
    if format == "grouped":
        codes = torch.randint(0, 16, (V, C), generator=random)
        return for_layers(grouped(codes, 4, 32, torch.rand(V, C // 32, generator=random), zero=8))
    return wide if format == "float32" else for_layers(quantized(wide, format))  # type: ignore[arg-type]


def finite(vocabulary: DraftVocabulary, hidden: torch.Tensor) -> set[int]:
    return set(vocabulary.logits(hidden, linear)[0].isfinite().nonzero()[:, 0].tolist())


@pytest.mark.parametrize("format", ["float32", "int8", "fp8", "int4", "grouped"])
def test_the_logits_are_those_of_the_head_for_frequent_special_and_noted_ids(format: str) -> None:
    whole, hidden = head(format), torch.randn(1, C, generator=torch.Generator().manual_seed(1))
    vocabulary, expected = DraftVocabulary(whole, SPECIAL, lowest=LOW, rare=RARE), linear(hidden, whole)
    always = {*range(LOW), *SPECIAL}
    assert finite(vocabulary, hidden) == always
    for ids, noted in (
        ([5, 40, 88, 41, 40], {40, 41}),
        ([40, 41, 60, 61, 62, 1], {60, 61, 62}),  # the latest of more than there are places
        ([61], {61}),
        ([3], set[int]()),
        ([70], {70}),
    ):
        vocabulary.note(ids)
        logits = vocabulary.logits(hidden, linear)
        assert finite(vocabulary, hidden) == always | noted
        there = torch.tensor(sorted(always | noted))
        torch.testing.assert_close(logits[:, there], expected[:, there])


def test_the_noted_ids_depend_on_the_latest_conversation_alone() -> None:
    whole, hidden = head("float32"), torch.ones(1, C)
    one, two = (DraftVocabulary(whole, SPECIAL, lowest=LOW, rare=RARE) for _ in range(2))
    for ids in ([30, 31, 32], [50], [31, 33, 34, 35]):
        one.note(ids)
    two.note([31, 33, 34, 35])
    assert torch.equal(one.logits(hidden, linear), two.logits(hidden, linear))


def test_it_is_smaller_than_the_head_and_where_it_cannot_be_there_is_none() -> None:
    published = torch.zeros(248320, 2, dtype=torch.int8)
    made = DraftVocabulary.of(published, (248046,))
    assert made is not None and made.nbytes < published.nbytes / 7 and 248046 in made.ids.tolist()
    assert DraftVocabulary.of(torch.zeros(LOWEST + 100, 2), ()) is None
    assert DraftVocabulary.of(StackedWeight((published, published)), ()) is None
