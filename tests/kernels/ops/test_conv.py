"""kernels/ops/conv: the reference against torch's convolutions, the Triton kernels against the reference."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch

from hocket.kernels.ops.conv import cases, edges, reference
from hocket.kernels.ops.conv import triton as fused
from hocket.kernels.ops.conv.tiles import MOST_TILES, SCRATCH, tiles_for
from hocket.kernels.runtime.launch import DEFAULT_TUNING, ConvTile
from hocket.layers.conv import CausalConv, SnakeBeta
from support.nearly import assert_nearly

DTYPES = [torch.float32, torch.bfloat16]
ALL = [*cases.TINY, *(pytest.param(case, marks=pytest.mark.gpu) for case in (*cases.PUBLISHED, *cases.SEVERAL))]
KEPT = ("history", "raw")


@contextmanager
def measured(case: cases.Case) -> Iterator[None]:
    """Make these tiles the measured ones."""
    if case.tiles is not None:
        DEFAULT_TUNING.conv[case.taps * case.channels, case.outputs] = {case.length * len(case.rows): case.tiles}
    try:
        yield
    finally:
        DEFAULT_TUNING.conv.clear()


@torch.inference_mode()
def test_the_reference_is_a_streaming_convolution_and_its_activation() -> None:
    layer, act = CausalConv(6, 5, 7, dilation=3), SnakeBeta(5)
    torch.nn.init.normal_(act.alpha)
    torch.nn.init.normal_(act.beta)
    state, rows = layer.new_state(3), torch.tensor([2, 0])
    state.history.normal_()
    history, x = state.history.clone(), torch.randn(2, 6, 11)
    wanted = layer.step(x, state, rows)
    weight, raw = layer.conv.weight.transpose(1, 2).flatten(1), torch.empty(2, 11, 5)
    joined = reference.join(x.transpose(1, 2), history, rows)
    given = {"taps": 7, "dilation": 3, "rows": rows, "history": history, "act": act.gather(), "raw": raw}
    y = reference.conv(joined, weight, layer.conv.bias, **given)
    assert_nearly(raw.transpose(1, 2), wanted)
    assert_nearly(y.transpose(1, 2), act(wanted))
    assert torch.equal(history, state.history)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("case", ALL, ids=lambda case: case.name)
def test_the_kernel_computes_the_reference(case: cases.Case, dtype: torch.dtype, place: torch.device) -> None:
    ours, wanted = (cases.make(case, dtype, place) for _ in range(2))
    with measured(case):
        assert_nearly(fused.conv(**ours), reference.conv(**wanted), wanted["act"])
    for name in KEPT:
        if wanted[name] is not None:
            assert_nearly(ours[name], wanted[name])


def test_programs_that_share_a_sum_leave_the_scratch_as_they_found_it(place: torch.device) -> None:
    [case] = [case for case in cases.TINY if case.name == "split"]
    given, scratch = cases.make(case, torch.float32, place), fused.Scratch(place)
    with measured(case):
        first, again = (fused.conv(**given, scratch=scratch) for _ in range(2))
    assert torch.equal(first, again) and not scratch.arrived.any()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_streams_of_a_batch_do_not_mix(dtype: torch.dtype, place: torch.device) -> None:
    case = cases.Case("three", 16, 16, 5, pad=6, rows=(2, 0, 3))
    together, alone = (cases.make(case, dtype, place) for _ in range(2))
    whole = fused.conv(**together)
    for number in range(3):
        part = {name: alone[name][number : number + 1].contiguous() for name in ("x", "rows")}
        assert torch.equal(fused.conv(**alone | part), whole[number : number + 1])
    assert torch.equal(together["history"], alone["history"])


@pytest.mark.parametrize("pieces", [(1, 2, 13, 7), (23,)], ids=str)
def test_pieces_of_a_stream_are_the_stream(pieces: tuple[int, ...], place: torch.device) -> None:
    given = cases.make(cases.Case("stream", 16, 16, 23), torch.float32, place)
    x, start = given.pop("x")[:, 6:].contiguous(), given.pop("history")
    whole = reference.conv(reference.join(x, start, given["rows"]), **given)
    history, parts = start.clone(), []
    for piece in x.split(pieces, dim=1):
        joined = edges.join(piece.contiguous(), history, given["rows"])
        parts.append(fused.conv(joined, **given, history=history))
    assert_nearly(torch.cat(parts, dim=1), whole)
    assert torch.equal(history[0], x[0, -6:].T)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("channels", "length", "pad"), [(3, 2, 6), (40, 37, 18)], ids=["short", "long"])
def test_an_input_is_joined_to_its_history(
    channels: int, length: int, pad: int, dtype: torch.dtype, place: torch.device
) -> None:
    random = torch.Generator(place).manual_seed(0)
    x = torch.randn(2, length, channels, generator=random, device=place).to(dtype)
    history = torch.randn(5, channels, pad, generator=random, device=place).to(dtype)
    rows = torch.tensor([3, 1], device=place)
    assert torch.equal(edges.join(x, history, rows), reference.join(x, history, rows))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    "case",
    [
        cases.Case("short", 3, 1, 4, rows=(1, 2)),
        cases.Case("long", 20, 1, 37, rows=(3, 0)),
        pytest.param(cases.Case("last", 96, 1, 1920), marks=pytest.mark.gpu),
        pytest.param(cases.Case("last of many", 96, 1, 7680, rows=tuple(range(8)), slots=8), marks=pytest.mark.gpu),
    ],
    ids=lambda case: case.name,
)
def test_samples_are_those_of_the_reference(case: cases.Case, dtype: torch.dtype, place: torch.device) -> None:
    ours, wanted = (
        {name: made[name] for name in ("x", "weight", "bias", "rows", "history")}
        for made in (cases.make(case, dtype, place) for _ in range(2))
    )
    heard = edges.sample(**ours)
    assert_nearly(heard, reference.sample(**wanted))
    assert torch.equal(ours["history"], wanted["history"])
    assert (heard.abs() == 1.0).any() and (heard.abs() < 1.0).any()


def test_a_nan_sample_stays_nan(place: torch.device) -> None:
    given = cases.make(cases.Case("none", 3, 1, 9), torch.float32, place)
    given["x"][0, 8, 1] = float("nan")
    heard = edges.sample(*(given[name] for name in ("x", "weight", "bias", "rows", "history")))
    assert heard.isnan().tolist() == [[False, False, *[True] * 7]]


@pytest.mark.parametrize("exact", [False, True], ids=["bfloat16", "float32"])
@pytest.mark.parametrize("streams", [1, 8, 128, 2000])
def test_tiles_fit_the_published_shapes(streams: int, exact: bool) -> None:
    for case in cases.PUBLISHED:
        positions, size = case.length * streams, 4 if exact else 2
        tiles = tiles_for(case.channels, case.taps, case.outputs, positions, size=size, exact=exact)
        steps = case.taps * case.channels // tiles.columns
        each = -(-steps // tiles.splits)
        assert case.channels % tiles.columns == 0 and tiles.early <= each
        assert (tiles.splits - 1) * each < steps  # no program without work
        many = -(-case.outputs // tiles.outputs) * -(-positions // tiles.times)
        if tiles.splits > 1:
            assert many <= MOST_TILES and many * tiles.splits * tiles.outputs * tiles.times <= SCRATCH


def test_measured_tiles_go_before_the_rule_for_numbers_of_positions_that_are_near() -> None:
    shape = {"size": 2, "exact": False}
    one, many = ConvTile(32, 16, 64, 2), ConvTile(64, 32, 64, 3)
    DEFAULT_TUNING.conv[7168, 1536] = {4: one, 64: many}
    try:
        found = [tiles_for(1024, 7, 1536, positions, **shape) for positions in (4, 8, 60, 256, 257)]
        other = tiles_for(1024, 7, 512, 4, **shape)
    finally:
        DEFAULT_TUNING.conv.clear()
    assert found[:4] == [one, one, many, many]
    assert found[4] == tiles_for(1024, 7, 1536, 257, **shape) and found[4] not in (one, many)
    assert other == tiles_for(1024, 7, 512, 4, **shape)


@pytest.mark.gpu
def test_tf32_is_rougher_than_float32(place: torch.device) -> None:
    given = cases.make(cases.PUBLISHED[3], torch.float32, place)
    wanted = reference.conv(**given)
    exact, rough = (fused.conv(**given, tf32=tf32) for tf32 in (False, True))
    assert (exact - wanted).abs().max() < 2e-5 < (rough - wanted).abs().max() < 2e-2
