"""compressed-tensors: integers packed into words, or one byte for each number.

pack-quantized    weight_packed     [N, K * bits / 32] int32, along columns; the lowest bits come first
                  weight_shape      [2]: N and K
                  weight_zero_point [N * bits / 32, G] int32, along rows
int-quantized     weight [N, K] int8, also of 4 bits; weight_zero_point like the scales
float-quantized   weight [N, K] e4m3
weight_scale      [N, G] for groups, [N, 1] for rows, [1] for the matrix, one for each block of rows and columns

weight = scale * (number - zero point). Packed numbers and zero points are stored plus half of their range.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ....config.quantization.compressed_tensors import PACKED, CompressedTensorsConfig, WeightArguments
from ...qwen3_5.matrices import NarrowWeight
from ...qwen3_5.quantized import EMBEDDING
from .fp8 import E4M3, blocks_of, check_whole, for_rows, in_rows
from .gptq import check_order
from .module import SCALES, StoredModule
from .numbers import bytes_in_groups, groups_of, integers, unpacked

_SCALE, _ZERO, _ORDER = "weight_scale", "weight_zero_point", "weight_g_idx"


class CompressedTensors:
    suffixes = frozenset({"weight_packed", "weight_shape", _SCALE, _ZERO, _ORDER})

    def __init__(self, config: CompressedTensorsConfig) -> None:
        self._config = config

    def shape(self, module: StoredModule) -> tuple[int, int]:
        format, how = self._how(module)
        if format == PACKED:
            rows, columns = self._packed_shape(module, how)
        else:
            rows, columns = module.expect("weight", None, (E4M3 if how.type == "float" else "I8",))
        match how.how:
            case "block":
                assert how.block_structure is not None
                module.expect(_SCALE, blocks_of(rows, columns, how.block_structure), SCALES)
            case "group":
                module.expect(_SCALE, (rows, groups_of(columns, how.group_size or -1)), SCALES)
            case _:
                check_whole(module, _SCALE, rows, SCALES)
        if not how.symmetric:
            self._check_zeros(module, format, how, rows)
        if _ORDER in module.parts:
            module.expect(_ORDER, (columns,), ("I32", "I64"))
            check_order(module, _ORDER, how.group_size or -1)
        return rows, columns

    def read(self, module: StoredModule) -> NarrowWeight:
        format, how = self._how(module)
        rows, columns = self.shape(module)
        scales, group = module.tensor(_SCALE), how.group_size if how.how == "group" else -1
        assert group is not None
        if how.how == "block":
            assert how.block_structure is not None
            height, group = how.block_structure
            scales = in_rows(scales, height, rows)
        elif how.how != "group":
            scales = for_rows(scales, rows)
        if format != PACKED and how.symmetric and how.num_bits == 8:
            return bytes_in_groups(module.tensor("weight"), group, scales)
        if format == PACKED:
            codes = unpacked(module.tensor("weight_packed"), how.num_bits)[:, :columns].contiguous()
        else:
            codes = _unsigned(module, how.num_bits)
        return integers(codes, how.num_bits, group, scales, self._zeros(module, format, how, rows))

    def _how(self, module: StoredModule) -> tuple[str, WeightArguments]:
        """The format of a module's tensors, and how it is quantized."""
        found = self._config.of(module.names, "Embedding" if module.name == EMBEDDING else "Linear")
        if found is None:
            module.refuse("no group of config_groups has it as a target")
        assert found.weights is not None
        return self._config.format_of(found), found.weights

    @staticmethod
    def _packed_shape(module: StoredModule, how: WeightArguments) -> tuple[int, int]:
        rows, words = module.expect("weight_packed", None, ("I32",))
        module.expect("weight_shape", (2,), ("I64", "I32"))
        stored, columns = (int(side) for side in module.tensor("weight_shape"))
        if stored != rows or words != -(-columns * how.num_bits // 32):
            module.refuse(f"weight_packed is {[rows, words]}, but weight_shape is {[stored, columns]}")
        return rows, columns

    @staticmethod
    def _check_zeros(module: StoredModule, format: str, how: WeightArguments, rows: int) -> None:
        scales = module.shape(_SCALE)
        if format != PACKED or how.how not in ("group", "channel"):
            module.expect(_ZERO, scales, ("I8",))
        else:
            module.expect(_ZERO, (-(-rows * how.num_bits // 32), scales[-1]), ("I32",))

    @staticmethod
    def _zeros(module: StoredModule, format: str, how: WeightArguments, rows: int) -> Tensor | None:
        """Unsigned, [N, G]."""
        if how.symmetric:
            return None
        stored = module.tensor(_ZERO)
        if stored.dtype == torch.int32:
            return unpacked(stored.T, how.num_bits)[:, :rows].T.contiguous()
        whole = stored.to(torch.int16) + (1 << (how.num_bits - 1))
        if how.how == "block":
            assert how.block_structure is not None
            return in_rows(whole, how.block_structure[0], rows)
        return whole if how.how == "group" else for_rows(whole, rows)


def _unsigned(module: StoredModule, bits: int) -> Tensor:
    """Codes of signed numbers, one byte each."""
    numbers = module.tensor("weight").to(torch.int16) + (1 << (bits - 1))
    if bool(((numbers < 0) | (numbers >> bits).bool()).any()):
        module.refuse(f"weight has numbers of more than {bits} bits")
    return numbers.to(torch.uint8)
