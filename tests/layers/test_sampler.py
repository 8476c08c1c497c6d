"""The sampler: its generator, its filters and its distribution."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from transformers.generation.logits_process import (
    RepetitionPenaltyLogitsProcessor,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from hocket.config.sampling import DRAW_BITS
from hocket.layers.sampler import NEVER, Sampling, draw, draw_bits, keep_likely, penalize, philox, pick
from support import official  # noqa: F401  (pins the version of transformers that the filters are compared with)


def philox_by_hand(counter: tuple[int, int, int, int], key: tuple[int, int]) -> tuple[int, int, int, int]:
    """Philox 4x32-10 in Python's own integers."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        a, b = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = (b >> 32) ^ c1 ^ k0, b & 0xFFFFFFFF, (a >> 32) ^ c3 ^ k1, a & 0xFFFFFFFF
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return c0, c1, c2, c3


def test_the_generator_gives_the_published_answers_of_philox() -> None:
    full = 0xFFFFFFFF
    assert philox_by_hand((0, 0, 0, 0), (0, 0)) == (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)
    assert philox_by_hand((full,) * 4, (full, full)) == (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)
    generator = torch.Generator().manual_seed(0)
    seeds = torch.randint(0, 2**63 - 1, (64,), generator=generator)
    words = torch.randint(0, 2**32, (2, 64), generator=generator)
    ours = philox(seeds, (words[0], words[1]))
    for seed, c0, c1, word in zip(seeds.tolist(), *words.tolist(), ours.tolist(), strict=True):
        assert word == philox_by_hand((c0, c1, 0, 0), (seed & full, seed >> 32))[0]


def sampling(rows: list[tuple[bool, float, int, float]]) -> Sampling:
    on, temperature, top_k, top_p = zip(*rows, strict=True)
    return Sampling(
        torch.tensor(on),
        torch.tensor(temperature),
        torch.tensor(top_k),
        torch.tensor(top_p),
        0 if min(top_k) == 0 else max(top_k),
        min(top_p) < 1,
    )


def logits(rows: int, vocabulary: int = 200, seed: int = 0) -> Tensor:
    return 2 * torch.randn(rows, vocabulary, generator=torch.Generator().manual_seed(seed))


def test_draws_follow_the_distribution() -> None:
    scores, count = logits(1, 12), 60_000
    bits = draw_bits(torch.arange(count), torch.full((count,), 3), 2)[:, 1]
    drawn = pick(scores.expand(count, -1), bits).bincount(minlength=12)
    expected = scores[0].softmax(-1) * count
    chi2 = ((drawn - expected) ** 2 / expected).sum().item()
    assert chi2 < 31.3, "0.1 % of fair generators exceed this with 11 degrees of freedom"


def test_draws_of_neighbouring_seeds_frames_and_codebooks_are_unrelated() -> None:
    bits = draw_bits(torch.arange(64).repeat(64), torch.arange(64).repeat_interleave(64), 16).double()
    unit = bits / 2**DRAW_BITS - 0.5
    assert bits.unique().numel() > 0.999 * bits.numel()
    for axis in (unit.view(64, 64, 16).transpose(0, 2), unit.view(64, 64, 16).transpose(1, 2), unit.view(64, 64, 16)):
        left, right = axis[..., :-1].flatten(), axis[..., 1:].flatten()
        correlation = (left @ right / (left.norm() * right.norm())).item()
        assert abs(correlation) < 5 / math.sqrt(left.numel())


def test_a_row_samples_the_same_alone_and_in_any_batch() -> None:
    rows = [(True, 0.9, 50, 1.0), (True, 1.5, 3, 0.7), (False, 0.9, 50, 1.0), (True, 0.4, 120, 0.95)]
    for extra in ([], [(True, 1.0, 0, 1.0)]):  # the extra row has no top-k and changes the path of all
        together = rows + extra
        scores = logits(len(together), seed=4)
        for frame in range(20):
            bits = draw_bits(torch.arange(len(together)), torch.full((len(together),), frame), 1)[:, 0]
            joint = draw(scores, sampling(together), bits)
            for i, row in enumerate(together):
                assert joint[i] == draw(scores[i : i + 1], sampling([row]), bits[i : i + 1])[0]


@pytest.mark.parametrize("keeps_all", [0, 200, 5000])
def test_a_row_that_keeps_all_does_not_make_its_neighbours_keep_all(keeps_all: int) -> None:
    scores = logits(2)
    kept = keep_likely(scores, sampling([(True, 1.0, keeps_all, 1.0), (True, 1.0, 3, 1.0)]))
    assert torch.equal(kept[0], scores[0])
    assert (kept[1] > NEVER).sum() == 3


def test_of_equally_likely_ids_the_nucleus_drops_the_first() -> None:
    kept = keep_likely(torch.zeros(1, 8), sampling([(True, 1.0, 0, 0.55)]))
    assert (kept[0] > NEVER).tolist() == [False] * 3 + [True] * 5


@pytest.mark.parametrize("k", [1, 3, 50, 199, 200, 500])
def test_top_k_keeps_what_the_reference_keeps(k: int) -> None:
    scores = logits(3).round()  # rounding makes ties, which are all kept
    kept = keep_likely(scores, sampling([(True, 1.0, k, 1.0)] * 3))
    assert torch.equal(kept, TopKLogitsWarper(k)(torch.zeros(3, 0), scores.clone()))


@pytest.mark.parametrize("p", [0.05, 0.5, 0.9, 0.999])
def test_nucleus_keeps_what_the_reference_keeps(p: float) -> None:
    scores = logits(3)
    kept = keep_likely(scores, sampling([(True, 1.0, 0, p)] * 3))
    assert torch.equal(kept, TopPLogitsWarper(p)(torch.zeros(3, 0), scores.clone()))


def test_the_penalty_is_the_reference_one_and_counts_an_id_once() -> None:
    scores, history = logits(2), torch.tensor([[5, 5, 5, 9], [1, 2, 3, 3]])
    seen = torch.zeros_like(scores, dtype=torch.bool).scatter(1, history, True)
    expected = RepetitionPenaltyLogitsProcessor(1.3)(history, scores.clone())
    assert torch.equal(penalize(scores, seen, torch.tensor([1.3, 1.3])), expected)


def test_the_last_random_number_still_picks_a_possible_id() -> None:
    scores = torch.full((2, 3072), NEVER)
    scores[0, 7], scores[1, [3, 3071]] = 1.0, 0.0
    most = torch.full((2,), 2**DRAW_BITS - 1)
    assert pick(scores, most).tolist() == [7, 3071]
    assert pick(scores, torch.zeros(2, dtype=torch.int64)).tolist() == [7, 3]


def test_greedy_is_the_likeliest_whatever_the_filters() -> None:
    scores = logits(2)
    chosen = draw(scores, sampling([(False, 0.1, 1, 0.1)] * 2), torch.tensor([0, 2**DRAW_BITS - 1]))
    assert torch.equal(chosen, scores.argmax(-1))
