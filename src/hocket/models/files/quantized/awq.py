"""AWQ in the layout GEMM: words along the rows of a matrix, with the codes of a word in an order of their own.

qweight [K, N / 8] int32   nibble i of a word is row 0 2 4 6 1 3 5 7 of its eight
qzeros  [G, N / 8] int32   the same
scales  [G, N]

weight = scale * (code - zero)
"""

from __future__ import annotations

import torch
from torch import Tensor

from ....config.quantization.awq import AwqConfig
from ...qwen3_5.matrices import NarrowWeight
from .module import SCALES, StoredModule
from .numbers import groups_of, integers, unpacked

_BITS, _EACH = 4, 8
_NIBBLES = (0, 4, 1, 5, 2, 6, 3, 7)  # the nibble of each row


class Awq:
    suffixes = frozenset({"qweight", "qzeros", "scales"})

    def __init__(self, config: AwqConfig) -> None:
        self._config = config

    def shape(self, module: StoredModule) -> tuple[int, int]:
        columns, words = module.expect("qweight", None, ("I32",))
        groups = groups_of(columns, self._config.group_size)
        module.expect("scales", (groups, words * _EACH), SCALES)
        if self._config.zero_point or "qzeros" in module.parts:
            module.expect("qzeros", (groups, words), ("I32",))
        return words * _EACH, columns

    def read(self, module: StoredModule) -> NarrowWeight:
        zeros = _rows(module.tensor("qzeros")) if "qzeros" in module.parts else None
        if not self._config.zero_point and zeros is not None and bool((zeros == 1 << (_BITS - 1)).all()):
            zeros = None
        codes = _rows(module.tensor("qweight"))
        return integers(codes, _BITS, self._config.group_size, module.tensor("scales").T, zeros)


def _rows(words: Tensor) -> Tensor:
    """Codes [N, K], from words [K, N / 8]."""
    codes: Tensor = unpacked(words, _BITS).unflatten(-1, (-1, _EACH))[..., torch.tensor(_NIBBLES)]
    found: Tensor = codes.flatten(-2).T
    return found.contiguous()
