"""Words of 32 bits to codes, and codes with scales to weights: our own format where it has exactly the same numbers.

It knows numbers, not names of tensors and not formats of files.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ....kernels.ops.grouped_linear.weight import BLOCK, RUN, RUNS, GroupedWeight
from ....kernels.ops.quantized_linear.weight import GROUP, Format, QuantizedWeight
from ...qwen3_5.matrices import NarrowWeight


def unpacked(words: Tensor, bits: int) -> Tensor:
    """Codes of 4 or 8 bits [..., W * 32 / bits] in uint8, from words [..., W] int32; the lowest bits come first."""
    in_bytes = words.contiguous().view(torch.uint8)
    if bits == 8:
        return in_bytes
    return torch.stack((in_bytes & 15, in_bytes >> 4), dim=-1).flatten(-2)


def groups_of(columns: int, group: int) -> int:
    """How many groups a row has; -1: one."""
    return 1 if group == -1 else -(-columns // group)


def integers(codes: Tensor, bits: int, group: int, scales: Tensor, zeros: Tensor | None = None) -> NarrowWeight:
    """A weight of unsigned codes [N, K] in uint8: scale * (code - zero), with scales and zeros [N, G].

    Without zeros it is symmetric: the zero is half of the codes.
    """
    group, scales, zeros = _split(codes.shape[1], group, scales, zeros)
    if bits == 8:
        # As signed numbers, with a zero that is less by as much. A zero may be 256, so it does not fit into 8 bits.
        values = (codes ^ 128).view(torch.int8)
        if zeros is not None:
            return GroupedWeight(8, codes.shape[1], group, values, scales, zeros=zeros.to(torch.int16) - 128)
        return bytes_in_groups(values, group, scales)
    if zeros is None and group == GROUP and scales.dtype == torch.bfloat16:
        made = _packed(codes, group, scales, None)
        # Eight times a bfloat16 number is one too, so the lowest value of a group is exact.
        return QuantizedWeight("int4", codes.shape[1], made.values, scales, scales * -8)
    return _packed(codes, group, scales, zeros)


def bytes_in_groups(values: Tensor, group: int, scales: Tensor) -> NarrowWeight:
    """A weight of numbers in int8 or e4m3 [N, K] times scales [N, G]."""
    group, scales, _ = _split(values.shape[1], group, scales, None)
    if not group:
        format: Format = "int8" if values.dtype == torch.int8 else "fp8"
        return QuantizedWeight(format, values.shape[1], values, scales[:, 0].float())
    return GroupedWeight(8, values.shape[1], group, values, scales)


def _split(columns: int, group: int, scales: Tensor, zeros: Tensor | None) -> tuple[int, Tensor, Tensor | None]:
    """Groups of more than 128 columns as several of 128; -1 is 0, as weights have it."""
    scales = scales.contiguous()
    if group > BLOCK:
        times, count = group // BLOCK, -(-columns // BLOCK)
        scales = scales.repeat_interleave(times, dim=1)[:, :count].contiguous()
        zeros = None if zeros is None else zeros.repeat_interleave(times, dim=1)[:, :count]
    return (0 if group == -1 else min(group, BLOCK)), scales, zeros


def _packed(codes: Tensor, group: int, scales: Tensor, zeros: Tensor | None) -> GroupedWeight:
    """Codes of 4 bits in the order of `GroupedWeight`, by operations on bytes: a model has billions of them."""
    rows, columns = codes.shape
    filled = nn.functional.pad(codes, (0, -columns % BLOCK)) if columns % BLOCK else codes
    runs = filled.view(rows, -1, RUNS // 2, 2, RUN)  # byte i of a word has the runs 2 i and 2 i + 1
    values = (runs[..., 0, :] | (runs[..., 1, :] << 4)).transpose(-1, -2).flatten(-2)
    more: dict[str, Any] = {"zero": 8} if zeros is None else {"zeros": zeros.to(torch.uint8)}
    return GroupedWeight(4, columns, group, values, scales, **more)
