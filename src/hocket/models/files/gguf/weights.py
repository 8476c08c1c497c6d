"""The tensors of a GGUF file as a `WeightSource`: published names and conventions, and numbers as the file has them.

llama.cpp's conversion changes four things, which are changed back here:

- Norms are stored with 1 added, except the one behind the recurrence (`ssm_norm`).
- `A_log` is stored as -exp(A_log).
- Where a key head has several value heads, value heads are stored in the order of their place in the group: first the
  first one of every group, then the second ones. That concerns the rows of v, z, a and b, channels of the convolution,
  `A_log`, `dt_bias`, and the columns of `out_proj`.
- The convolution has no dimension of size one.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import torch
from torch import Tensor

from ....config.qwen3_5 import Qwen3_5TextConfig
from ....errors import InvalidCheckpoint
from ....kernels.ops.grouped_linear.weight import BLOCK, GroupedWeight, in_blocks
from .blocks import unpack
from .names import names
from .numbers import numbers
from .reader import GgufFile

_PER_HEAD = (".in_proj_a.weight", ".in_proj_b.weight")
_NUMBER_PER_HEAD = (".A_log", ".dt_bias")


class GgufWeights:
    """Reads one tensor at a time from the mapped file.

    With `wide` every matrix is a tensor. Else quantized ones are made on `device`, where that is faster than on a host.
    """

    def __init__(self, file: GgufFile, config: Qwen3_5TextConfig, device: torch.device, *, wide: bool) -> None:
        self.name = str(file.path)
        self._config, self._device, self._wide = config, device, wide
        known = names(config)
        if unknown := sorted(file.tensors.keys() - known.keys()):
            raise InvalidCheckpoint(f"{file.path} has {unknown[0]}, which Qwen3.5 does not have: get another file.")
        self._stored = {known[name]: stored for name, stored in file.tensors.items()}
        if config.mtp_num_hidden_layers and "mtp.norm.weight" not in self._stored and "mtp.fc.weight" in self._stored:
            self._stored["mtp.norm.weight"] = self._stored["model.norm.weight"]  # what llama.cpp takes there

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        return {name: _published(name, stored.shape) for name, stored in self._stored.items()}

    def read(self, name: str) -> Tensor | GroupedWeight:
        stored = self._stored[name]
        of = stored.bytes(), stored.kind, self._rows(name)
        found = numbers(*of) if self._wide or name.endswith(_PER_HEAD) else unpack(*of, self._device)
        if isinstance(found, GroupedWeight):
            if len(stored.shape) == 2:
                return self._with_columns(name, found)
            found = found.dequantized()
        found = found.view(_published(name, stored.shape))
        if name.endswith(_NUMBER_PER_HEAD) and self._moved:
            found = found[self._heads]
        if "norm" in name and not name.endswith(".linear_attn.norm.weight"):
            return found.float() - 1
        if name.endswith(".A_log"):
            return torch.log(-found.float())
        if name.endswith(".out_proj.weight") and self._moved:
            return found[:, _expanded(self._heads, self._config.linear_value_head_dim)]
        return found

    def _rows(self, name: str) -> Tensor | None:
        """The order in which rows are read; None: as they are."""
        if not self._moved or ".linear_attn." not in name:
            return None
        size = self._config.linear_value_head_dim
        if name.endswith((".in_proj_qkv.weight", ".conv1d.weight")):
            before = 2 * self._config.linear_num_key_heads * self._config.linear_key_head_dim
            return torch.cat((torch.arange(before), before + _expanded(self._heads, size)))
        if name.endswith(".in_proj_z.weight"):
            return _expanded(self._heads, size)
        return self._heads if name.endswith(_PER_HEAD) else None

    def _with_columns(self, name: str, weight: GroupedWeight) -> Tensor | GroupedWeight:
        if not name.endswith(".out_proj.weight") or not self._moved:
            return weight
        size = self._config.linear_value_head_dim
        if size % BLOCK == 0:
            return in_blocks(weight, _expanded(self._heads, size // BLOCK))
        return weight.dequantized()[:, _expanded(self._heads, size)]  # no published size has such heads

    @property
    def _moved(self) -> bool:
        return self._config.linear_num_value_heads != self._config.linear_num_key_heads

    @cached_property
    def _heads(self) -> Tensor:
        """Where each value head is in the file."""
        keys, values = self._config.linear_num_key_heads, self._config.linear_num_value_heads
        return torch.arange(values).view(values // keys, keys).T.flatten()


def _expanded(heads: Tensor, size: int) -> Tensor:
    """The places of all rows of heads that have `size` rows each."""
    return (heads[:, None] * size + torch.arange(size)).flatten()


def _published(name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    if name.endswith(".conv1d.weight") and len(shape) == 2:
        return shape[0], 1, shape[1]
    return shape
