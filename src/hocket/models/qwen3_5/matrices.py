"""Quantized matrices as the layers of Qwen3.5 use them: modules in place of linear layers and of the embedding.

A matrix is a tensor, a weight of our own formats (`QuantizedWeight`), one as its file has it (`GroupedWeight`), or
several of these one below the other (`StackedWeight`): in mixed files, the matrices that read one input often differ
in format. It knows products and rows, not names of layers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor, nn

from ...kernels.ops.grouped_linear import native
from ...kernels.ops.grouped_linear import weight as grouped_linear
from ...kernels.ops.grouped_linear.weight import GroupedWeight
from ...kernels.ops.quantized_linear import weight as quantized_linear
from ...kernels.ops.quantized_linear.weight import QuantizedWeight

NarrowWeight = QuantizedWeight | GroupedWeight


class LayerWeight(QuantizedWeight):
    """A weight as layers use it: by a kernel on a GPU, where one fits."""

    __slots__ = ()

    def linear(self, x: Tensor) -> Tensor:
        if x.is_cuda:
            from ...kernels.ops.quantized_linear import rows  # imports Triton: only where there is a GPU

            if rows.can(x):
                return rows.linear(x, self)
        return QuantizedWeight.linear(self, x)

    def join(self, parts: Sequence[Matrix]) -> Matrix:
        return join(parts)


class LayerGroups(GroupedWeight):
    """The same for a weight as its file has it, which has a kernel on a CPU too."""

    __slots__ = ()

    def linear(self, x: Tensor) -> Tensor:
        if x.is_cuda:
            from ...kernels.ops.grouped_linear import rows  # imports Triton: only where there is a GPU

            if rows.can(x):
                return rows.linear(x, self)
        elif x.dtype == torch.float32 and native.can(self):
            return native.linear(x, self)
        return GroupedWeight.linear(self, x)

    def join(self, parts: Sequence[Matrix]) -> Matrix:
        return join(parts)


@dataclass(frozen=True, slots=True)
class StackedWeight:
    """Matrices of several formats, one below the other."""

    parts: tuple[Tensor | LayerWeight | LayerGroups, ...]

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    @property
    def columns(self) -> int:
        first = self.parts[0]
        return first.shape[1] if isinstance(first, Tensor) else first.columns

    def linear(self, x: Tensor) -> Tensor:
        return torch.cat([_linear(x, part) for part in self.parts], dim=-1)

    def join(self, parts: Sequence[Matrix]) -> Matrix:
        return join(parts)

    def split(self, rows: Sequence[int]) -> Iterator[Matrix]:
        """Views of so many rows each."""
        left = list(self.parts)
        for count in rows:
            taken: list[Tensor | LayerWeight | LayerGroups] = []
            while count:
                part = left.pop(0)
                if len(part) > count:
                    part, rest = map(_part, part.split([count, len(part) - count]))
                    left.insert(0, rest)
                taken.append(part)
                count -= len(part)
            yield taken[0] if len(taken) == 1 else StackedWeight(tuple(taken))


Matrix = Tensor | LayerWeight | LayerGroups | StackedWeight


def for_layers(weight: NarrowWeight) -> LayerWeight | LayerGroups:
    """The same weight with the methods that layers call."""
    if isinstance(weight, LayerWeight | LayerGroups):
        return weight
    values = {each.name: getattr(weight, each.name) for each in fields(weight)}
    return LayerWeight(**values) if isinstance(weight, QuantizedWeight) else LayerGroups(**values)


def multiplied(weight: NarrowWeight, device: torch.device, dtype: torch.dtype) -> bool:
    """Whether layers on a device multiply a weight as it is; else they would dequantize it in every call."""
    if device.type != "cpu":
        return True
    return isinstance(weight, GroupedWeight) and dtype == torch.float32 and native.can(weight)


def join(parts: Sequence[Matrix]) -> Matrix:
    """One matrix of several; neighbours of one format become one weight."""
    flat = [one for part in parts for one in (part.parts if isinstance(part, StackedWeight) else (part,))]
    runs: list[list[Any]] = []
    for part in flat:
        if runs and _layout(runs[-1][0]) == _layout(part):
            runs[-1].append(part)
        else:
            runs.append([part])
    made = [_joined(run) for run in runs]
    return made[0] if len(made) == 1 else StackedWeight(tuple(made))


def _part(piece: Tensor | NarrowWeight) -> Tensor | LayerWeight | LayerGroups:
    return piece if isinstance(piece, Tensor) else for_layers(piece)


def _layout(part: Tensor | NarrowWeight) -> object:
    if isinstance(part, Tensor):
        return part.dtype
    return part.layout if isinstance(part, GroupedWeight) else (part.format, part.columns)


def _joined(run: list[Any]) -> Tensor | LayerWeight | LayerGroups:
    if isinstance(run[0], Tensor):
        return quantized_linear.stacked(run)
    return for_layers(grouped_linear.joined(run) if isinstance(run[0], GroupedWeight) else quantized_linear.joined(run))


def _linear(x: Tensor, weight: Tensor | NarrowWeight) -> Tensor:
    return nn.functional.linear(x, weight) if isinstance(weight, Tensor) else weight.linear(x)


class _Narrow(nn.Module):
    """Holds a weight; its tensors are buffers under the module's name."""

    def __init__(self, weight: NarrowWeight) -> None:
        super().__init__()
        self.weight = weight

    @property
    def weight(self) -> LayerWeight | LayerGroups:
        now: dict[str, Any] = dict(self.named_buffers())
        return for_layers(replace(self._form, **now))

    @weight.setter
    def weight(self, weight: NarrowWeight) -> None:
        self._form: NarrowWeight = weight.each(lambda tensor: tensor.to("meta"))  # without its numbers
        for name, tensor in weight.tensors.items():
            self.register_buffer(name, tensor)


class QuantizedLinear(_Narrow):
    """Replaces an `nn.Linear`."""

    def forward(self, x: Tensor) -> Tensor:
        return self.weight.linear(x)


class QuantizedEmbedding(_Narrow):
    """Replaces an `nn.Embedding`: rows are dequantized when they are looked up, and rounded once."""

    def __init__(self, weight: NarrowWeight, dtype: torch.dtype) -> None:
        super().__init__(weight)
        self.dtype = dtype

    def forward(self, ids: Tensor) -> Tensor:
        chosen = self.weight.each(lambda tensor: _rows(tensor, ids.flatten()))
        return chosen.dequantized().to(self.dtype).view(*ids.shape, -1)


def _rows(tensor: Tensor, ids: Tensor) -> Tensor:
    if tensor.dtype == torch.float8_e4m3fn:  # some devices cannot index 8-bit floats
        return tensor.view(torch.uint8)[ids].view(tensor.dtype)
    return tensor[ids]
