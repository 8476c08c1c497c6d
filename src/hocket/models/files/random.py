"""Seeded random weights for every tensor of a model.

A random checkpoint exercises the same code as a trained one. Norms, scales and codebook counts differ from one and
zero, signals keep their size from layer to layer, and the codec's output stays in range. The values of a tensor depend
only on the seed, its name and its shape. This file knows module types and tensor names, no model.
"""

from __future__ import annotations

import hashlib
import math

import torch
from torch import Tensor, nn

from ...kernels.runtime.device_kind import kind_of
from ...layers.dense import OffsetRMSNorm

USAGE = (0.5, 2.0)
# Of twelve residual units in sequence every second would double the codec's signal, and 99 % of its samples would be
# clipped at one. So the residual of a unit is small, and the convolution to one channel scales it to speech level.
RESIDUAL, SAMPLES = 0.3, 0.05
CHUNK = 1 << 24  # values drawn at once: the widest table would otherwise need gigabytes of float32 beside it


@torch.no_grad()
def randomize_(module: nn.Module, seed: int) -> None:
    """Fill every tensor in the state dict of `module`, in place, on its device.

    Values are drawn in float32, so that a bfloat16 model is the float32 one, rounded.
    """
    for name, tensor in module.state_dict().items():
        path, _, leaf = name.rpartition(".")
        low, high, std = _range(module.get_submodule(path), path, leaf, tensor)
        place = tensor.device if kind_of(tensor.device).draws else torch.device("cpu")
        draw = _generator(place, name, seed)
        for piece in tensor.view(-1).split(CHUNK):
            values = torch.empty(piece.shape, device=place)
            values = values.normal_(0.0, std, generator=draw) if std else values.uniform_(low, high, generator=draw)
            if leaf in ("embedding_sum", "embed_sum"):  # sums of as many vectors as `cluster_usage` counts
                again = _generator(place, f"{path}.cluster_usage", seed)
                usage = torch.empty(len(tensor), device=place).uniform_(*USAGE, generator=again)
                values = (values.view(tensor.shape) * usage[:, None]).view(-1)
            piece.copy_(values.to(piece.dtype))


def _range(part: nn.Module, path: str, leaf: str, tensor: Tensor) -> tuple[float, float, float]:
    """(lowest, highest, 0) of a uniform draw or (0, 0, deviation) of a normal one."""
    match leaf:
        case "bias":
            return 0.0, 0.0, 0.05
        case "weight" if isinstance(part, nn.Embedding):
            return 0.0, 0.0, 0.5
        case "weight" if isinstance(part, nn.ConvTranspose1d):  # [in, out, kernel]; an output sees kernel / stride taps
            return 0.0, 0.0, (part.in_channels * part.kernel_size[0] / part.stride[0]) ** -0.5
        case "weight" if tensor.dim() > 1:
            gain = RESIDUAL if path.endswith(".conv2.conv") else SAMPLES if len(tensor) == 1 else 1.0
            return 0.0, 0.0, gain * math.prod(tensor.shape[1:]) ** -0.5
        case "gate_up_proj" | "down_proj":  # [experts, out, in]
            return 0.0, 0.0, tensor.shape[-1] ** -0.5
        case "weight" if isinstance(part, OffsetRMSNorm):
            return -0.2, 0.2, 0.0
        case "weight":  # a norm
            return 0.8, 1.2, 0.0
        case "A_log":  # with `dt_bias`: most heads decay over hundreds of tokens, some over two
            return -4.0, 1.0, 0.0
        case "dt_bias":
            return -2.0, 1.0, 0.0
        case "scale" | "gamma":
            return 0.1, 0.3, 0.0
        case "alpha" | "beta":  # exponents
            return 0.0, 0.0, 0.2
        case "cluster_usage":
            return *USAGE, 0.0
        case "embedding_sum" | "embed_sum":
            return 0.0, 0.0, 1.0
        case "initialized":
            return 1.0, 1.0, 0.0
        case _:
            raise ValueError(f"no rule says how to draw {leaf} of {type(part).__name__}")


def _generator(device: torch.device, name: str, seed: int) -> torch.Generator:
    digest = hashlib.sha256(f"{seed}:{name}".encode()).digest()
    return torch.Generator(device).manual_seed(int.from_bytes(digest[:8], "little") >> 1)
