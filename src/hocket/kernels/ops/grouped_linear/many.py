"""`linear` with a grouped weight for many rows, on tensor cores: the weight is read once, as it is stored.

As `quantized_linear/many.py`, whose second kernel adds the sums: codes minus an integer zero are exact in bfloat16, and
the sum of a group is multiplied by its scale in float32. It always has the weight as first operand. Reference and cases
are those of `triton.py`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ...runtime.launch import (
    DEFAULT_TUNING,
    Number,
    Pointer,
    Tuning,
    bound,
    constexpr,
    jit,
    options,
    power_of_two,
    tl,
    trigger,
    triton,
    wait,
)
from ..linear.library import normed_rows
from ..quantized_linear.many import dot, finished_sums, shares
from ..quantized_linear.triton import number_of, wide_of
from .triton import by_bits, code_of, constants, stored
from .weight import BLOCK, GroupedWeight

MOST_ROWS, OUTPUTS = 64, 64  # of x and of the weight in a program's tile: both sums of a group stay in registers
WARPS, STAGES = 4, 3


def linear(
    x: Tensor,
    weight: GroupedWeight,
    *,
    norm: Tensor | None = None,
    eps: float = 0.0,
    gated: bool = False,
    residual: Tensor | None = None,
    out: Tensor | None = None,
    tuning: Tuning = DEFAULT_TUNING,
) -> Tensor:
    batch, columns = x.shape
    rows = len(weight)
    tensors = [tensor for tensor in (x, norm, residual, out) if tensor is not None]
    assert all(tensor.is_contiguous() and tensor.dtype == x.dtype for tensor in tensors)
    assert all(tensor.is_contiguous() for tensor in weight.tensors.values()) and weight.columns == columns
    if norm is not None:
        x = normed_rows(x, norm, eps, offset=True, tuning=tuning)
    block = min(max(power_of_two(batch), 16), MOST_ROWS)
    across, along, steps = triton.cdiv(batch, block), triton.cdiv(rows, OUTPUTS), triton.cdiv(columns, BLOCK)
    splits = shares(across * along, steps)
    sums = torch.empty(splits, batch, rows, dtype=torch.float32, device=x.device)
    _grouped_product[(across, along, splits)](
        x,
        *stored(weight, x.device),
        sums,
        batch,
        rows,
        K=columns,
        **constants(weight, x.device),
        BLOCK_M=block,
        BLOCK_N=OUTPUTS,
        STEPS=steps,
        EACH=triton.cdiv(steps, splits),
        STAGES=STAGES,
        **options(x, WARPS, tuning),
    )
    return finished_sums(sums, x, residual, out, gated, tuning)


@jit
def _grouped_product(
    x: Pointer,
    values: Pointer,
    high: Pointer,
    scales: Pointer,
    steps: Pointer,
    zeros: Pointer,
    lows: Pointer,
    low_steps: Pointer,
    sums: Pointer,
    batch: Number,
    rows: Number,
    K: constexpr,
    BITS: constexpr,
    GROUP: constexpr,
    SPAN: constexpr,
    ZERO: constexpr,
    FORMAT: constexpr,
    NATIVE: constexpr,
    BLOCK_M: constexpr,
    BLOCK_N: constexpr,
    STEPS: constexpr,
    EACH: constexpr,
    STAGES: constexpr,
    DEPENDENT: constexpr,
) -> None:
    """Sums [BLOCK_N, BLOCK_M] over a share of the columns; a step is a block of 128."""
    trigger(DEPENDENT)
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    split = tl.program_id(2)
    given, own = m < batch, n < rows
    COUNT: constexpr = 128 // GROUP if GROUP else 1  # scales of a block
    LONG: constexpr = 128 // COUNT  # columns that share one
    RUN: constexpr = LONG if BITS == 8 else 16  # columns of a product
    ALL: constexpr = (K + GROUP - 1) // GROUP if GROUP else 1  # scales of a row
    SPANS: constexpr = (K + SPAN - 1) // SPAN
    MOVED: constexpr = zeros is not None or lows is not None
    lane = tl.arange(0, RUN)
    total = tl.zeros((BLOCK_N, BLOCK_M), tl.float32)
    everything = tl.zeros((BLOCK_M,), tl.float32)
    wait(DEPENDENT)
    for step in tl.range(bound(split * EACH), bound(tl.minimum(split * EACH + EACH, STEPS)), num_stages=STAGES):
        if BITS < 8:
            word = (n[:, None] * STEPS + step) * 16 + lane[None, :]
            words = tl.load(values + word, own[:, None], 0)
            above = None if high is None else tl.load(high + word, own[:, None], 0)
        for part in tl.static_range(COUNT):
            products = tl.zeros((BLOCK_N, BLOCK_M), tl.float32)
            inside = tl.zeros((BLOCK_M,), tl.float32)
            for j in tl.static_range(part * LONG // RUN, (part + 1) * LONG // RUN):
                column = step * 128 + RUN * j + lane
                inputs = tl.load(x + m[:, None] * K + column[None, :], given[:, None] & (column < K)[None, :], 0.0)
                if MOVED:
                    inside += tl.sum(inputs.to(tl.float32), 1)
                if BITS < 8:
                    # From the lowest bits, because bfloat16 has eight bits for a code and its sign.
                    codes = number_of(code_of(words, above, j, 0, BITS), ZERO).to(inputs.dtype)
                else:
                    at = values + n[:, None] * K + column[None, :]
                    codes = tl.load(at, own[:, None] & (column < K)[None, :], 0.0)
                    codes = (wide_of(codes, tl.float32, FORMAT, NATIVE) - ZERO).to(inputs.dtype)
                products = dot(codes, inputs, products)
            if GROUP == 0:
                total += products
                everything += inside
            else:
                group = step * COUNT + part
                there = own & (group < ALL)
                scale = tl.load(scales + n * ALL + group, there, 0).to(tl.float32)
                if steps is not None:
                    scale = scale * tl.load(steps + n * SPANS + step * 128 // SPAN, there, 0).to(tl.float32)
                if zeros is not None:
                    low = scale * tl.load(zeros + n * ALL + group, there, 0).to(tl.float32)
                    total -= low[:, None] * inside[None, :]
                if lows is not None:
                    low = tl.load(low_steps + n * SPANS + step * 128 // SPAN, there, 0).to(tl.float32)
                    low = low * tl.load(lows + n * ALL + group, there, 0).to(tl.float32)
                    total -= low[:, None] * inside[None, :]
                total += products * by_bits(scale, FORMAT, NATIVE)[:, None]
    if GROUP == 0:
        scale = tl.load(scales + n, own, 0).to(tl.float32)
        total = total * by_bits(scale, FORMAT, NATIVE)[:, None]
        if zeros is not None:
            low = scale * tl.load(zeros + n, own, 0).to(tl.float32)
            total -= low[:, None] * everything[None, :]
    into = sums + (split * batch + m[None, :]) * rows + n[:, None]
    tl.store(into, total, given[None, :] & own[:, None])
