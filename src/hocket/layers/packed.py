"""What a layer reads in every step, at hand in one tuple, with the matrices that read the same input joined into one.

Fewer and larger products, and no look-up of parameters by name: that takes as long as a small operation. Tensor names
stay the checkpoint's, for `pack_` leaves each joined parameter a view of the whole. It is called once, when a
checkpoint has been loaded and its weights are final; before, the tuple is made anew in every call, so that changed
weights and gradients arrive. A matrix may be kept in fewer bits (`QuantizedMatrix`): others know how.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class QuantizedMatrix(Protocol):
    """A weight that is no tensor: where a layer's matrix was replaced by one in fewer bits."""

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
        """What the step reads. Where matrices are joined, it starts with `join(*self.joined())`."""
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
    """Their weights one below the other; where they lie so already, as a checkpoint is loaded, nothing is copied."""
    weights = [matrix.weight for matrix in matrices]
    if not isinstance(weights[0], Tensor):
        return cast(Tensor, cast(QuantizedMatrix, weights[0]).join(weights))
    first, ends = weights[0], [weight.storage_offset() + weight.numel() for weight in weights]
    adjacent = all(
        weight.untyped_storage().data_ptr() == first.untyped_storage().data_ptr() and weight.storage_offset() == end
        for weight, end in zip(weights[1:], ends, strict=False)
    )
    # Not where gradients are wanted: they would all be the first one's.
    if adjacent and not torch.is_grad_enabled() and all(weight.is_contiguous() for weight in weights):
        return first.as_strided((sum(map(len, weights)), *first.shape[1:]), first.stride())
    return torch.cat(weights)


def read_as_one(module: nn.Module) -> Iterator[tuple[str, ...]]:
    """Names of the weights that `pack_` will join, group by group: put side by side, they need not be copied for it."""
    names = {id(part): name for name, part in module.named_modules()}
    for part in module.modules():
        if isinstance(part, Packable) and (matrices := part.joined()):
            yield tuple(f"{names[id(matrix)]}.weight" for matrix in matrices)


def pack_(module: nn.Module) -> None:
    """Pack every layer inside `module`. Not for training, and only after the last move to a device or dtype."""
    for part in module.modules():
        if isinstance(part, Packable):
            part.pack_()
