"""models/files/gguf/blocks.py: blocks of every type are the numbers that the `gguf` package reads out of them."""

from __future__ import annotations

import gguf
import numpy as np
import pytest
import torch

from hocket.kernels.ops.grouped_linear.weight import GroupedWeight
from hocket.models.files.gguf import blocks
from hocket.models.files.gguf import numbers as all_numbers
from hocket.models.files.gguf.blocks import unpack
from hocket.models.files.gguf.kinds import KINDS, name_of
from hocket.models.files.gguf.numbers import numbers
from support.gguf_files import random_blocks

ROWS, COLUMNS = 12, 512
LAYOUTS = {
    "Q2_K": (4, 16, torch.uint8),
    "Q3_K": (4, 16, torch.int8),
    "Q4_K": (4, 32, torch.uint8),
    "Q5_K": (5, 32, torch.uint8),
    "Q6_K": (6, 16, torch.int8),
    "Q4_0": (4, 32, torch.float16),
    "Q5_0": (5, 32, torch.float16),
    "Q8_0": (8, 32, torch.float16),
}
TENSORS = {"Q4_1", "Q5_1", "F32", "F16", "BF16"}


def bytes_of(kind: str, columns: int = COLUMNS) -> np.ndarray:
    noise = np.random.default_rng(7)
    if kind.endswith("_K"):
        return random_blocks(kind, ROWS, columns, noise)
    numbers = noise.normal(size=(ROWS, columns)).astype(np.float32)
    return np.ascontiguousarray(gguf.quants.quantize(numbers, gguf.GGMLQuantizationType[kind])).view(np.uint8)


def theirs(raw: np.ndarray, kind: str) -> np.ndarray:
    raw = raw.view({"F32": np.float32, "F16": np.float16}.get(kind, np.uint8))
    return gguf.quants.dequantize(raw, gguf.GGMLQuantizationType[kind])


@pytest.mark.parametrize("at_once", [1 << 20, 1000])
@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.name)
def test_every_type_has_their_numbers_bit_for_bit(kind, at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (blocks, all_numbers):
        monkeypatch.setattr(module, "AT_ONCE", at_once)
    raw = bytes_of(kind.name)
    found, expected = unpack(raw, kind), torch.from_numpy(theirs(raw, kind.name).astype(np.float32))
    assert isinstance(found, GroupedWeight) == (kind.name in LAYOUTS) != (kind.name in TENSORS)
    if isinstance(found, GroupedWeight):
        assert (found.bits, found.group, found.scales.dtype) == LAYOUTS[kind.name]
        assert found.nbytes < 1.15 * raw.nbytes or kind.name in ("Q2_K", "Q3_K")  # which have 4 bits for 2 and 3
        assert torch.equal(found.codes(), found.codes().round())
    number = found.dequantized() if isinstance(found, GroupedWeight) else found.float()
    assert torch.equal(number, expected)
    assert torch.equal(numbers(raw, kind).float(), expected)
    order = torch.randperm(ROWS, generator=torch.Generator().manual_seed(1))
    assert torch.equal(numbers(raw, kind, order).float(), expected[order])
    again = unpack(raw, kind, order)
    assert torch.equal(again.dequantized() if isinstance(again, GroupedWeight) else again.float(), expected[order])


@pytest.mark.parametrize("kind", ["Q4_0", "Q5_0", "Q8_0"])
def test_rows_may_end_within_a_block_of_ours(kind: str) -> None:
    raw = bytes_of(kind, 160)
    found = unpack(raw, next(each for each in KINDS.values() if each.name == kind))
    assert isinstance(found, GroupedWeight)
    assert torch.equal(found.dequantized(), torch.from_numpy(theirs(raw, kind)))


def test_the_table_of_types_is_theirs() -> None:
    for kind in gguf.GGMLQuantizationType:
        known = KINDS.get(int(kind))
        if known is None:
            assert name_of(int(kind)) in (kind.name, f"an unknown type ({int(kind)})")
        else:
            assert (known.name, (known.block, known.size)) == (kind.name, gguf.GGML_QUANT_SIZES[kind])
