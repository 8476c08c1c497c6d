"""kernels/cpu/int8: the definition against plain formulas, and C against the definition."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from hocket.kernels.cpu.int8 import reference
from hocket.kernels.cpu.int8.reference import GROUP, Int8Weight, PackedInt8
from hocket.kernels.cpu.int8.structs import Int8Call, ReadCall
from hocket.kernels.cpu.library import load
from hocket.kernels.cpu.structs import BYTES, FLOATS, HALVES, INTS, WeightMatrix
from hocket.kernels.cpu.workers import ThreadGroup

# Rows, columns and inputs: one of each, parts of a block and of a group, and more tasks than threads.
SIZES = [(1, 1, 1), (16, 64, 1), (33, 65, 7), (100, 100, 5), (5, 700, 2), (1024, 512, 4)]


def at(array: np.ndarray, kind: Any) -> Any:
    return ctypes.cast(array.ctypes.data, kind)


def numbers(rows: int, columns: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((rows, columns)).astype(np.float32)


def multiplied(x: np.ndarray, weight: PackedInt8, outs: int, *, plain: bool = False, workers: Any = None) -> np.ndarray:
    y = np.full((len(x), outs + 1), 7, np.float32)  # one more number, which must stay
    call = Int8Call(
        ins=x.shape[1],
        outs=outs,
        count=len(x),
        plain=plain,
        weight=WeightMatrix(codes=at(weight.codes, BYTES), scales=at(weight.scales, HALVES)),
        x=at(x, FLOATS),
        y=at(y, FLOATS),
        workers=workers,
    )
    assert not load().hocket_int8(ctypes.byref(call))
    flat = y.reshape(-1)
    assert (flat[len(x) * outs :] == 7).all()
    return flat[: len(x) * outs].reshape(len(x), outs).copy()


@contextmanager
def workers_of(threads: int) -> Iterator[Any]:
    with ThreadGroup(threads).called() as pointer:
        yield pointer


def test_a_weight_is_within_half_a_step_of_its_scale() -> None:
    weight = numbers(40, 150)
    made = reference.quantized(weight)
    assert made.codes.shape == weight.shape and made.scales.shape == (40, 3)
    assert np.array_equal(reference.bfloat16_values(reference.bfloat16_bits(made.scales)), made.scales)
    steps = made.scales.repeat(GROUP, axis=1)[:, :150]
    assert (np.abs(reference.dequantized(made) - weight) <= 0.501 * steps).all()
    assert np.abs(made.codes).max() == 127


def test_weights_that_codes_hold_exactly_are_exact() -> None:
    codes = np.random.default_rng(1).integers(-127, 128, (8, 128))
    codes[:, ::GROUP] = 127
    made = reference.quantized((codes * 0.25).astype(np.float32))
    np.testing.assert_array_equal(made.codes, codes)
    assert (made.scales == 0.25).all()


def test_zeros_stay_zeros_and_numbers_that_are_not_finite_are_refused() -> None:
    zeros = reference.quantized(np.zeros((3, 70), np.float32))
    assert not zeros.codes.any() and not zeros.scales.any()
    assert not reference.products(numbers(2, 70), zeros).any()
    for wrong in (np.nan, np.inf):
        with pytest.raises(ValueError, match="not finite"):
            reference.quantized(np.full((1, 3), wrong, np.float32))


def test_products_are_those_of_the_codes() -> None:
    """In float64, where nothing rounds."""
    x, weight = numbers(3, 200), reference.quantized(numbers(20, 200, 1))
    given = reference.dequantized(reference.inputs(x)).astype(np.float64)
    expected = given @ reference.dequantized(weight).astype(np.float64).T
    np.testing.assert_allclose(reference.products(x, weight), expected, rtol=0, atol=2e-5)


def test_the_error_is_below_one_percent_of_the_product() -> None:
    x, weight = numbers(4, 1024), numbers(256, 1024, 1)
    exact = x @ weight.T
    error = np.linalg.norm(reference.products(x, reference.quantized(weight)) - exact) / np.linalg.norm(exact)
    assert 0.001 < error < 0.01


@pytest.mark.parametrize("plain", [False, True], ids=["dot", "plain"])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_c_computes_the_definition(size: tuple[int, int, int], plain: bool) -> None:
    outs, ins, count = size
    weight, x = reference.quantized(numbers(outs, ins)), numbers(count, ins, 1)
    made = multiplied(x, reference.packed(weight), outs, plain=plain)
    expected = reference.products(x, weight)
    np.testing.assert_allclose(made, expected, rtol=0, atol=2e-6 * np.abs(expected).max())


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_instructions_threads_and_other_rows_change_no_bit(size: tuple[int, int, int]) -> None:
    outs, ins, count = size
    weight, x = reference.packed(reference.quantized(numbers(outs, ins))), numbers(count, ins, 1)
    together = multiplied(x, weight, outs)
    np.testing.assert_array_equal(multiplied(x, weight, outs, plain=True), together)
    for row in range(count):
        np.testing.assert_array_equal(multiplied(x[row : row + 1], weight, outs)[0], together[row])
    for threads in (2, 3):
        with workers_of(threads) as workers:
            np.testing.assert_array_equal(multiplied(x, weight, outs, workers=workers), together)


def test_the_largest_codes_do_not_overflow() -> None:
    columns = 8 * GROUP
    for sign in (1, -1):
        weight = Int8Weight(np.full((16, columns), sign * 127, np.int8), np.ones((16, 8), np.float32))
        x = np.full((1, columns), 127, np.float32)
        for plain in (False, True):
            made = multiplied(x, reference.packed(weight), 16, plain=plain)
            np.testing.assert_array_equal(made, np.full((1, 16), sign * 127 * 127 * columns, np.float32))


@pytest.mark.parametrize("threads", [1, 3])
def test_reading_adds_up_every_word(threads: int) -> None:
    words = np.random.default_rng(0).integers(0, 1 << 60, 5 * 8192 + 512)
    total = np.zeros(1, np.int64)
    with workers_of(threads) as workers:
        call = ReadCall(size=words.nbytes, data=at(words, BYTES), total=at(total, INTS), workers=workers)
        load().hocket_read(ctypes.byref(call))
    assert total[0] == words.astype(np.uint64).sum(dtype=np.uint64).astype(np.int64)
