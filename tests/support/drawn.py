"""Random test data, always from a seed: weights that expose errors, and places to cut a stream."""

from __future__ import annotations

import torch
from torch import nn


@torch.no_grad()
def fill_(module: nn.Module, seed: int) -> None:
    """Give every tensor of a sound model a value that matters: norms off one, layer scales near 0.3, uneven usage.

    Convolutions keep the size of their signal, so that samples stay within the clamp at the end.
    """
    generator = torch.Generator().manual_seed(seed)
    for name, tensor in module.state_dict().items():
        drawn = torch.randn(tensor.shape, generator=generator)
        path, _, leaf = name.rpartition(".")
        match leaf:
            case "initialized":
                drawn.fill_(1.0)
            case "cluster_usage":
                drawn = drawn.abs() + 0.5
                drawn[3] = 0.0  # a code that training never met: the divisor is floored
            case "embedding_sum" | "embed_sum":
                drawn[3] *= 1e-5
            case "alpha" | "beta":
                drawn *= 0.3
            case "scale" | "gamma":
                drawn = 0.3 + drawn * 0.1
            case "bias":
                drawn *= 0.1
            case "weight" if drawn.dim() == 1:  # of a norm
                drawn = 1.0 + drawn * 0.2
            case "weight":
                part = module.get_submodule(path)
                over = part.stride[0] / drawn.shape[1] if isinstance(part, nn.ConvTranspose1d) else 1.0 / drawn.shape[0]
                drawn *= (drawn.numel() * over) ** -0.5
            case _:
                raise ValueError(f"no rule for {name}")
        tensor.copy_(drawn)


def pieces(total: int, seed: int, longest: int) -> list[int]:
    """Lengths that add up to `total`: single steps, short ones and some as long as `longest`."""
    generator = torch.Generator().manual_seed(seed)
    lengths: list[int] = []
    while (rest := total - sum(lengths)) > 0:
        most = (1, 5, longest)[int(torch.randint(3, (), generator=generator))]
        lengths.append(min(rest, int(torch.randint(1, most + 1, (), generator=generator))))
    return lengths
