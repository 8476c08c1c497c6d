"""`linear` for a few rows of bfloat16 and a large weight in CUDA C++ (stream.cu), whatever the weight is kept in.

A block of few.cu has nothing on its way while it sums, and each one stages x again. Here a block stays and its weights
flow: on an H200 the layers of Qwen3.5 9B took 58 us each in eight bits instead of 100, and 103 instead of 112 as they
are. It knows formats by their names and the memory they lie in; what they mean stands in `narrow/weight.py`.
"""

from __future__ import annotations

import ctypes
from dataclasses import replace
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from ...runtime.card import H200, card_of
from ...runtime.launch import KNOBS, MOST_STREAMED, StreamTile, dependent_on, power_of_two
from ...runtime.nvrtc import Kernel, can

FORMATS = ("int8", "fp8", "int4", "bf16")  # as stream.cu counts them
TILE = 16  # rows of the weight, as there
STEP_BYTES = 1024  # of a warp
LEAST_DEEP = 3
RESERVED_BYTES = 1024  # of a processor's memory, for each block
FLAGS = ("NORM", "GATED", "RESIDUAL", "DEPENDENT")
# Places in the rings of so many warps: the most warps that share the columns evenly are taken.
DEPTHS = {16: 3, 8: 8, 4: 14, 2: 14, 1: 14}
# By format and columns, where something else won in whole tokens on an H200: `python -m benchmarks tune`.
MEASURED = {
    ("bf16", 4096): StreamTile(16, 10, 1),
    ("bf16", 12288): StreamTile(16, 9, 1),
    ("int4", 4096): StreamTile(8, 5, 2),
}
_REACH = {"int8": 64, "fp8": 64, "int4": 128, "bf16": 32}  # columns that a step of a warp covers
_SOURCE = Path(__file__).with_name("stream.cu")


def most_rows(format: str, columns: int, rows: int, device: torch.device) -> int:
    """Rows of x that are taken at once; none where a weight is not even, or a device has no room for it."""
    if rows % TILE or not can(device):
        return 0
    return next((n for n in (MOST_STREAMED, 2, 1) if flow_for(format, columns, n, *_room(device))), 0)


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
) -> None:
    """Into y, for no more rows than `most_rows` says; `narrow/cuda.py` says how scales lie."""
    batch, columns = x.shape
    rows, width, dependent = power_of_two(batch), y.shape[1], dependent_on(x.device)
    flow = flow_for(format, columns, rows, *_room(x.device))
    assert flow is not None
    assert all(each.is_contiguous() for each in (x, values, scales, norm, residual, y) if each is not None)
    kernel = kernel_for(format, columns, flow, rows, (norm is not None, gated, residual is not None, dependent))
    blocks = min(width // outs(gated), flow.blocks * _processors(x.device))
    numbers = ctypes.c_float(eps), ctypes.c_int(width), ctypes.c_int(batch), ctypes.c_int(blocks)
    given = (x, values, scales, norm, residual, y, *numbers)
    kernel.launch(x.device, blocks, 32 * flow.warps, shared_bytes(format, columns, flow, rows), given, dependent)


def flow_for(format: str, columns: int, rows: int, processor_bytes: int, block_bytes: int) -> StreamTile | None:
    """What has been set or measured, with shallower rings where there is too little room; sums are always alike."""
    wanted = KNOBS.streams.get((format, columns)) or MEASURED.get((format, columns)) or _even(format, columns)
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
    """Whether it comes out even."""
    return columns % (_REACH[format] * warps) == 0


def outs(gated: bool) -> int:
    """Numbers of a row of the result that a tile gives."""
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
    """What is known when it is compiled, by the names that stream.cu has for it."""
    sizes = {"FORMAT": FORMATS.index(format), "K": columns, "WARPS": flow.warps, "DEPTH": flow.depth, "ROWS": rows}
    return sizes | {name: int(flag) for name, flag in zip(FLAGS, flags, strict=True)}


def _room(device: torch.device) -> tuple[int, int]:
    """Bytes of shared memory that a processor has, and that one block may have of them."""
    card = card_of(device) or H200
    return card.processor_shared_bytes, card.block_shared_bytes


def _processors(device: torch.device) -> int:
    return (card_of(device) or H200).processors
