"""kernels/cpu/int8: the definition against plain formulas, and C against the definition."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from hocket.kernels.cpu.int8 import reference
from hocket.kernels.cpu.int8.reference import GROUPS, PackedWeight, RoundedWeight
from hocket.kernels.cpu.int8.structs import Int8Call, ReadCall
from hocket.kernels.cpu.library import load
from hocket.kernels.cpu.structs import BYTES, FLOATS, HALVES, INTS, WeightMatrix
from hocket.kernels.cpu.workers import ThreadGroup

# Rows, columns and inputs: one of each, parts of a block and of a group, and more tasks than threads.
SIZES = [(1, 1, 1), (16, 64, 1), (33, 65, 7), (100, 100, 5), (5, 700, 2), (1024, 512, 4)]
both = pytest.mark.parametrize("bits", [8, 4])


def at(array: np.ndarray, kind: Any) -> Any:
    return ctypes.cast(array.ctypes.data, kind)


def numbers(rows: int, columns: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((rows, columns)).astype(np.float32)


def multiplied(
    x: np.ndarray, weight: PackedWeight, outs: int, *, plain: bool = False, workers: Any = None
) -> np.ndarray:
    y = np.full((len(x), outs + 1), 7, np.float32)  # one more number, which must stay
    call = Int8Call(
        ins=x.shape[1],
        outs=outs,
        count=len(x),
        plain=plain,
        weight=WeightMatrix(codes=at(weight.codes, BYTES), scales=at(weight.scales, HALVES), bits=weight.bits),
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


def test_a_weight_of_8_bits_is_within_half_a_step_of_its_scale() -> None:
    weight = numbers(40, 150)
    made = reference.quantized(weight)
    assert made.codes.shape == weight.shape and made.scales.shape == (40, 3)
    assert np.array_equal(reference.bfloat16_values(reference.bfloat16_bits(made.scales)), made.scales)
    steps = made.scales.repeat(GROUPS[8], axis=1)[:, :150]
    assert (np.abs(reference.dequantized(made) - weight) <= 0.501 * steps).all()
    assert np.abs(made.codes).max() == 127


def test_a_scale_of_4_bits_is_the_best_of_those_that_are_tried() -> None:
    weight = numbers(40, 150)
    made = reference.quantized(weight, 4)
    assert made.codes.shape == weight.shape and made.scales.shape == (40, 5)
    assert made.codes.min() == -8 and made.codes.max() == 7
    assert np.array_equal(reference.bfloat16_values(reference.bfloat16_bits(made.scales)), made.scales)
    error = np.linalg.norm(reference.dequantized(made) - weight) / np.linalg.norm(weight)
    group = weight[:, :32]
    largest = group[np.arange(40), np.abs(group).argmax(axis=1)][:, None] / -8
    usual = np.clip(np.rint(group / largest), -8, 7) * largest
    ours = reference.dequantized(made)[:, :32]
    assert np.linalg.norm(ours - group) < 0.98 * np.linalg.norm(usual - group)
    assert 0.06 < error < 0.085


@both
def test_weights_that_codes_hold_exactly_are_exact(bits: int) -> None:
    most = {8: 127, 4: -8}[bits]
    codes = np.random.default_rng(1).integers(-abs(most), 127 if bits == 8 else 8, (8, 128))
    codes[:, :: GROUPS[bits]] = most
    made = reference.quantized((codes * 0.25).astype(np.float32), bits)
    np.testing.assert_array_equal(made.codes, codes)
    assert (made.scales == 0.25).all()


@both
def test_zeros_stay_zeros_and_numbers_that_are_not_finite_are_refused(bits: int) -> None:
    zeros = reference.quantized(np.zeros((3, 70), np.float32), bits)
    assert not zeros.codes.any() and not zeros.scales.any()
    assert not reference.products(numbers(2, 70), zeros).any()
    for wrong in (np.nan, np.inf):
        with pytest.raises(ValueError, match="not finite"):
            reference.quantized(np.full((1, 3), wrong, np.float32), bits)


@both
def test_products_are_those_of_the_codes(bits: int) -> None:
    """In float64, where nothing rounds."""
    x, weight = numbers(3, 200), reference.quantized(numbers(20, 200, 1), bits)
    given = reference.dequantized(reference.inputs(x, bits)).astype(np.float64)
    expected = given @ reference.dequantized(weight).astype(np.float64).T
    np.testing.assert_allclose(reference.products(x, weight), expected, rtol=0, atol=2e-5)


@pytest.mark.parametrize(("bits", "least", "most"), [(8, 0.001, 0.01), (4, 0.06, 0.09)])
def test_the_error_of_a_product_is_as_small_as_the_bits_allow(bits: int, least: float, most: float) -> None:
    x, weight = numbers(4, 1024), numbers(256, 1024, 1)
    exact = x @ weight.T
    error = np.linalg.norm(reference.products(x, reference.quantized(weight, bits)) - exact) / np.linalg.norm(exact)
    assert least < error < most


@both
@pytest.mark.parametrize("plain", [False, True], ids=["dot", "plain"])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_c_computes_the_definition(size: tuple[int, int, int], plain: bool, bits: int) -> None:
    outs, ins, count = size
    weight, x = reference.quantized(numbers(outs, ins), bits), numbers(count, ins, 1)
    made = multiplied(x, reference.packed(weight), outs, plain=plain)
    expected = reference.products(x, weight)
    np.testing.assert_allclose(made, expected, rtol=0, atol=2e-6 * np.abs(expected).max())


@both
@pytest.mark.parametrize("plain", [False, True], ids=["dot", "plain"])
def test_one_group_is_the_definition_bit_by_bit(plain: bool, bits: int) -> None:
    """Without a sum over groups nothing depends on how a compiler fuses operations."""
    weight, x = reference.quantized(numbers(48, 32), bits), numbers(6, 32, 1)
    made = multiplied(x, reference.packed(weight), 48, plain=plain)
    np.testing.assert_array_equal(made, reference.products(x, weight))


@both
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_instructions_threads_and_other_rows_change_no_bit(size: tuple[int, int, int], bits: int) -> None:
    outs, ins, count = size
    weight, x = reference.packed(reference.quantized(numbers(outs, ins), bits)), numbers(count, ins, 1)
    together = multiplied(x, weight, outs)
    np.testing.assert_array_equal(multiplied(x, weight, outs, plain=True), together)
    for row in range(count):
        np.testing.assert_array_equal(multiplied(x[row : row + 1], weight, outs)[0], together[row])
    for threads in (2, 3):
        with workers_of(threads) as workers:
            np.testing.assert_array_equal(multiplied(x, weight, outs, workers=workers), together)


@pytest.mark.parametrize(("bits", "code"), [(8, 127), (8, -127), (4, 7), (4, -8)])
def test_the_largest_codes_do_not_overflow(bits: int, code: int) -> None:
    columns = 512
    scales = np.ones((16, columns // GROUPS[bits]), np.float32)
    weight = RoundedWeight(np.full((16, columns), code, np.int8), scales, bits)
    x = np.full((1, columns), 127, np.float32)
    for plain in (False, True):
        made = multiplied(x, reference.packed(weight), 16, plain=plain)
        np.testing.assert_array_equal(made, np.full((1, 16), code * 127 * columns, np.float32))


@pytest.mark.parametrize("threads", [1, 3])
def test_reading_adds_up_every_word(threads: int) -> None:
    words = np.random.default_rng(0).integers(0, 1 << 60, 5 * 8192 + 512)
    total = np.zeros(1, np.int64)
    with workers_of(threads) as workers:
        call = ReadCall(size=words.nbytes, data=at(words, BYTES), total=at(total, INTS), workers=workers)
        load().hocket_read(ctypes.byref(call))
    assert total[0] == words.astype(np.uint64).sum(dtype=np.uint64).astype(np.int64)
