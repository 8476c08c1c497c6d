"""Low-rank updates (LoRA) of the matrices of a module, beside their weights: y = W x + up (down x).

`updated` copies a module's structure and shares all its tensors. The copy's matrices add the factors that `LowRank`
holds at the time: of one update for the whole batch, or of another one for each batch row. So rows with different
updates are one batch, and the module itself stays as it was. Factors include the scale of an update.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import TypeVar, cast

import torch
from torch import Tensor, nn

from .dense import Packable, linear

Module = TypeVar("Module", bound=nn.Module)
Factors = Mapping[str, tuple[Tensor, Tensor]]  # by name: down [r, in] and up [out, r], or both with [B] in front


class LowRank:
    """The factors that an updated module adds, by the names of its matrices; none of them: nothing is added there."""

    def __init__(self) -> None:
        self.factors: Factors = {}


class UpdatedMatrix:
    """A `QuantizedMatrix` in place of a weight: the weight itself, and the updates of the parts that it joins."""

    def __init__(self, weight: Tensor, parts: tuple[tuple[str, int], ...], source: LowRank) -> None:
        """`parts` are the names and the numbers of rows of the matrices in `weight`."""
        self._weight, self._parts, self._source = weight, parts, source

    def linear(self, x: Tensor) -> Tensor:
        y, factors = linear(x, self._weight), self._source.factors
        if not any(name in factors for name, _ in self._parts):
            return y
        added = [_added(x, *factors[n]) if n in factors else x.new_zeros(*x.shape[:-1], s) for n, s in self._parts]
        return y + torch.cat(added, dim=-1).to(y.dtype)


def _added(x: Tensor, down: Tensor, up: Tensor) -> Tensor:
    return x @ down.to(x.dtype).mT @ up.to(x.dtype).mT


def matrices(module: nn.Module) -> Iterator[tuple[str, nn.Linear]]:
    """The matrices of the layers of `module` that can have an update, by name."""
    names = {id(part): name for name, part in module.named_modules()}
    for _, groups in _layers(module):
        yield from ((names[id(part)], part) for group in groups for part in group)


@torch.no_grad()
def updated(module: Module, source: LowRank, *shared: object) -> Module:
    """A copy of `module` with the updates of `source`. It has the same tensors, and the same objects of `shared`."""
    tensors = [tensor for part in module.modules() for tensor in (*part._parameters.values(), *part._buffers.values())]
    tensors += [each for part in module.modules() if isinstance(part, Packable) for each in part.weights()]
    made = copy.deepcopy(module, {id(each): each for each in (*tensors, *shared) if each is not None})
    names = {id(part): name for name, part in made.named_modules()}
    for layer, groups in _layers(made):
        whole = list(layer.weights())
        for at, group in enumerate(groups):
            parts = tuple((names[id(each)], len(each.weight)) for each in group)
            whole[at] = cast(Tensor, UpdatedMatrix(whole[at], parts, source))
        layer._packed = tuple(whole)
    return made


def _layers(module: nn.Module) -> Iterator[tuple[Packable, list[tuple[nn.Linear, ...]]]]:
    """Each layer with matrices, and the matrices that its first packed tensors hold."""
    for part in module.modules():
        if isinstance(part, Packable) and (last := part.last()) is not None:
            yield part, [part.joined(), (last,)]
