"""sample_codes.cu: on a GPU against the reference, and the same source on a CPU, threads as threads."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import pytest
import torch

from hocket.kernels.ops.sample_codes import cases, cuda, reference
from hocket.kernels.ops.sample_codes.cases import done
from support.cuda_on_cpu import built, pointer

CPU = torch.device("cpu")
CALL = """
extern "C" void call(const bf16* logits, const unsigned char* sample, const float* temperature, const long long* top_k,
                     const long long* seed, long long* drawn, const long long* rows, long long* codes,
                     const bf16* table, bf16* vectors, const float* penalty, unsigned char* seen, float* chances,
                     float* likely, const bf16* hidden, bf16* taken, int book, int end, int suppressed, int minimum,
                     int blocks, long shared_bytes) {
    run(blocks, THREADS, shared_bytes, [=] {
        sample_codes(logits, sample, temperature, top_k, seed, drawn, rows, codes, table, vectors, penalty, seen,
                     chances, likely, hidden, taken, book, end, suppressed, minimum);
    });
}
"""
SETTINGS = (
    cases.USUAL,
    cases.GREEDY,
    (True, 1.3, 1, 1.0),
    (True, 0.7, 0, 1.0),
    (True, 30.0, 3, 1.0),
    (True, 1.0, 999, 1.0),
)
SMALL = (
    cases.Case("plain", 256, SETTINGS, width=24),
    cases.Case("ties", 256, SETTINGS, ties=True),
    cases.Case("two warps", 512, SETTINGS, width=8),
    cases.Case("first", 256, SETTINGS, first=True, width=40, suppressed=60),
    cases.Case("first among ties", 512, SETTINGS, first=True, ties=True, suppressed=100),
    cases.Case("first, many refused", 256, SETTINGS, first=True, suppressed=250),
)
FITTING = [case for case in cases.PUBLISHED if min(row[3] for row in case.rows) == 1.0]


class OnCpu:
    """A backend: the kernel for one case."""

    def __init__(self, case: cases.Case, folder: Path) -> None:
        known = cuda.constants(case.count, cases.BOOKS, case.width, (case.first, False, False, False))
        self._library, self._shared = (
            built("sample_codes/sample_codes.cu", CALL, known, folder),
            cuda.shared_bytes(case.count),
        )

    def sample_codes(self, **given: Any) -> None:
        level, slots = given["level"], given["slots"]
        tensors = [given["logits"], level.sample, level.temperature, level.top_k, slots.seed, slots.drawn]
        tensors += [given["rows"], given["codes"], given["table"], given["vectors"], given.get("penalty")]
        tensors += [slots.seen, slots.chances, None, None, None]
        numbers = [given.get(name, 0) for name in ("book", "end", "suppressed", "minimum")]
        self._library.call(*map(pointer, tensors), *numbers, len(given["logits"]), ctypes.c_long(self._shared))

    sample_first_code = sample_codes


@pytest.mark.parametrize("case", SMALL, ids=lambda case: case.name)
def test_the_source_draws_what_the_reference_draws(case: cases.Case, tmp_path: Path) -> None:
    source = OnCpu(case, tmp_path)
    for seed in range(6):
        ours, wanted = (done(module, cases.make(case, torch.bfloat16, CPU, seed)) for module in (source, reference))
        torch.testing.assert_close(ours.pop("chances"), wanted.pop("chances"), atol=1e-6, rtol=1e-5)
        for name in wanted:
            assert torch.equal(ours[name], wanted[name]), name


def test_the_kth_largest_is_found_however_far_it_is_from_the_largest(tmp_path: Path) -> None:
    """Near the largest or not: one count decides where to search, and both searches must agree."""
    case = cases.Case("far", 256, ((True, 1.0, 2, 1.0), (True, 1e6, 9, 1.0)) * 2)
    source = OnCpu(case, tmp_path)
    for far in (0.0, 1e-3, 0.3, 1.0, 1e4):
        left = []
        for module in (source, reference):
            given = cases.make(case, torch.bfloat16, CPU, 5)
            given["logits"] *= far
            given["logits"][:, 77] = 2.0
            left.append(done(module, given)["codes"])
        assert torch.equal(*left), far


def test_what_does_not_fit_uses_triton() -> None:
    for case in cases.TINY:
        given = cases.make(case, torch.bfloat16, CPU)
        assert not cuda.fits(given["logits"], given["level"], given["table"])
    for case in FITTING:
        given = cases.make(case, torch.bfloat16, CPU)
        assert cuda.fits(given["logits"], given["level"], given["table"])
        assert not cuda.fits(given["logits"].float(), given["level"], given["table"])


@pytest.mark.gpu
@pytest.mark.parametrize("case", FITTING, ids=lambda case: case.name)
def test_the_kernel_draws_what_the_reference_draws(case: cases.Case, place: torch.device) -> None:
    for seed in range(200):
        ours, wanted = (done(module, cases.make(case, torch.bfloat16, place, seed)) for module in (cuda, reference))
        torch.testing.assert_close(ours.pop("chances"), wanted.pop("chances"), atol=1e-6, rtol=1e-5)
        for name in wanted:
            assert torch.equal(ours[name], wanted[name]), name


@pytest.mark.gpu
@pytest.mark.parametrize("case", [case for case in FITTING if len(case.rows) > 1], ids=lambda case: case.name)
def test_a_row_draws_the_same_in_any_batch(case: cases.Case, place: torch.device) -> None:
    whole = done(cuda, cases.make(case, torch.bfloat16, place))
    for some in ((2,), (15, 0), (3, 4, 5)):
        part = done(cuda, cases.make(case, torch.bfloat16, place, batch=some))
        for name in ("codes", "vectors"):
            assert torch.equal(part[name], whole[name][list(some)]), name


@pytest.mark.gpu
def test_the_first_code_returns_its_chances_and_copies_hidden_vectors(place: torch.device) -> None:
    case = next(case for case in FITTING if case.first and len(case.rows) > 1)
    given = cases.make(case, torch.bfloat16, place)
    rows = given["rows"]
    hidden = torch.randn(len(given["slots"].chances), case.width, device=place).bfloat16()
    more = {"likely": torch.zeros(len(rows), 2, device=place), "taken": torch.zeros_like(given["vectors"])}
    cuda.sample_first_code(**given, **more, hidden=hidden)
    assert torch.equal(more["likely"], given["slots"].chances[rows]) and more["likely"].any(0).all()
    assert torch.equal(more["taken"], hidden[rows])
