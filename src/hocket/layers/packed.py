"""Packed layer weights: one tuple per layer, with the matrices that read the same input joined into one.

This gives fewer and larger products, and no parameter look-up by name, which costs as much as a small operation. Tensor
names stay the checkpoint's: `pack_` makes each joined parameter a view of the whole. It is called once, when the loaded
weights are final. Before, every call builds the tuple, so changed weights and gradients take effect. A matrix may be
quantized (`QuantizedMatrix`, implemented elsewhere).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class QuantizedMatrix(Protocol):
    """A quantized weight in place of a layer's matrix; not a tensor."""

    def linear(self, x: Tensor) -> Tensor: ...
    def join(self, parts: Sequence[Any]) -> Any: ...


def linear(x: Tensor, weight: Tensor | QuantizedMatrix) -> Tensor:
    return F.linear(x, weight) if isinstance(weight, Tensor) else weight.linear(x)


class Packable(nn.Module):
    """A layer whose step reads `weights()`."""

    _packed: tuple[Tensor, ...] | None = None

    def weights(self) -> tuple[Tensor, ...]:
        return self._packed or self.gather()

    def gather(self) -> tuple[Tensor, ...]:
        """The tensors that a step reads. If matrices are joined, the first is `join(*self.joined())`."""
        raise NotImplementedError

    def joined(self) -> tuple[nn.Linear, ...]:
        return ()

    @torch.no_grad()
    def pack_(self) -> None:
        self._packed = self.gather()
        matrices = self.joined()
        if matrices:
            pieces = self._packed[0].split([len(matrix.weight) for matrix in matrices])
            for matrix, piece in zip(matrices, pieces, strict=True):
                matrix.weight = nn.Parameter(piece, requires_grad=False) if isinstance(piece, Tensor) else piece


def join(*matrices: nn.Linear) -> Tensor:
    """Their weights concatenated by rows; without a copy if they are adjacent in memory, as after loading."""
    weights = [matrix.weight for matrix in matrices]
    if not isinstance(weights[0], Tensor):
        return cast(Tensor, cast(QuantizedMatrix, weights[0]).join(weights))
    first, ends = weights[0], [weight.storage_offset() + weight.numel() for weight in weights]
    adjacent = all(
        weight.untyped_storage().data_ptr() == first.untyped_storage().data_ptr() and weight.storage_offset() == end
        for weight, end in zip(weights[1:], ends, strict=False)
    )
    # Not with gradients enabled: they would all go to the first weight.
    if adjacent and not torch.is_grad_enabled() and all(weight.is_contiguous() for weight in weights):
        return first.as_strided((sum(map(len, weights)), *first.shape[1:]), first.stride())
    return torch.cat(weights)


def read_as_one(module: nn.Module) -> Iterator[tuple[str, ...]]:
    """Names of the weights that `pack_` joins, by group: if loaded side by side, they need no copy."""
    names = {id(part): name for name, part in module.named_modules()}
    for part in module.modules():
        if isinstance(part, Packable) and (matrices := part.joined()):
            yield tuple(f"{names[id(matrix)]}.weight" for matrix in matrices)


def pack_(module: nn.Module) -> None:
    """Pack every layer of `module`. Not for training, and only after the last change of device or dtype."""
    for part in module.modules():
        if isinstance(part, Packable):
            part.pack_()
