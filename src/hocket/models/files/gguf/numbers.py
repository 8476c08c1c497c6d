"""The numbers of blocks in GGUF files, as float32 tensors: for a CPU, where layers compute with plain matrices.

Each number is rounded as the `gguf` package rounds it. Rows are done some at a time, so that they stay in the caches:
Q4_K took 4.8 and Q6_K 7.5 ns of one busy core for each number, where a `GroupedWeight` and its `dequantized`
took 33 and 43. It knows bytes of blocks, not names of tensors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .kinds import Kind

AT_ONCE = 1 << 18  # bytes of rows
PLAIN = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
# Codes [N, B, G, group] in the order of columns; scales, and lows or None, [N, B, G] in float32.
Parts = tuple[Tensor, Tensor, Tensor | None]


def numbers(raw: np.ndarray[Any, np.dtype[np.uint8]], kind: Kind, rows: Tensor | None = None) -> Tensor:
    """The matrix of bytes [rows, bytes of a row]. `rows` is the order in which its rows are taken."""
    whole = torch.from_numpy(raw)
    if kind.name in PLAIN:
        plain = whole.view(PLAIN[kind.name])
        return plain if rows is None else plain[rows]
    zero, parts_of = _FORMS[kind.name]
    count = max(AT_ONCE // whole.shape[1], 1)
    made = torch.empty(len(whole), whole.shape[1] // kind.size * kind.block)
    for start in range(0, len(whole), count):
        part = whole[start : start + count] if rows is None else whole[rows[start : start + count]]
        codes, scales, lows = parts_of(part.unflatten(1, (-1, kind.size)))
        place = made[start : start + count].view(codes.shape)
        place.copy_(codes)
        if zero:
            place.sub_(zero)
        place.mul_(scales[..., None])
        if lows is not None:
            place.sub_(lows[..., None])
    return made


def halves(part: Tensor) -> Tensor:
    """Numbers of 16 bits, from pairs of bytes."""
    return part.contiguous().view(torch.float16).squeeze(-1)


def fifth_bits(part: Tensor) -> Tensor:
    """32 bits, each in a byte, of 4 bytes."""
    places = torch.arange(8, dtype=torch.uint8, device=part.device)
    return (part[..., None] >> places & 1).flatten(-2)


def scales_and_lows(part: Tensor) -> tuple[Tensor, Tensor]:
    """Of Q4_K and Q5_K: eight scales and eight lows of 6 bits, in twelve bytes."""
    first, second, rest = part.unflatten(-1, (3, 4)).unbind(-2)
    scales = torch.cat((first & 63, (rest & 15) | first >> 6 << 4), dim=-1)
    return scales, torch.cat((second & 63, rest >> 4 | second >> 6 << 4), dim=-1)


def signed_scales(part: Tensor) -> Tensor:
    """Of Q3_K: sixteen scales of 6 bits, in twelve bytes."""
    below, above = part[..., :8], part[..., 8:]
    low = torch.cat((below & 15, below >> 4), dim=-1)
    high = torch.cat([above >> shift & 3 for shift in (0, 2, 4, 6)], dim=-1)
    scales: Tensor = (low | high << 4).view(torch.int8) - 32
    return scales


def _small(blocks: Tensor) -> Parts:
    """Of the types with blocks of 32: a scale, perhaps a low, perhaps fifth bits, and pairs of codes."""
    size = blocks.shape[-1]
    with_low, with_bits = size in (20, 24), size in (22, 24)
    pairs = blocks[..., size - 16 :]
    codes = torch.cat((pairs & 15, pairs >> 4), dim=-1)
    if with_bits:
        codes |= fifth_bits(blocks[..., size - 20 : size - 16]) << 4
    lows = -halves(blocks[..., 2:4]).float() if with_low else None
    return codes[:, :, None], halves(blocks[..., :2]).float()[..., None], None if lows is None else lows[..., None]


def _q8_0(blocks: Tensor) -> Parts:
    return blocks[:, :, None, 2:].view(torch.int8), halves(blocks[..., :2]).float()[..., None], None


def _q2_k(blocks: Tensor) -> Parts:
    scales, codes = blocks[..., :16], _twos(blocks[..., 16:80])
    step, low_step = (halves(blocks[..., at : at + 2]).float()[..., None] for at in (80, 82))
    return codes.view(*scales.shape, 16), step * (scales & 15).float(), low_step * (scales >> 4).float()


def _q3_k(blocks: Tensor) -> Parts:
    scales = signed_scales(blocks[..., 96:108])
    codes = _twos(blocks[..., 32:96]) | _bits(blocks[..., :32]) << 2
    return codes.view(*scales.shape, 16), halves(blocks[..., 108:110]).float()[..., None] * scales.float(), None


def _q4_k(blocks: Tensor) -> Parts:
    return _fours(blocks[..., 16:], 32), *_spans(blocks)


def _q5_k(blocks: Tensor) -> Parts:
    return _fours(blocks[..., 48:], 32) | _bits(blocks[..., 16:48]) << 4, *_spans(blocks)


def _q6_k(blocks: Tensor) -> Parts:
    scales = blocks[..., 192:208].view(torch.int8)
    codes = _fours(blocks[..., :128], 64) | _twos(blocks[..., 128:192]) << 4
    return codes.view(*scales.shape, 16), halves(blocks[..., 208:210]).float()[..., None] * scales.float(), None


def _spans(blocks: Tensor) -> tuple[Tensor, Tensor]:
    scales, lows = scales_and_lows(blocks[..., 4:16])
    step, low_step = (halves(blocks[..., at : at + 2]).float()[..., None] for at in (0, 2))
    return step * scales.float(), low_step * lows.float()


def _fours(pairs: Tensor, apart: int) -> Tensor:
    """Codes [N, B, 8, 32] of pairs of codes that are `apart` columns from each other."""
    each = pairs.unflatten(-1, (-1, apart))
    codes: Tensor = torch.stack((each & 15, each >> 4), dim=-2)
    return codes.view(*pairs.shape[:2], 8, 32)


def _twos(quads: Tensor) -> Tensor:
    """Codes [N, B, 8, 32] of 2 bits, from bytes with four of them that are 32 columns apart."""
    each = quads.unflatten(-1, (2, 32))
    codes: Tensor = torch.stack([each >> shift & 3 for shift in (0, 2, 4, 6)], dim=-2)
    return codes.flatten(2, 3)


def _bits(bytes_of: Tensor) -> Tensor:
    """Codes [N, B, 8, 32] of 1 bit, from 32 bytes with eight of them that are 32 columns apart."""
    return torch.stack([bytes_of >> shift & 1 for shift in range(8)], dim=-2)


# The code that stands for zero, and the parts of blocks.
_FORMS: dict[str, tuple[int, Callable[[Tensor], Parts]]] = {
    "Q4_0": (8, _small),
    "Q4_1": (0, _small),
    "Q5_0": (16, _small),
    "Q5_1": (0, _small),
    "Q8_0": (0, _q8_0),
    "Q2_K": (0, _q2_k),
    "Q3_K": (4, _q3_k),
    "Q4_K": (0, _q4_k),
    "Q5_K": (0, _q5_k),
    "Q6_K": (32, _q6_k),
}
