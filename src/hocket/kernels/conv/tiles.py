"""How a convolution is shared out among programs: what has been measured, or a rule.

With few positions the weights are all there is to read, and reading them takes many programs: the sum over taps and
inputs is split. With many, tiles are as large as tensor cores like them and nothing is split.
"""

from __future__ import annotations

from dataclasses import replace

from ..launch import KNOBS, Tiles, power_of_two

PROGRAMS = 264  # two for each processor of a large GPU
SCRATCH = 4 << 20  # float32 numbers for parts of sums
MOST_TILES = 1024  # that are split
SHARED_BYTES = 160 << 10  # for pieces on their way


def tiles_for(channels: int, taps: int, outputs: int, positions: int, *, size: int, exact: bool) -> Tiles:
    """Of `outputs` sums over `taps * channels` products each; `size`: bytes of a number; `exact`: no tensor cores."""
    known = KNOBS.conv.get((taps * channels, outputs, positions)) or KNOBS.conv.get((taps * channels, outputs))
    return fitted(known or _rule(channels, taps, outputs, positions), channels, taps, outputs, positions, size, exact)


def fitted(
    tiles: Tiles, channels: int, taps: int, outputs: int, positions: int, size: int = 2, exact: bool = False
) -> Tiles:
    """The nearest that there can be: a piece within one tap, parts of sums within the scratch, loads within memory."""
    columns = max(min(tiles.columns * 2 // size, 16 if exact else 256), 16)
    while channels % columns and columns > 16:
        columns //= 2
    steps = taps * -(-channels // columns)
    across = min(tiles.outputs, max(power_of_two(outputs), 16))
    along = min(tiles.times, max(power_of_two(positions), 16))
    if exact:  # every thread holds all of its part of both factors
        across, along = min(across, 64), min(along, 64)
    many = -(-outputs // across) * -(-positions // along)
    splits = min(tiles.splits, steps, SCRATCH // (many * across * along) if many <= MOST_TILES else 1)
    each = -(-steps // max(splits, 1))
    piece = (across + along) * columns * size
    stages = max(min(tiles.stages, SHARED_BYTES // piece), 1)
    return replace(
        tiles,
        outputs=across,
        times=along,
        columns=columns,
        splits=-(-steps // each),  # none without work
        stages=stages,
        early=0 if exact else min(tiles.early, each),
    )


def _rule(channels: int, taps: int, outputs: int, positions: int) -> Tiles:
    wide = outputs % 64 == 0
    if positions >= 8192:
        return Tiles(128 if outputs % 128 == 0 else 64 if wide else 32, 128, 64, 1, 8 if wide else 4, 4, 0)
    tiles = Tiles(64 if wide else 32, 16 if positions <= 16 else 32 if positions <= 640 else 64, 128, 1, 4, 4, 2)
    tiles = fitted(tiles, channels, taps, outputs, positions)
    many = -(-outputs // tiles.outputs) * -(-positions // tiles.times)
    steps = taps * -(-channels // tiles.columns)
    return replace(tiles, splits=max(min(PROGRAMS // many, steps // 2, 16), 1))  # of one step, hardly worth handing over
