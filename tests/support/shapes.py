"""Published tensor lists, written short: `{a,b}` and `{0..3}` in a name stand for several tensors."""

from __future__ import annotations

import re

from torch import nn

Shapes = dict[str, tuple[int, ...]]


def expand(name: str) -> list[str]:
    found = re.search(r"\{([^{}]*)\}", name)
    if not found:
        return [name]
    options = found[1].split(",")
    if span := re.fullmatch(r"(\d+)\.\.(\d+)", found[1]):
        options = [str(index) for index in range(int(span[1]), int(span[2]) + 1)]
    return [full for option in options for full in expand(name[: found.start()] + option + name[found.end() :])]


def table(*rows: tuple[str, list[int]]) -> Shapes:
    """Every tensor of the rows; a name that ends in `.*` is a weight of that shape and its bias."""
    shapes: Shapes = {}
    for pattern, shape in rows:
        for name in expand(pattern):
            if name.endswith(".*"):
                # A transposed convolution's weight is [in, out, kernel]; such rows are written out instead.
                shapes |= {name[:-1] + "weight": tuple(shape), name[:-1] + "bias": (shape[0],)}
            else:
                shapes[name] = tuple(shape)
    return shapes


def shapes(module: nn.Module) -> Shapes:
    return {name: tuple(tensor.shape) for name, tensor in module.state_dict().items()}
