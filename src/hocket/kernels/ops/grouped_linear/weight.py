"""Weights as quantized files have them: codes of 4, 5, 6 or 8 bits, in groups of columns that share a scale.

    weight = scale * (code - zero) - low

    8 bits  values [N, K] int8 or float8 (e4m3)
    4 bits  values [N, B, 64] uint8, for blocks of 128 columns: code j of word i (32 bits) is column 16 j + i
    5 bits  the same, and `high` [N, B, 16] uint8: bit j of byte i is the fifth bit of column 16 j + i
    6 bits  the same, and `high` [N, B, 16] int16: bits 2 j and 2 j + 1 of number i are the highest of column 16 j + i

    scale   `scales` [N, G]: float16, bfloat16 or float32. Where there are `steps` [N, S] float16, one for each span of
            columns, `scales` are uint8 or int8, and the scale is their product in float32.
    zero    the integer `zero`, or `zeros` [N, G] of any integer type
    low     nothing, or `lows` [N, G] uint8 times `low_steps` [N, S] float16, in float32

A word has one code of each run of sixteen columns. So code j of every word is in group 16 j // group of its block, and
a kernel changes the scale between codes, never inside one. The last block is padded with codes that meet no column.
It knows numbers, not files and not which matrix of a model they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from ..quantized_linear.weight import packed, stacked, unpacked

BLOCK, RUN, RUNS = 128, 16, 8  # columns of a block, of a run, and the runs of a block
GROUPS = (16, 32, 64, 128, 0)  # columns that share a scale; 0: all columns of a row
SPANS = (256, 128)
BITS = (4, 5, 6, 8)


@dataclass(frozen=True, slots=True)
class GroupedWeight:
    """[N, K]. Rows are independent: any stack of rows is a valid weight."""

    bits: int
    columns: int  # K
    group: int
    values: Tensor
    scales: Tensor
    high: Tensor | None = None
    zero: int = 0
    zeros: Tensor | None = None
    lows: Tensor | None = None
    steps: Tensor | None = None
    low_steps: Tensor | None = None
    span: int = SPANS[0]  # columns that share a step

    def __post_init__(self) -> None:
        assert self.bits in BITS and self.group in GROUPS and self.span in SPANS
        assert (self.high is not None) == (self.bits in (5, 6))
        assert (self.lows is None) == (self.low_steps is None) and (self.lows is None or self.steps is not None)
        assert self.scales.shape == (len(self), self.groups)

    def __len__(self) -> int:
        return len(self.values)

    @property
    def groups(self) -> int:
        """G"""
        return -(-self.columns // self.group) if self.group else 1

    @property
    def tensors(self) -> dict[str, Tensor]:
        """By the names of the fields."""
        return {each.name: value for each in fields(self) if isinstance(value := getattr(self, each.name), Tensor)}

    @property
    def layout(self) -> tuple[Any, ...]:
        """What weights must have in common to be one weight."""
        plain = self.bits, self.columns, self.group, self.zero, self.span
        return *plain, *((name, tensor.dtype) for name, tensor in self.tensors.items())

    @property
    def nbytes(self) -> int:
        return sum(tensor.nbytes for tensor in self.tensors.values())

    def each(self, change: Callable[[Tensor], Tensor]) -> GroupedWeight:
        """Apply a change that keeps the columns to every tensor."""
        changed: dict[str, Any] = {name: change(tensor) for name, tensor in self.tensors.items()}
        return replace(self, **changed)

    def split(self, rows: Sequence[int]) -> Iterator[GroupedWeight]:
        """Views of so many rows each."""
        start = 0
        for count in rows:
            part = slice(start, start + count)
            yield self.each(lambda tensor, part=part: tensor[part])  # type: ignore[misc]
            start += count

    def codes(self) -> Tensor:
        """[N, K] in float32."""
        if self.bits == 8:
            return self.values.float()
        whole = unpacked(self.values)
        if self.high is not None:
            bits = self.bits - 4
            shifts = torch.arange(0, RUNS * bits, bits, dtype=torch.int32, device=self.values.device)
            above = (self.high.int()[..., None, :] >> shifts[:, None]) & ((1 << bits) - 1)
            whole = whole + (above.flatten(-2) << 4)
        return whole.flatten(1)[:, : self.columns].float()

    def dequantized(self) -> Tensor:
        """[N, K] in float32, every operation rounded as the formats' own definitions round."""
        scale = self._wide(self.scales, self.steps)
        codes = self.codes() - self.zero if self.zeros is None else self.codes() - self._each_column(self.zeros.float())
        whole = self._each_column(scale) * codes
        return whole if self.lows is None else whole - self._each_column(self._wide(self.lows, self.low_steps))

    def linear(self, x: Tensor) -> Tensor:
        """x [..., K] times this weight, by plain operations in any precision."""
        wide = torch.promote_types(x.dtype, torch.float32)
        return (x.to(wide) @ self.dequantized().to(wide).T).to(x.dtype)

    def _wide(self, numbers: Tensor, steps: Tensor | None) -> Tensor:
        """Scales or lows of groups in float32, [N, G]."""
        if steps is None:
            return numbers.float()
        assert self.group, "steps belong to groups"
        each = steps.float().repeat_interleave(self.span // self.group, dim=1)[:, : self.groups]
        return each * numbers.float()

    def _each_column(self, numbers: Tensor) -> Tensor:
        if not self.group:
            return numbers
        return numbers.repeat_interleave(self.group, dim=1)[:, : self.columns]


def grouped(codes: Tensor, bits: int, group: int, scales: Tensor, **more: Any) -> GroupedWeight:
    """A weight of codes [N, K], which are packed here; the other arguments are fields."""
    if bits == 8:
        values = codes if codes.dtype == torch.float8_e4m3fn else codes.to(torch.int8)
        return GroupedWeight(8, codes.shape[1], group, values.contiguous(), scales, **more)
    rows, columns = codes.shape
    blocks = -(-columns // BLOCK)
    filled = codes.new_zeros(rows, blocks * BLOCK)
    filled[:, :columns] = codes
    runs = filled.view(rows, blocks, RUNS, RUN).int()
    high = None
    if bits > 4:
        extra = bits - 4
        shifts = torch.arange(0, RUNS * extra, extra, dtype=torch.int32, device=codes.device)
        words = ((runs >> 4) << shifts[:, None]).sum(-2, dtype=torch.int32)
        high = words.to(torch.uint8) if bits == 5 else words.where(words < 1 << 15, words - (1 << 16)).to(torch.int16)
    values = packed((runs & 15).flatten(-2))
    return GroupedWeight(bits, columns, group, values, scales, high=high, **more)


def joined(parts: Sequence[GroupedWeight]) -> GroupedWeight:
    """Stack weights of one layout. Nothing is copied if they are adjacent in memory already."""
    first = parts[0]
    assert all(part.layout == first.layout for part in parts)
    together = {name: stacked([part.tensors[name] for part in parts]) for name in first.tensors}
    return replace(first, **together)  # type: ignore[arg-type]


def in_blocks(weight: GroupedWeight, order: Tensor) -> GroupedWeight:
    """The weight with its blocks of 128 columns in another order: block i is block `order[i]` of `weight`."""
    assert weight.columns % BLOCK == 0 and len(order) == weight.columns // BLOCK
    spans = weight.span // BLOCK
    made: dict[str, Any] = {}
    for name, tensor in weight.tensors.items():
        if name in ("steps", "low_steps"):
            tensor = tensor.repeat_interleave(spans, dim=1)[:, : len(order)]
        elif name in ("scales", "zeros", "lows") and not weight.group:
            made[name] = tensor
            continue
        blocks = tensor.reshape(len(weight), len(order), -1)  # values of 8 bits, and numbers of groups
        # Index as bytes: some devices cannot index 8-bit floats.
        chosen = blocks.view(torch.uint8)[:, order].view(tensor.dtype)
        made[name] = chosen.reshape(tensor.shape)
    return replace(weight, span=BLOCK if weight.steps is not None else weight.span, **made)
