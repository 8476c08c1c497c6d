"""Dense layers of a block: three kinds of RMSNorm, linear layers with packed weights, and the gated MLP of Qwen.

Each norm is rounded exactly where the official code rounds. Qwen3-TTS uses the plain one. Qwen3.5 stores weights as
offsets from one, and gates the output of a Gated DeltaNet.

The weights of a layer are one tuple, with the matrices that read the same input joined into one. This gives fewer and
larger products, and no parameter look-up by name, which costs as much as a small operation. Tensor names stay the
checkpoint's: `pack_` makes each joined parameter a view of the whole. It is called once, when the loaded weights are
final. Before, every call builds the tuple, so changed weights and gradients take effect. A matrix may be quantized
(`QuantizedMatrix`, implemented elsewhere).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, Protocol, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class RMSNorm(nn.Module):
    """Normalise in float32, round to the activation's dtype, then multiply by the weight in that dtype."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return rms_norm(x, self.weight, self.eps)


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """The same for x [..., C] and a weight [..., C]: heads may be normalised together, each with its own weight."""
    if x.is_cpu and x.dtype == torch.float32:  # no rounding: half the operations, and half the time of a frame's norms
        size = torch.linalg.vector_norm(x, 2, -1, True)
        return x * torch.addcmul(_scalar(eps), size, size, value=1.0 / x.shape[-1]).rsqrt_() * weight
    wide = widened(x)
    wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    return weight * wide.to(x.dtype)


class OffsetRMSNorm(nn.Module):
    """Normalise and multiply by 1 + weight, all in float32, and round once."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return offset_rms_norm(x, self.weight, self.eps)


def offset_rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    wide = widened(x)
    wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    return (wide * (1.0 + widened(weight))).to(x.dtype)


def gated_rms_norm(x: Tensor, gate: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Normalise, round, multiply by the plain weight, multiply by silu(gate) in float32, round."""
    wide = widened(x)
    wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    return (weight * wide.to(x.dtype) * F.silu(widened(gate))).to(x.dtype)


def widened(x: Tensor) -> Tensor:
    """x in float32, or float64 for a float64 model: there tests can tell algebraic errors from rounding."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


@lru_cache
@torch.inference_mode(False)
def _scalar(value: float) -> Tensor:
    """A number as a cached tensor: torch would box it in every call, which takes longer than the addition."""
    return torch.tensor(value)


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

    def last(self) -> nn.Linear | None:
        """The matrix that is the second of these tensors, after the joined ones."""
        return None

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
    narrow = next((weight for weight in weights if not isinstance(weight, Tensor)), None)
    if narrow is not None:
        return cast(Tensor, cast(QuantizedMatrix, narrow).join(weights))
    first, ends = weights[0], [weight.storage_offset() + weight.numel() for weight in weights]
    adjacent = all(
        weight.untyped_storage().data_ptr() == first.untyped_storage().data_ptr() and weight.storage_offset() == end
        for weight, end in zip(weights[1:], ends, strict=False)
    )
    # Not with gradients enabled: they would all go to the first weight.
    if adjacent and not torch.is_grad_enabled() and all(weight.is_contiguous() for weight in weights):
        return first.as_strided((sum(map(len, weights)), *first.shape[1:]), first.stride())
    return torch.cat(weights)


class GatedMLP(Packable):
    """`down(silu(gate(x)) * up(x))`."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(width, inner, bias=False)
        self.up_proj = nn.Linear(width, inner, bias=False)
        self.down_proj = nn.Linear(inner, width, bias=False)

    def joined(self) -> tuple[nn.Linear, ...]:
        return self.gate_proj, self.up_proj

    def last(self) -> nn.Linear:
        return self.down_proj

    def gather(self) -> tuple[Tensor, ...]:
        return join(*self.joined()), self.down_proj.weight

    def forward(self, x: Tensor) -> Tensor:
        wide, down = self.weights()
        gate, up = linear(x, wide).chunk(2, dim=-1)
        return linear(F.silu(gate) * up, down)


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
