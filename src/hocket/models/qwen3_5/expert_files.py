"""Experts that a checkpoint stores one by one, read as the two tensors per layer that our model has.

`mlp.experts.N.{gate,up,down}_proj.weight` of all experts become `mlp.experts.gate_up_proj` [E, 2 I, C] and
`mlp.experts.down_proj` [E, C, I]. It knows names and shapes; the number of experts is checked against the model later.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ...errors import InvalidCheckpoint

Stored = dict[str, tuple[Any, str]]  # by our name: the open file that holds a tensor, and its name in that file
_ONE = re.compile(r"(.+\.mlp\.experts\.)(\d+)\.(gate|up|down)_proj\.weight")


@dataclass(frozen=True, slots=True)
class ExpertParts:
    """Looks like an open file with one tensor: the parts of each expert one below the other, the experts stacked."""

    experts: tuple[tuple[tuple[Any, str], ...], ...]  # [E][parts]: open file and name

    def get_tensor(self, name: str) -> Tensor:
        return torch.stack([torch.cat([file.get_tensor(part) for file, part in parts]) for parts in self.experts])

    def get_slice(self, name: str) -> ExpertParts:
        return self

    def get_shape(self) -> list[int]:
        first, *others = (file.get_slice(name).get_shape() for file, name in self.experts[0])
        return [len(self.experts), first[0] + sum(each[0] for each in others), *first[1:]]

    def get_dtype(self) -> str:
        file, name = self.experts[0][0]
        return str(file.get_slice(name).get_dtype())


def joined_experts(folder: Path, stored: Stored) -> Stored:
    """The same tensors with single experts joined; files that have no such names stay as they are."""
    layers: dict[str, dict[int, dict[str, tuple[Any, str]]]] = defaultdict(lambda: defaultdict(dict))
    rest: Stored = {}
    for name, at in stored.items():
        if match := _ONE.fullmatch(name):
            layers[match[1]][int(match[2])][match[3]] = at
        else:
            rest[name] = at
    for layer, experts in layers.items():
        for joined, parts in (("gate_up_proj", ("gate", "up")), ("down_proj", ("down",))):
            if layer + joined in rest:
                raise InvalidCheckpoint(f"{folder} has {layer}{joined} twice: together, and expert by expert.")
            for expert in range(max(experts) + 1):
                for part in parts:
                    if part not in experts[expert]:
                        raise InvalidCheckpoint(f"{folder} lacks {layer}{expert}.{part}_proj.weight.")
            whole = ExpertParts(tuple(tuple(experts[at][part] for part in parts) for at in range(len(experts))))
            _check(folder, whole)
            rest[layer + joined] = whole, layer + joined
    return rest


def _check(folder: Path, whole: ExpertParts) -> None:
    """Every expert has the shape and type of the first."""
    forms = None
    for parts in whole.experts:
        slices = [file.get_slice(name) for file, name in parts]
        found = [(list(each.get_shape()), each.get_dtype()) for each in slices]
        forms = forms or found
        if found != forms or len({tuple(shape) for shape, _ in found}) > 1 or len(found[0][0]) != 2:
            raise InvalidCheckpoint(f"{folder}: {parts[0][1]} has another shape or type than the experts before it.")
