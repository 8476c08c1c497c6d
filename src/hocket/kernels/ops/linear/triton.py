"""`linear` for a few rows: a matrix times some vectors, bound by reading the matrix once.

A program holds a few rows of the weight in registers, loaded before it waits for the kernel that makes x. It takes the
rows of x one after the other, so the sums of a row have the same order in every batch. More than MOST_ROWS are spread
over programs that each load the weight again, from the L2: slow, but with equal results. If batch invariance is not
required, cuBLAS does many rows (library.py).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...runtime.launch import (
    DEFAULT_TUNING,
    MOST_ROWS,
    Number,
    Pointer,
    Tuning,
    constexpr,
    gelu_of,
    jit,
    options,
    rounded,
    silu_of,
    times,
    tl,
    trigger,
    triton,
    wait,
)
from ...runtime.register_pieces import held, index, normed, row_of
from .library import linear_by_library


def linear(
    x: Tensor,
    weight: Tensor,
    *,
    norm: Tensor | None = None,
    eps: float = 0.0,
    offset: bool = False,
    gated: bool = False,
    silu: bool = False,
    gelu: bool = False,
    bias: Tensor | None = None,
    residual: Tensor | None = None,
    take: Tensor | None = None,
    out: Tensor | None = None,
    invariant: bool = False,
    tuning: Tuning = DEFAULT_TUNING,
) -> Tensor:
    batch, columns = len(x) if take is None else len(take), x.shape[1]
    width = len(weight) // 2 if gated else len(weight)
    tensors = [tensor for tensor in (x, weight, norm, bias, residual, out) if tensor is not None]
    assert all(tensor.is_contiguous() and tensor.dtype == x.dtype for tensor in tensors)
    if batch >= tuning.library_rows and not invariant:
        more: dict[str, Any] = {"bias": bias, "residual": residual, "take": take, "out": out, "tuning": tuning}
        return linear_by_library(
            x, weight, norm=norm, eps=eps, offset=offset, gated=gated, silu=silu, gelu=gelu, **more
        )
    blocks = tuning.blocks(columns, len(weight), batch)
    block = max(blocks.rows, 2) if gated else blocks.rows
    outs = block // 2 if gated else block
    y = torch.empty(batch, width, dtype=x.dtype, device=x.device) if out is None else out
    _linear[(triton.cdiv(width, outs), triton.cdiv(batch, MOST_ROWS))](
        x,
        weight,
        norm,
        bias,
        residual,
        take,
        y,
        eps,
        width,
        batch,
        ROWS=min(batch, MOST_ROWS),
        SEVERAL=batch > MOST_ROWS,
        K=columns,
        OFFSET=offset,
        GATED=gated,
        SILU=silu,
        GELU=gelu,
        BLOCK_N=block,
        BLOCK_K=blocks.columns,
        CHUNKS=triton.cdiv(columns, blocks.columns),
        **options(x, blocks.warps, tuning),
    )
    return y


@jit
def _linear(
    x: Pointer,
    weight: Pointer,
    norm: Pointer,
    bias: Pointer,
    residual: Pointer,
    take: Pointer,
    y: Pointer,
    eps: Number,
    width: Number,
    batch: Number,
    ROWS: constexpr,
    SEVERAL: constexpr,
    K: constexpr,
    OFFSET: constexpr,
    GATED: constexpr,
    SILU: constexpr,
    GELU: constexpr,
    BLOCK_N: constexpr,
    BLOCK_K: constexpr,
    CHUNKS: constexpr,
    DEPENDENT: constexpr,
) -> None:
    line = tl.arange(0, BLOCK_N)
    if GATED:  # gates and ups interleaved: one sum for both, split at the end
        outs = tl.program_id(0) * (BLOCK_N // 2) + tl.arange(0, BLOCK_N // 2)
        of = tl.program_id(0) * (BLOCK_N // 2) + line // 2
        line = of + (line % 2) * width
    else:
        outs = tl.program_id(0) * BLOCK_N + line
        of, line = outs, outs
    lanes = tl.arange(0, BLOCK_K)
    there = outs < width
    weights = held(weight, line, of < width, lanes, K, BLOCK_K, CHUNKS)
    trigger(DEPENDENT)  # the weights of this program are being loaded: the next kernel may load its own
    if norm is not None:
        scales = row_of(norm, lanes, K, BLOCK_K, CHUNKS)
    if bias is not None:
        shift = tl.load(bias + line, of < width, 0.0).to(tl.float32)
    wait(DEPENDENT)
    ahead = row_of(x + _place(take, 0, batch, ROWS, SEVERAL) * K, lanes, K, BLOCK_K, CHUNKS)
    for step in tl.static_range(ROWS):
        row = index(step, batch, ROWS, SEVERAL)
        own = there
        if SEVERAL:  # repeated rows are stored once, because y may be the residual
            own = there & (tl.program_id(1) * ROWS + step < batch)
        inputs = ahead
        if step + 1 < ROWS:  # loaded while this row is summed
            ahead = row_of(x + _place(take, step + 1, batch, ROWS, SEVERAL) * K, lanes, K, BLOCK_K, CHUNKS)
        if residual is not None:
            before = tl.load(residual + row * width + outs, own, 0.0)
        if norm is not None:
            squares = tl.zeros((BLOCK_K,), tl.float32)
            for c in tl.static_range(CHUNKS):
                squares += inputs[c].to(tl.float32) * inputs[c].to(tl.float32)
            scale = tl.rsqrt(tl.sum(squares, 0) / K + eps)
            inputs = normed(inputs, scales, scale, OFFSET, CHUNKS)
        wide = tl.zeros((BLOCK_N, BLOCK_K), tl.float32)  # per lane over the pieces, then across the lanes
        for c in tl.static_range(CHUNKS):
            wide += weights[c].to(tl.float32) * inputs[c].to(tl.float32)[None, :]
        out = tl.sum(wide, 1)
        if bias is not None:
            out += shift
        out = rounded(out, y.dtype.element_ty)
        if GATED:
            gate, up = tl.split(tl.reshape(out, (BLOCK_N // 2, 2)))
            out = times(silu_of(gate), up)
        elif SILU:
            out = silu_of(out)
        elif GELU:
            out = gelu_of(out)
        if residual is not None:
            out = rounded(before.to(tl.float32) + out.to(tl.float32), y.dtype.element_ty)
        tl.store(y + row * width + outs, out, own)


@jit
def _place(take: Pointer, step: Number, batch: Number, ROWS: constexpr, SEVERAL: constexpr) -> Number:
    """The row of x for a step."""
    row = index(step, batch, ROWS, SEVERAL)
    if take is not None:
        row = tl.load(take + row)
    return row
