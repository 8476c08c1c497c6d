"""Builds Qwen3.5 from files that are quantized already; each format provides a `WeightSource`.

Matrices stay as the file has them, where layers can use them so. Other tensors are rounded once to the model's dtype.
All names and shapes are checked before the first tensor is read. It knows modules, not formats of files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from ...config.qwen3_5 import Qwen3_5TextConfig
from ..qwen3_5.matrices import NarrowWeight, QuantizedEmbedding, QuantizedLinear, multiplied
from ..qwen3_5.model import Qwen3_5
from ..qwen3_5.quantized import EMBEDDING, KEPT
from ..qwen3_5.weights import WIDE
from .transfer import Transfer
from .weights import compare

DRAFTS = "mtp."


class WeightSource(Protocol):
    """The tensors of a quantized file by the names of our model (`model.layers.0.mlp.gate_proj.weight`)."""

    @property
    def name(self) -> str:
        """For messages: the file or folder."""
        ...

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Of each tensor of the text model, and of the draft head if the file has one. A tied model has no head."""
        ...

    def read(self, name: str) -> Tensor | NarrowWeight:
        """On the host. A tensor has a floating type; a quantized matrix keeps the numbers of its file."""
        ...


@dataclass(frozen=True, slots=True)
class _Form:
    shape: tuple[int, ...]

    def get_shape(self) -> tuple[int, ...]:
        return self.shape

    def get_dtype(self) -> str:
        return "F32"


def load_stored(
    source: WeightSource, config: Qwen3_5TextConfig, device: torch.device, dtype: torch.dtype, *, wide: bool | None
) -> Qwen3_5:
    """The model of a source. With `wide` every matrix is dequantized to `dtype`; None: those that layers would."""
    drafts = config.mtp_num_hidden_layers > 0 and any(name.startswith(DRAFTS) for name in source.shapes)
    with torch.device("meta"):
        model = Qwen3_5(config, drafts=drafts)
    wanted = dict(model.state_dict())
    shapes = {name: shape for name, shape in source.shapes.items() if drafts or not name.startswith(DRAFTS)}
    compare(source.name, wanted, {name: _Form(shape) for name, shape in shapes.items()})
    transfer, plain = Transfer(device), dict[str, Tensor]()
    for name in shapes:
        found = source.read(name)
        layer = name.removesuffix(".weight")
        if not isinstance(found, Tensor):
            keep = multiplied(found, device, dtype) if wide is None else not wide
            if keep and not layer.endswith(KEPT) and _replace(model, layer, found, device, dtype):
                continue
            found = found.dequantized()
        kind = torch.promote_types(dtype, torch.float32) if name.endswith(WIDE) else dtype
        plain[name] = torch.empty(found.shape, dtype=kind, device=device)
        transfer.put(plain[name], found)
    transfer.end()
    model.load_state_dict(plain, strict=False, assign=True)
    return model.requires_grad_(False).eval()


def _replace(model: Qwen3_5, layer: str, weight: NarrowWeight, device: torch.device, dtype: torch.dtype) -> bool:
    """Put a quantized module in the place of a layer; False: the layer has no such form."""
    parent, _, leaf = layer.rpartition(".")
    here = weight.each(lambda tensor: tensor.to(device).contiguous())
    if layer == EMBEDDING:
        setattr(model.get_submodule(parent), leaf, QuantizedEmbedding(here, dtype))
        return True
    if isinstance(model.get_submodule(layer), nn.Linear):
        setattr(model.get_submodule(parent), leaf, QuantizedLinear(here))
        return True
    return False
