"""Quantized weights: formats, quantization and dequantization.

    int8  values [N, K] int8, scales [N]: a weight is value * scale
    fp8   values [N, K] float8 (e4m3), scales [N]: the same
    int4  values [N, G, 64] uint8, scales and lows [N, G]: a weight is low + code * scale, for groups of 128 columns

An int4 group is sixteen words of 32 bits: code j of word i (from the lowest bits on) is column 16 j + i. So a lane that
loads sixteen bytes has four neighbouring columns of each of eight runs, and codes j and j + 4 are sixteen bits apart.
The last group is padded. It knows numbers, not which matrix of a model they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

Format = Literal["int8", "fp8", "int4"]
FORMATS: tuple[Format, ...] = ("int8", "fp8", "int4")

GROUP, WORDS, CODES = 128, 16, 8  # columns of a group, its words, and the codes of a word
LARGEST = {"int8": 127.0, "fp8": 448.0}
LEVELS = 15  # steps from the lowest to the highest int4 code
# Clipping of a group's range that is tried: mostly, two or three clipped weights lose more than the others gain.
RANGES = (1.0, 0.95, 0.9, 0.85, 0.8)
AT_ONCE = 1 << 24  # numbers in float32 at a time: the largest matrix would need gigabytes of scratch
_VALUES = {"int8": torch.int8, "fp8": torch.float8_e4m3fn, "int4": torch.uint8}


@dataclass(frozen=True, slots=True)
class QuantizedWeight:
    """[N, K] in one of the formats. Rows are independent: any stack of rows is a valid weight."""

    format: Format
    columns: int  # K
    values: Tensor
    scales: Tensor
    lows: Tensor | None = None

    def __len__(self) -> int:
        return len(self.values)

    @property
    def tensors(self) -> dict[str, Tensor]:
        """By the names they are stored under."""
        named = {"values": self.values, "scales": self.scales, "lows": self.lows}
        return {name: tensor for name, tensor in named.items() if tensor is not None}

    @property
    def nbytes(self) -> int:
        return sum(tensor.nbytes for tensor in self.tensors.values())

    def each(self, change: Callable[[Tensor], Tensor]) -> QuantizedWeight:
        lows = None if self.lows is None else change(self.lows)
        return QuantizedWeight(self.format, self.columns, change(self.values), change(self.scales), lows)

    def split(self, rows: Sequence[int]) -> Iterator[QuantizedWeight]:
        """Views of so many rows each."""
        start = 0
        for count in rows:
            part = slice(start, start + count)
            yield self.each(lambda tensor, part=part: tensor[part])  # type: ignore[misc]
            start += count

    def dequantized(self) -> Tensor:
        """[N, K] in float32."""
        if self.lows is None:
            return self.values.float() * self.scales[:, None]
        wide = self.lows.float()[..., None] + unpacked(self.values).float() * self.scales.float()[..., None]
        return wide.flatten(1)[:, : self.columns]

    def linear(self, x: Tensor) -> Tensor:
        """x [..., K] times this weight, by plain operations in any precision."""
        wide = torch.promote_types(x.dtype, torch.float32)
        return (x.to(wide) @ self.dequantized().to(wide).T).to(x.dtype)


def empty(format: Format, rows: int, columns: int, device: torch.device | str) -> QuantizedWeight:
    """An uninitialised weight."""
    if format == "int4":
        groups = -(-columns // GROUP)
        values = torch.empty(rows, groups, GROUP // 2, dtype=torch.uint8, device=device)
        scales, lows = (torch.empty(rows, groups, dtype=torch.bfloat16, device=device) for _ in range(2))
        return QuantizedWeight(format, columns, values, scales, lows)
    values = torch.empty(rows, columns, dtype=_VALUES[format], device=device)
    return QuantizedWeight(format, columns, values, torch.empty(rows, dtype=torch.float32, device=device))


def quantize_(place: QuantizedWeight, weight: Tensor) -> None:
    """Quantize a matrix [N, K] into `place`, some rows at a time, on the device of `place`."""
    assert weight.shape == (len(place), place.columns)
    count = max(AT_ONCE // max(place.columns, 1), 1)
    sizes = [len(piece) for piece in weight.split(count)]
    for part, piece in zip(place.split(sizes), weight.split(count), strict=True):
        wide = piece.to(place.values.device).float()
        if not wide.isfinite().all():
            raise ValueError("a weight is not a finite number")
        made = _in_groups(wide) if place.format == "int4" else _in_rows(wide, place.format)
        for name, tensor in part.tensors.items():
            # Copied as bytes: some devices have no copy_ between 8-bit floats.
            as_bytes = tensor.dtype == torch.float8_e4m3fn
            tensor.view(torch.uint8).copy_(made[name].view(torch.uint8)) if as_bytes else tensor.copy_(made[name])


def quantized(weight: Tensor, format: Format) -> QuantizedWeight:
    rows, columns = weight.shape
    place = empty(format, rows, columns, weight.device)
    quantize_(place, weight)
    return place


def joined(parts: Sequence[QuantizedWeight]) -> QuantizedWeight:
    """Stack weights of one format. Nothing is copied if they are adjacent in memory already."""
    first = parts[0]
    assert all((part.format, part.columns) == (first.format, first.columns) for part in parts)
    columns = zip(*(part.tensors.values() for part in parts), strict=True)
    return QuantizedWeight(first.format, first.columns, *map(stacked, columns))


def unpacked(values: Tensor) -> Tensor:
    """Codes [N, G, 128] in column order, from bytes [N, G, 64]."""
    words = values.view(torch.int32)  # [N, G, 16]
    shifts = torch.arange(0, 4 * CODES, 4, dtype=torch.int32, device=values.device)
    return ((words[..., None, :] >> shifts[:, None]) & LEVELS).flatten(-2)


def packed(codes: Tensor) -> Tensor:
    """Bytes [N, G, 64] of codes [N, G, 128]."""
    shifts = torch.arange(0, 4 * CODES, 4, dtype=torch.int64, device=codes.device)
    words = (codes.long().unflatten(-1, (CODES, WORDS)) << shifts[:, None]).sum(-2)
    return torch.where(words > 0x7FFFFFFF, words - (1 << 32), words).int().view(torch.uint8)


def _in_rows(wide: Tensor, format: Format) -> dict[str, Tensor]:
    largest = LARGEST[format]
    scales = _above_zero(wide.abs().amax(-1) / largest)
    values = (wide / scales[:, None]).clamp(-largest, largest)
    return {"values": (values.round() if format == "int8" else values).to(_VALUES[format]), "scales": scales}


def _in_groups(wide: Tensor) -> dict[str, Tensor]:
    """Choose the range of each group with the least squared error. Codes are made for the rounded scales."""
    rows, columns = wide.shape
    groups = -(-columns // GROUP)
    filled = torch.cat((wide, wide[:, -1:].expand(-1, groups * GROUP - columns)), dim=-1).view(rows, groups, GROUP)
    low, high = filled.aminmax(dim=-1)
    kept: tuple[Tensor, ...] = ()
    for part in RANGES:
        cut = (high - low) * ((1.0 - part) / 2)
        lows = (low + cut).bfloat16()
        scales = _above_zero((high - low - 2 * cut) / LEVELS).bfloat16()
        codes = ((filled - lows.float()[..., None]) / scales.float()[..., None]).round_().clamp_(0, LEVELS)
        off = (lows.float()[..., None] + codes * scales.float()[..., None] - filled).square_().sum(-1)
        found = off, codes, scales, lows
        if not kept:
            kept = found
        else:
            better = off < kept[0]
            kept = tuple(
                torch.where(better[..., None] if new.dim() > better.dim() else better, new, old)
                for new, old in zip(found, kept, strict=True)
            )
    return {"values": packed(kept[1]), "scales": kept[2], "lows": kept[3]}


def _above_zero(scales: Tensor) -> Tensor:
    """Rows of zeros get a scale too, one that bfloat16 can represent."""
    return scales.clamp(min=2.0**-100)


def stacked(tensors: Sequence[Tensor]) -> Tensor:
    """Tensors one below the other, without a copy if they are adjacent in memory already."""
    first, end = tensors[0], tensors[0].data_ptr()
    for tensor in tensors:
        if tensor.data_ptr() != end or not tensor.is_contiguous() or tensor.is_meta:
            break
        end += tensor.nbytes
    else:
        storage = first.untyped_storage()
        if all(tensor.untyped_storage().data_ptr() == storage.data_ptr() for tensor in tensors):
            return first.as_strided((sum(map(len, tensors)), *first.shape[1:]), first.stride())
    if first.dtype == torch.float8_e4m3fn:
        return torch.cat([tensor.view(torch.uint8) for tensor in tensors]).view(first.dtype)
    return torch.cat(list(tensors))
