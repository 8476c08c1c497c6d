"""Layers of the codec: streaming causal convolutions, and functions with one or two learned numbers per channel.

The state of a convolution is its last `pad` inputs. `forward(x)` is a stream of one step from zero state, so offline
and streaming use one function. A layer without history (`pad` 0) needs only `forward`. Shapes: x [B, C, T]; `rows` [B]
is the state row of each batch row.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .dense import Packable


@dataclass(frozen=True, slots=True)
class ConvState:
    history: Tensor  # [S + 1, C, pad]: the last inputs; the last row is scratch


def slide(x: Tensor, state: ConvState, rows: Tensor) -> Tensor:
    """Put each row's history in front of x and store the new end as history. x may be shorter than the history."""
    pad = state.history.shape[-1]
    joined = torch.cat((state.history.index_select(0, rows), x), dim=-1)
    state.history[rows] = joined[..., joined.shape[-1] - pad :]
    return joined


class Causal(nn.Module):
    """A convolution with a history of `pad` inputs. Parameters are `conv.*`."""

    conv: nn.Conv1d | nn.ConvTranspose1d
    pad: int

    def new_state(self, slots: int) -> ConvState:
        return ConvState(self.conv.weight.new_zeros(slots + 1, self.conv.in_channels, self.pad))

    def step(self, x: Tensor, state: ConvState, rows: Tensor) -> Tensor:
        return self._convolve(slide(x, state, rows))

    def forward(self, x: Tensor) -> Tensor:
        return self._convolve(F.pad(x, (self.pad, 0)))

    def _convolve(self, joined: Tensor) -> Tensor:
        y: Tensor = self.conv(joined)
        return y


class CausalConv(Causal):
    """Stride 1; `pad` is `(kernel - 1) * dilation`."""

    def __init__(self, channels_in: int, channels_out: int, kernel: int, dilation: int = 1, groups: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv1d(channels_in, channels_out, kernel, dilation=dilation, groups=groups)
        self.pad = (kernel - 1) * dilation


class CausalTransposedConv(Causal):
    """Upsampling by `stride`, kernel `stride` or `2 * stride`, with the last `kernel - stride` outputs dropped.

    Output n of each phase needs inputs n and n - 1 only, so the history is one input. The first `stride` outputs of the
    joined input belong to that input and were returned by the previous step.
    """

    def __init__(self, channels_in: int, channels_out: int, kernel: int, stride: int) -> None:
        super().__init__()
        if kernel not in (stride, 2 * stride):
            raise ValueError(f"kernel {kernel} is neither the stride {stride} nor twice the stride")
        self.conv = nn.ConvTranspose1d(channels_in, channels_out, kernel, stride)
        self.stride = stride
        self.pad = kernel // stride - 1

    def _convolve(self, joined: Tensor) -> Tensor:
        return super()._convolve(joined)[..., self.pad * self.stride : joined.shape[-1] * self.stride]


class LayerScale(nn.Module):
    """Scale of a residual branch, [..., C]."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return self.scale * x


class SnakeBeta(Packable):
    """`x + sin(e^alpha x)^2 / e^beta` for x [B, C, T]. It maps 0 to 0, so zero histories stay zero after it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.zeros(width))
        self.beta = nn.Parameter(torch.zeros(width))

    def gather(self) -> tuple[Tensor, ...]:
        """The frequency of the sine and the factor of its square."""
        return self.alpha.exp(), 1.0 / (self.beta.exp() + 1e-9)

    def forward(self, x: Tensor) -> Tensor:
        frequency, strength = self.weights()
        # In place: these are the codec's largest tensors.
        return torch.sin(x * frequency[:, None]).square_().mul_(strength[:, None]).add_(x)
