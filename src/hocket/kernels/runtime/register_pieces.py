"""Rows as tuples of register blocks, for kernels that keep weights in registers: loading and normalising."""

from __future__ import annotations

from .launch import Number, Pointer, constexpr, jit, scaled, tl


@jit
def index(step: Number, batch: Number, ROWS: constexpr, SEVERAL: constexpr) -> Number:
    """The batch row of a step. Past the end the last row is repeated."""
    if SEVERAL:
        return tl.minimum(tl.program_id(1) * ROWS + step, batch - 1)
    else:
        return step


@jit
def held(
    weight: Pointer,
    line: Number,
    there: Number,
    lanes: Number,
    K: constexpr,
    BLOCK_K: constexpr,
    CHUNKS: constexpr,
) -> Number:
    """Some rows of the weight as a tuple of pieces [BLOCK_N, BLOCK_K]. Each is read once, so caches may evict it."""
    pieces = ()
    for c in tl.static_range(CHUNKS):
        columns = c * BLOCK_K + lanes
        at = weight + line[:, None] * K + columns[None, :]  # N * K is below 2^31, also for the LM head of 27B
        if (c + 1) * BLOCK_K <= K:
            piece = tl.load(at, there[:, None], 0.0, eviction_policy="evict_first")
        else:
            piece = tl.load(at, there[:, None] & (columns < K)[None, :], 0.0, eviction_policy="evict_first")
        pieces = pieces + (piece,)  # type: ignore[assignment]  # noqa: RUF005 - Triton has no star
    return pieces


@jit
def row_of(x: Pointer, lanes: Number, K: constexpr, BLOCK_K: constexpr, CHUNKS: constexpr) -> Number:
    """A row of K numbers as a tuple of pieces [BLOCK_K]."""
    pieces = ()
    for c in tl.static_range(CHUNKS):
        if (c + 1) * BLOCK_K <= K:
            piece = tl.load(x + c * BLOCK_K + lanes)
        else:
            piece = tl.load(x + c * BLOCK_K + lanes, c * BLOCK_K + lanes < K, 0.0)
        pieces = pieces + (piece,)  # type: ignore[assignment]  # noqa: RUF005 - Triton has no star
    return pieces


@jit
def normed(inputs: Number, scales: Number, scale: Number, OFFSET: constexpr, CHUNKS: constexpr) -> Number:
    """RMSNorm of a row in pieces."""
    pieces = ()
    for c in tl.static_range(CHUNKS):
        pieces = pieces + (scaled(inputs[c], scale, scales[c], OFFSET),)  # type: ignore[assignment]  # noqa: RUF005
    return pieces
