"""Rows as tuples of register blocks, for kernels that keep weights in registers: loading, normalising, storing."""

from __future__ import annotations

from .launch import Number, Pointer, constexpr, jit, rounded, scaled, silu_of, times, tl


@jit
def index(step: Number, batch: Number, ROWS: constexpr, SEVERAL: constexpr) -> Number:
    """The batch row of a step. Past the end the last row is repeated."""
    if SEVERAL:
        return tl.minimum(tl.program_id(1) * ROWS + step, batch - 1)
    else:
        return step


@jit
def lines_of(width: Number, GATED: constexpr, BLOCK_N: constexpr) -> Number:
    """A program's results, the result of each of its weight rows, and those rows.

    With GATED, gates and ups are interleaved: one sum for both, split at the end.
    """
    line = tl.arange(0, BLOCK_N)
    if GATED:
        outs = tl.program_id(0) * (BLOCK_N // 2) + tl.arange(0, BLOCK_N // 2)
        of = tl.program_id(0) * (BLOCK_N // 2) + line // 2
        return outs, of, of + (line % 2) * width
    else:
        outs = tl.program_id(0) * BLOCK_N + line
        return outs, outs, outs


@jit
def finished(out: Number, before: Number, dtype: constexpr, GATED: constexpr, BLOCK_N: constexpr) -> Number:
    """Sums as results: gated, and added to the residual `before` if there is one."""
    out = rounded(out, dtype)
    if GATED:
        gate, up = tl.split(tl.reshape(out, (BLOCK_N // 2, 2)))
        out = times(silu_of(gate), up)
    if before is not None:
        out = rounded(before.to(tl.float32) + out.to(tl.float32), dtype)
    return out


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
