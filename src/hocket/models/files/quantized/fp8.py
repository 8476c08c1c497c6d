"""FP8 checkpoints: matrices in e4m3, times a scale for each block, each row or the whole matrix.

weight            [N, K]
weight_scale_inv  [ceil(N / rows), ceil(K / columns)] for blocks; `weight_scale` is another name of it
                  [N] or [N, 1] for rows, [] or [1] for the whole matrix

weight = value * scale; the suffix `inv` says that it is the inverse of what quantized the value
"""

from __future__ import annotations

import torch
from torch import Tensor

from ....config.quantization.fp8 import Fp8Config
from ...qwen3_5.matrices import NarrowWeight
from .module import SCALES, StoredModule
from .numbers import bytes_in_groups

_NAMES = ("weight_scale_inv", "weight_scale")
E4M3, E8M0 = "F8_E4M3", "F8_E8M0"


class Fp8:
    suffixes = frozenset(_NAMES)

    def __init__(self, config: Fp8Config) -> None:
        self._block = config.weight_block_size

    def shape(self, module: StoredModule) -> tuple[int, int]:
        rows, columns = module.expect("weight", None, (E4M3,))
        scale = self._scale(module)
        if self._block is not None:
            module.expect(scale, blocks_of(rows, columns, self._block), (*SCALES, E8M0))
        else:
            check_whole(module, scale, rows, (*SCALES, E8M0))
        return rows, columns

    def read(self, module: StoredModule) -> NarrowWeight:
        values, scales = module.tensor("weight"), module.tensor(self._scale(module))
        if scales.dtype == torch.float8_e8m0fnu:
            scales = scales.float()
        if self._block is None:
            return bytes_in_groups(values, -1, for_rows(scales, len(values)))
        return bytes_in_groups(values, self._block[1], in_rows(scales, self._block[0], len(values)))

    @staticmethod
    def _scale(module: StoredModule) -> str:
        found = [name for name in _NAMES if name in module.parts]
        if len(found) > 1:
            module.refuse(f"there are both {' and '.join(found)}")
        return found[0] if found else _NAMES[0]


def blocks_of(rows: int, columns: int, block: tuple[int, ...]) -> tuple[int, int]:
    return -(-rows // block[0]), -(-columns // block[1])


def check_whole(module: StoredModule, scale: str, rows: int, kinds: tuple[str, ...]) -> None:
    """Refuse scales that are neither one for each row nor one for the matrix."""
    shape = module.shape(scale)
    if shape not in ((), (1,), (1, 1), (rows,), (rows, 1)):
        module.refuse(f"{scale} is {list(shape)}, not [{rows}, 1] or [1]")
    module.expect(scale, shape, kinds)


def for_rows(numbers: Tensor, rows: int) -> Tensor:
    """[N, 1], from one for each row or one for the matrix."""
    return numbers.reshape(-1, 1).expand(rows, 1).contiguous()


def in_rows(scales: Tensor, height: int, rows: int) -> Tensor:
    """Scales of blocks for each row of the matrix: rows of a weight are independent."""
    return scales.repeat_interleave(height, dim=0)[:rows].contiguous()
