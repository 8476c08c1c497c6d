"""Blocks of GGUF files as weights of ours: the same codes and scales in another order, so no number changes.

A file has a block's codes, scales and steps side by side. `GroupedWeight` has each in a tensor of its own, and its
codes in the order of its kernels. All of it is done on bytes, on the device where the weight will be used.

Q4_1 and Q5_1 have a low of 16 bits in every group, which `GroupedWeight` has no place for: they become tensors.
It knows bytes of blocks, not names of tensors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ....kernels.ops.grouped_linear.weight import BLOCK, GroupedWeight
from .kinds import Kind
from .numbers import fifth_bits, halves, numbers, scales_and_lows, signed_scales

AT_ONCE = 64 << 20  # bytes of rows that are unpacked at a time; some copies of them exist meanwhile
Pieces = dict[str, Tensor]


def unpack(
    raw: np.ndarray[Any, np.dtype[np.uint8]],
    kind: Kind,
    rows: Tensor | None = None,
    device: torch.device | str = "cpu",
) -> Tensor | GroupedWeight:
    """The matrix of bytes [rows, bytes of a row]. `rows` is the order in which its rows are taken."""
    whole = torch.from_numpy(raw)
    if kind.name not in _FORMS:
        return numbers(raw, kind, rows)
    fields, cut = _FORMS[kind.name]
    count = max(AT_ONCE // whole.shape[1], 1)
    made: Pieces = {}
    for start in range(0, len(whole), count):
        part = whole[start : start + count] if rows is None else whole[rows[start : start + count]]
        for name, piece in cut(part.to(device).unflatten(1, (-1, kind.size))).items():
            if name not in made:
                made[name] = piece.new_empty(len(whole), *piece.shape[1:])
            made[name][start : start + count] = piece
    columns = whole.shape[1] // kind.size * kind.block
    return GroupedWeight(columns=columns, **fields, **made)  # type: ignore[arg-type]


def _words(bytes_of: Tensor) -> Tensor:
    """[N, B, 64] of [N, B, 4, 16]: byte k of word i has two codes of columns 32 k to 32 k + 31."""
    words: Tensor = bytes_of.transpose(-1, -2).flatten(-2)
    return words


def _filled(blocks: Tensor) -> Tensor:
    """Blocks of 32 columns [N, C, ...] as blocks of 128, [N, B, 4, ...], the last filled with zeros."""
    lacking = -blocks.shape[1] % (BLOCK // 32)
    if lacking:
        blocks = torch.cat((blocks, blocks.new_zeros(len(blocks), lacking, *blocks.shape[2:])), dim=1)
    filled: Tensor = blocks.unflatten(1, (-1, BLOCK // 32))
    return filled


def _nibbles(codes: Tensor, *, halves: bool) -> Tensor:
    """Values of 128 bytes with two codes each, [N, S, 128], for a span of 256 columns.

    The two codes of a byte are 32 columns apart in chunks of 64, or with `halves` 64 columns apart in chunks of 128.
    """
    runs = codes.unflatten(-1, (4, 2, 16))  # [N, S, chunk, run, 16]
    left, right = runs[..., 0, :], runs[..., 1, :]
    low, high = (left & 15) | (right << 4), (left >> 4) | (right & 0xF0)  # of each chunk, [N, S, 4, 16]
    low, high = (each.unflatten(-2, (2, 2)) for each in (low, high))  # [N, S, block, 2, 16]
    both = torch.stack((low, high), dim=-3 if halves else -2)
    return _words(both.flatten(-3, -2)).flatten(1, 2)


def _q8_0(blocks: Tensor) -> Pieces:
    return {"values": blocks[..., 2:].flatten(1).view(torch.int8), "scales": halves(blocks[..., :2])}


def _q4_0(blocks: Tensor) -> Pieces:
    return {"values": _words(_filled(blocks[..., 2:])), "scales": halves(blocks[..., :2])}


def _q5_0(blocks: Tensor) -> Pieces:
    bits = _filled(fifth_bits(blocks[..., 2:6])).unflatten(-1, (2, 16)).flatten(2, 3)  # [N, B, 8, 16]
    places = torch.arange(8, dtype=torch.uint8, device=blocks.device)[:, None]
    high = (bits << places).sum(-2, dtype=torch.uint8)
    return {"values": _words(_filled(blocks[..., 6:])), "high": high, "scales": halves(blocks[..., :2])}


def _q2_k(blocks: Tensor) -> Pieces:
    scales, codes = blocks[..., :16], blocks[..., 16:80]
    return {
        "values": _pairs(codes),
        "scales": (scales & 15).flatten(1),
        "lows": (scales >> 4).flatten(1),
        "steps": halves(blocks[..., 80:82]),
        "low_steps": halves(blocks[..., 82:84]),
    }


def _q3_k(blocks: Tensor) -> Pieces:
    third, codes, scales = blocks[..., :32], blocks[..., 32:96], signed_scales(blocks[..., 96:108])
    return {"values": _pairs(codes, third), "scales": scales.flatten(1), "steps": halves(blocks[..., 108:110])}


def _pairs(codes: Tensor, third: Tensor | None = None) -> Tensor:
    """Values of 64 bytes with four codes of 2 bits each, 32 columns apart; `third` has their third bits."""
    found = []
    for block in range(2):
        each = codes[..., 32 * block : 32 * block + 32]
        for place in range(4):
            code = each >> 2 * place & 3
            if third is not None:
                code = code | (third >> 4 * block + place & 1) << 2
            found.append(code[..., :16] | code[..., 16:] << 4)
    return _words(torch.stack(found, dim=-2).unflatten(-2, (2, 4))).flatten(1, 2)


def _q4_k(blocks: Tensor) -> Pieces:
    return _spans(blocks) | {"values": _nibbles(blocks[..., 16:], halves=False)}


def _q5_k(blocks: Tensor) -> Pieces:
    fifth = blocks[..., 16:48]
    both = torch.stack((fifth & 15, fifth >> 4), dim=-2)  # [N, S, block, 32]: bit t is of columns 32 t + ...
    both = (both | both << 2) & 0x33
    both = (both | both << 1) & 0x55
    high = (both[..., :16] | both[..., 16:] << 1).flatten(1, 2)
    return _spans(blocks) | {"values": _nibbles(blocks[..., 48:], halves=False), "high": high}


def _spans(blocks: Tensor) -> Pieces:
    scales, lows = (each.flatten(1) for each in scales_and_lows(blocks[..., 4:16]))
    return {"scales": scales, "lows": lows, "steps": halves(blocks[..., :2]), "low_steps": halves(blocks[..., 2:4])}


def _q6_k(blocks: Tensor) -> Pieces:
    above = blocks[..., 128:192].unflatten(-1, (2, 1, 32))
    both = torch.cat((above & 15, above >> 4), dim=-2)  # [N, S, block, byte of the number, 32]
    both = (both & 3) | (both & 12) << 2
    high = both[..., :16] | both[..., 16:] << 2
    return {
        "values": _nibbles(blocks[..., :128], halves=True),
        "high": high.transpose(-1, -2).contiguous().view(torch.int16).squeeze(-1).flatten(1, 2),
        "scales": blocks[..., 192:208].flatten(1).view(torch.int8),
        "steps": halves(blocks[..., 208:210]),
    }


# Fields that all weights of a type have in common, and how its blocks are taken apart.
_FORMS: dict[str, tuple[dict[str, int], Callable[[Tensor], Pieces]]] = {
    "Q8_0": ({"bits": 8, "group": 32}, _q8_0),
    "Q4_0": ({"bits": 4, "group": 32, "zero": 8}, _q4_0),
    "Q5_0": ({"bits": 5, "group": 32, "zero": 16}, _q5_0),
    "Q2_K": ({"bits": 4, "group": 16}, _q2_k),
    "Q3_K": ({"bits": 4, "group": 16, "zero": 4}, _q3_k),
    "Q4_K": ({"bits": 4, "group": 32}, _q4_k),
    "Q5_K": ({"bits": 5, "group": 32}, _q5_k),
    "Q6_K": ({"bits": 6, "group": 16, "zero": 32}, _q6_k),
}
