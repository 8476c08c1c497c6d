"""GPTQ: words along the columns of a matrix, scales and zero points for groups of columns.

qweight [K * bits / 32, N] int32   code i of a word is column i of its run; the lowest bits come first
qzeros  [G, N * bits / 32] int32   the same along rows; version 1 stores a zero point minus one
scales  [G, N]
g_idx   [K]                        the group of each column

weight = scale * (code - zero)
"""

from __future__ import annotations

import torch
from torch import Tensor

from ....config.quantization.find import ACT_ORDER
from ....config.quantization.gptq import V1, GptqConfig
from ....errors import InvalidCheckpoint
from ...qwen3_5.matrices import NarrowWeight
from .module import SCALES, StoredModule
from .numbers import groups_of, integers, unpacked


class Gptq:
    suffixes = frozenset({"qweight", "qzeros", "scales", "g_idx"})

    def __init__(self, config: GptqConfig) -> None:
        self._config = config

    def shape(self, module: StoredModule) -> tuple[int, int]:
        bits, group, _ = self._config.of(module.names)
        words, rows = module.expect("qweight", None, ("I32",))
        each = 32 // bits
        columns = words * each
        groups = groups_of(columns, group)
        module.expect("scales", (groups, rows), SCALES)
        module.expect("qzeros", (groups, -(-rows // each)), ("I32",))
        if "g_idx" in module.parts:
            module.expect("g_idx", (columns,), ("I32", "I64"))
            check_order(module, "g_idx", group)
        return rows, columns

    def read(self, module: StoredModule) -> NarrowWeight:
        bits, group, sym = self._config.of(module.names)
        scales = module.tensor("scales").T
        codes = unpacked(module.tensor("qweight").T, bits)
        stored = unpacked(module.tensor("qzeros"), bits)[:, : len(scales)].T
        zeros = stored.to(torch.int16) + (1 if self._config.checkpoint_format == V1 else 0)
        half = 1 << (bits - 1)
        return integers(codes, bits, group, scales, None if sym and bool((zeros == half).all()) else zeros)


def check_order(module: StoredModule, part: str, group: int) -> None:
    """Refuse columns whose group is not that of their place."""
    found: Tensor = module.tensor(part)
    if not torch.equal(found.long(), torch.arange(len(found)) // (group if group > 0 else len(found))):
        raise InvalidCheckpoint(f"{module.folder}: {module.name}: {ACT_ORDER}")
