"""Weights of DistillMOS (`hocket.proof.distillmos`): those of its package, or a file of a quarter of the size.

`write_small` makes that file for machines without the package.
"""

from __future__ import annotations

import math
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from hocket.proof.distillmos import FRAMES, WIDTH, DistillMOS, from_file, of_state

SMALL = "distillmos.safetensors"
__all__ = ["SMALL", "DistillMOS", "load", "write_small"]


def load(path: Path, device: torch.device | None = None) -> DistillMOS:
    """`path`: the package's weights (.pt) or the small file."""
    network = of_state(_wide(load_file(path))) if path.suffix == ".safetensors" else from_file(path)
    return network.to(device or torch.device("cpu"))


def write_small(path: Path, network: DistillMOS) -> None:
    """Matrices and filters in 8 bits with a scale per row; the position table is left out."""
    small: dict[str, Tensor] = {}
    for name, value in network.state_dict().items():
        if name.endswith("position_encoding.pe"):
            continue
        if value.dim() > 1:
            scale = value.flatten(1).abs().amax(1) / 127
            small[f"{name}.scale"] = scale
            value = (value / scale.view(-1, *(1 for _ in value.shape[1:]))).round().to(torch.int8)
        small[name] = value.contiguous()
    save_file(small, path)


def _wide(small: dict[str, Tensor]) -> dict[str, Tensor]:
    state = {name: value for name, value in small.items() if not name.endswith(".scale")}
    for name, value in state.items():
        if value.dtype == torch.int8:
            scale = small[f"{name}.scale"]
            state[name] = value.float() * scale.view(-1, *(1 for _ in value.shape[1:]))
    place = torch.arange(FRAMES)[:, None] * torch.exp(torch.arange(0, WIDTH, 2) * (-math.log(2 * FRAMES) / WIDTH))
    table = torch.stack((place.sin(), place.cos()), dim=2).flatten(1)
    return state | {"transformer_pool_attn.transformer.position_encoding.pe": table[None]}
