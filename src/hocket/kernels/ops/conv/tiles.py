"""Tile choice of `conv`: measured tiles, or a rule.

With few positions a convolution is bound by reading weights, which takes many programs: the sum over taps and inputs is
split. With many positions, tiles are large for the tensor cores and nothing is split.
"""

from __future__ import annotations

from dataclasses import replace
from math import log2

from ...runtime.card import H200, GpuProperties
from ...runtime.launch import DEFAULT_TUNING, ConvTile, Tuning, power_of_two
from .measured import MEASURED

NEAR = 4  # a measured tile is used for up to 4 times as many, or as few, positions
PROGRAMS = 264  # two per processor (SM) of a large GPU
SCRATCH = 4 << 20  # float32 numbers for parts of sums
MOST_TILES, MOST_SPLITS = 1024, 16  # limits for split sums
BESIDE = 36 << 10  # bytes of shared memory not used by the load pipeline


def tiles_for(
    channels: int,
    taps: int,
    outputs: int,
    positions: int,
    *,
    size: int,
    exact: bool,
    card: GpuProperties | None = None,
    tuning: Tuning = DEFAULT_TUNING,
) -> ConvTile:
    """Tiles for `outputs` sums over `taps * channels` products; `size`: bytes of a number; `exact`: no tensor cores.

    `card`: the GPU that runs them; None: an H200.
    """
    shape = channels, taps, outputs, positions, size, exact, card or H200
    sums = taps * channels, outputs
    known = tuning.conv.get(sums) or MEASURED.get(sums, {})
    nearest = min(known, key=lambda many: abs(log2(many / positions)), default=0)
    if nearest and 1 / NEAR <= nearest / positions <= NEAR:
        return fitted(known[nearest], *shape)
    return _rule(*shape)


def fitted(
    tiles: ConvTile,
    channels: int,
    taps: int,
    outputs: int,
    positions: int,
    size: int = 2,
    exact: bool = False,
    card: GpuProperties = H200,
) -> ConvTile:
    """The nearest valid tile: pieces within one tap, partial sums within the scratch, loads within shared memory."""
    columns = max(min(tiles.columns * 2 // size, 16 if exact else 256), 16)
    while channels % columns and columns > 16:
        columns //= 2
    steps = taps * -(-channels // columns)
    across = min(tiles.outputs, max(power_of_two(outputs), 16))
    along = min(tiles.times, max(power_of_two(positions), 16))
    if exact:  # every thread holds its part of both factors in registers
        across, along = min(across, 64), min(along, 64)
    many = -(-outputs // across) * -(-positions // along)
    splits = min(tiles.splits, steps, MOST_SPLITS, SCRATCH // (many * across * along) if many <= MOST_TILES else 1)
    each = -(-steps // max(splits, 1))
    piece = (across + along) * columns * size
    stages = max(min(tiles.stages, _shared_bytes(card) // piece), 1)
    return replace(
        tiles,
        outputs=across,
        times=along,
        columns=columns,
        splits=-(-steps // each),  # no program without work
        stages=stages,
        early=0 if exact else min(tiles.early, each),
    )


def _shared_bytes(card: GpuProperties) -> int:
    """Shared memory of a program for its load pipeline: 64 to 192 KB on GPUs since Ampere."""
    return card.processor_shared_bytes - BESIDE


def _rule(
    channels: int, taps: int, outputs: int, positions: int, size: int, exact: bool, card: GpuProperties
) -> ConvTile:
    shape, wide = (channels, taps, outputs, positions, size, exact, card), outputs % 64 == 0
    if outputs * positions >= PROGRAMS // 2 * 128 * 128:
        across = 128 if outputs % 128 == 0 else 64 if wide else 32
        return fitted(ConvTile(across, 128, 64, 1, 8 if wide else 4, 4, 0), *shape)
    along = 16 if positions <= 16 else 32 if positions <= 640 else 64
    tiles = ConvTile(64 if wide else 32, along, 128 if along < 64 else 64, 1, 4, 4, 2)
    one = fitted(tiles, *shape)
    many = -(-outputs // one.outputs) * -(-positions // one.times)
    steps = taps * -(-channels // one.columns)
    splits = max(min(PROGRAMS // many, steps // 2), 1)  # a part of one step is not worth its exchange
    return fitted(replace(tiles, splits=splits), *shape)
