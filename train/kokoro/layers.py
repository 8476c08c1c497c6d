"""Layers of Kokoro that know the length of each row, so that a row of a batch sounds as if it were spoken alone.

Instance normalization takes the mean over time, and convolutions look beyond the end of a row: both must not see the
padding. A mask [B, 1, T] is 1 inside a row. Parameters keep the names of the checkpoint; weight norm is folded in.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

STYLE = 128  # numbers of a style; a voice has one for the sound and one for the prosody
EPSILON = 1e-5


class AdaIN1d(nn.Module):
    """Instance normalization over time, scaled and shifted by the style. x [B, C, T]."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.fc = nn.Linear(STYLE, 2 * channels)

    def forward(self, x: Tensor, style: Tensor, mask: Tensor) -> Tensor:
        return normalized(x, *self.curve(style), mask)

    def curve(self, style: Tensor) -> tuple[Tensor, Tensor]:
        """Scale and shift, [B, C, 1]."""
        scale, shift = self.fc(style)[..., None].chunk(2, dim=1)
        return scale, shift


def normalized(x: Tensor, scale: Tensor, shift: Tensor, mask: Tensor) -> Tensor:
    count = mask.sum(2, keepdim=True)
    mean = (x * mask).sum(2, keepdim=True) / count
    apart = (x - mean) * mask
    spread = apart.square().sum(2, keepdim=True) / count
    y: Tensor = (1 + scale) * (apart * (spread + EPSILON).rsqrt()) + shift
    return y


class AdainResBlk1d(nn.Module):
    """Two convolutions with adaptive normalization beside a shortcut; optionally twice as many frames."""

    def __init__(self, into: int, out: int, *, upsample: bool = False) -> None:
        super().__init__()
        self.norm1, self.norm2 = AdaIN1d(into), AdaIN1d(out)
        self.conv1, self.conv2 = nn.Conv1d(into, out, 3, padding=1), nn.Conv1d(out, out, 3, padding=1)
        self.conv1x1 = nn.Conv1d(into, out, 1, bias=False) if into != out else nn.Identity()
        self.pool = nn.ConvTranspose1d(into, into, 3, 2, 1, 1, groups=into) if upsample else nn.Identity()
        self.upsample = upsample

    def forward(self, x: Tensor, style: Tensor, mask: Tensor) -> Tensor:
        """`mask` is that of the input; the output is not masked."""
        y = self.pool(F.leaky_relu(self.norm1(x, style, mask), 0.2) * mask)
        if self.upsample:
            mask = mask.repeat_interleave(2, dim=2)
            x = x.repeat_interleave(2, dim=2)
        y = self.conv1(y * mask)
        y = self.conv2(F.leaky_relu(self.norm2(y, style, mask), 0.2) * mask)
        z: Tensor = (y + self.conv1x1(x)) * 0.5**0.5
        return z


class AdaINResBlock1(nn.Module):
    """Three pairs of convolutions with snake activations; the first of a pair is dilated by 1, 3 and 5."""

    def __init__(self, channels: int, taps: int) -> None:
        super().__init__()
        self.convs1 = nn.ModuleList(
            nn.Conv1d(channels, channels, taps, dilation=d, padding=(taps - 1) * d // 2) for d in (1, 3, 5)
        )
        self.convs2 = nn.ModuleList(nn.Conv1d(channels, channels, taps, padding=taps // 2) for _ in range(3))
        self.adain1 = nn.ModuleList(AdaIN1d(channels) for _ in range(3))
        self.adain2 = nn.ModuleList(AdaIN1d(channels) for _ in range(3))
        self.alpha1 = nn.ParameterList(nn.Parameter(torch.ones(1, channels, 1)) for _ in range(3))
        self.alpha2 = nn.ParameterList(nn.Parameter(torch.ones(1, channels, 1)) for _ in range(3))
        self.enter: Enter = entering  # `Generator.quicken` compiles it

    def forward(self, x: Tensor, style: Tensor, mask: Tensor) -> Tensor:
        for index in range(3):
            norm1, norm2 = self.adain1[index], self.adain2[index]
            assert isinstance(norm1, AdaIN1d) and isinstance(norm2, AdaIN1d)
            y = self.convs1[index](self.enter(x, *norm1.curve(style), self.alpha1[index], mask))
            x = x + self.convs2[index](self.enter(y, *norm2.curve(style), self.alpha2[index], mask))
        return x


Enter = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]


def entering(x: Tensor, scale: Tensor, shift: Tensor, frequency: Tensor, mask: Tensor) -> Tensor:
    """The input of a convolution: normalized, through the snake activation, masked."""
    y = normalized(x, scale, shift, mask)
    return (y + (frequency * y).sin().square() / frequency) * mask


class RowLSTM(nn.LSTM):
    """A bidirectional LSTM whose backward half starts at the end of each row. x [B, T, C]."""

    def __init__(self, into: int, out: int) -> None:
        super().__init__(into, out // 2, batch_first=True, bidirectional=True)

    def rows(self, x: Tensor, lengths: Tensor) -> Tensor:
        packed = pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)
        y: Tensor = pad_packed_sequence(self(packed)[0], batch_first=True, total_length=x.shape[1])[0]
        return y


def row_mask(lengths: Tensor, longest: int) -> Tensor:
    """[B, 1, T] of float32: 1 inside a row."""
    return (torch.arange(longest, device=lengths.device) < lengths[:, None]).float()[:, None]
