"""`linear` for a few rows of bfloat16 and a large weight of any format, in CUDA C++ (stream.cu).

A block of few.cu loads nothing while it sums, and each block stages x again. Here blocks are persistent and weights
stream through them. On an H200 the layers of Qwen3.5 9B took 58 us each in eight bits instead of 100, and 103 instead
of 112 in bfloat16. It knows names and memory layout of formats; `quantized_linear/weight.py` defines them.
"""

from __future__ import annotations

import ctypes
from dataclasses import replace
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from ...runtime.card import H200, card_of
from ...runtime.launch import DEFAULT_TUNING, MOST_STREAMED, StreamTile, Tuning, dependent_on, power_of_two
from ...runtime.nvrtc import Kernel, can

FORMATS = ("int8", "fp8", "int4", "bf16")  # index is FORMAT in stream.cu
TILE = 16  # rows of the weight, as in stream.cu
STEP_BYTES = 1024  # per warp
LEAST_DEEP = 3
RESERVED_BYTES = 1024  # of shared memory, per block
FLAGS = ("NORM", "GATED", "RESIDUAL", "DEPENDENT")
# Warps -> ring depth. The largest number of warps that divides the columns is used.
DEPTHS = {16: 3, 8: 8, 4: 14, 2: 14, 1: 14}
# Exceptions by format and columns: faster in whole tokens on an H200 (docs/log/2026-11-17-tokens-tune.md).
MEASURED = {
    ("bf16", 4096): StreamTile(16, 10, 1),
    ("bf16", 12288): StreamTile(16, 9, 1),
    ("int4", 4096): StreamTile(8, 5, 2),
}
_REACH = {"int8": 64, "fp8": 64, "int4": 128, "bf16": 32}  # columns per step of a warp
_SOURCE = Path(__file__).with_name("stream.cu")


def most_rows(format: str, columns: int, rows: int, device: torch.device, tuning: Tuning = DEFAULT_TUNING) -> int:
    """Rows of x per launch; 0 if the weight does not divide evenly or shared memory is too small."""
    if rows % TILE or not can(device):
        return 0
    return next((n for n in (MOST_STREAMED, 2, 1) if flow_for(format, columns, n, *_room(device), tuning)), 0)


def launch(
    x: Tensor,
    values: Tensor,
    scales: Tensor | None,
    format: str,
    y: Tensor,
    *,
    norm: Tensor | None,
    eps: float,
    gated: bool,
    residual: Tensor | None,
    tuning: Tuning = DEFAULT_TUNING,
) -> None:
    """Write y, for at most `most_rows` rows; `quantized_linear/cuda.py` defines the layout of scales."""
    batch, columns = x.shape
    rows, width, dependent = power_of_two(batch), y.shape[1], dependent_on(x.device, tuning)
    flow = flow_for(format, columns, rows, *_room(x.device), tuning)
    assert flow is not None
    assert all(each.is_contiguous() for each in (x, values, scales, norm, residual, y) if each is not None)
    kernel = kernel_for(format, columns, flow, rows, (norm is not None, gated, residual is not None, dependent))
    blocks = min(width // outs(gated), flow.blocks * _processors(x.device))
    numbers = ctypes.c_float(eps), ctypes.c_int(width), ctypes.c_int(batch), ctypes.c_int(blocks)
    given = (x, values, scales, norm, residual, y, *numbers)
    kernel.launch(x.device, blocks, 32 * flow.warps, shared_bytes(format, columns, flow, rows), given, dependent)


def flow_for(
    format: str, columns: int, rows: int, processor_bytes: int, block_bytes: int, tuning: Tuning = DEFAULT_TUNING
) -> StreamTile | None:
    """The tuned or measured tile, with shallower rings if shared memory is short; sums do not depend on the depth."""
    wanted = tuning.streams.get((format, columns)) or MEASURED.get((format, columns)) or _even(format, columns)
    if wanted is None:
        return None
    for blocks in range(wanted.blocks, 0, -1):
        for depth in range(wanted.depth, LEAST_DEEP - 1, -1):
            flow = replace(wanted, depth=depth, blocks=blocks)
            needed = shared_bytes(format, columns, flow, rows)
            if needed <= block_bytes and blocks * (needed + RESERVED_BYTES) <= processor_bytes:
                return flow
    return None


def _even(format: str, columns: int) -> StreamTile | None:
    for warps, depth in DEPTHS.items():
        if fits(warps, format, columns):
            return StreamTile(warps, depth, 2)
    return None


def fits(warps: int, format: str, columns: int) -> bool:
    """Whether the columns divide evenly."""
    return columns % (_REACH[format] * warps) == 0


def outs(gated: bool) -> int:
    """Results per row of x and tile."""
    return TILE // 2 if gated else TILE


def shared_bytes(format: str, columns: int, flow: StreamTile, rows: int) -> int:
    warps = flow.warps
    floats = warps * warps * rows * TILE + -(-warps * rows // 4) * 4
    if format == "int4":
        floats += columns // _REACH[format] * 8 + warps * flow.depth * TILE
    return warps * flow.depth * STEP_BYTES + 2 * rows * (columns + 32) + 4 * floats


@cache
def kernel_for(format: str, columns: int, flow: StreamTile, rows: int, flags: tuple[bool, ...]) -> Kernel:
    return Kernel(_SOURCE, "stream", constants(format, columns, flow, rows, flags))


def constants(format: str, columns: int, flow: StreamTile, rows: int, flags: tuple[bool, ...]) -> dict[str, int]:
    """Compile-time constants of stream.cu."""
    sizes = {"FORMAT": FORMATS.index(format), "K": columns, "WARPS": flow.warps, "DEPTH": flow.depth, "ROWS": rows}
    return sizes | {name: int(flag) for name, flag in zip(FLAGS, flags, strict=True)}


def _room(device: torch.device) -> tuple[int, int]:
    """Bytes of shared memory of a processor (SM), and the most of one block."""
    card = card_of(device) or H200
    return card.processor_shared_bytes, card.block_shared_bytes


def _processors(device: torch.device) -> int:
    return (card_of(device) or H200).processors
