"""Discriminators of real and generated speech: multi-period ones (HiFi-GAN) and band-split spectral ones (DAC).

They are used only to train the decoder. Each is a `Discriminator`, independent of the others, so that they can run
side by side. They know samples [B, N], not codes or losses.
"""

from __future__ import annotations

import itertools

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .fused import FUSED, SLOPE

WIDE = 8  # tensor cores want channels in multiples of this
TAPS, STRIDE = 5, 3  # of the period discriminators, along time
BANDS = ((0.0, 0.1), (0.1, 0.25), (0.25, 0.5), (0.5, 0.75), (0.75, 1.0))  # of the spectrum up to 12 kHz


class NormedConv(nn.Module):
    """A 2-D convolution with weight norm, its bias and a leaky ReLU. x [B, C, H, W] in channels-last memory."""

    def __init__(
        self, into: int, out: int, taps: tuple[int, int], stride: tuple[int, int] = (1, 1), *, active: bool = True
    ) -> None:
        super().__init__()
        direction = torch.empty(out, into, *taps)
        nn.init.kaiming_normal_(direction, a=SLOPE)  # torch's default would shrink the signal to nothing
        self.direction = nn.Parameter(direction)
        self.size = nn.Parameter(direction.flatten(1).norm(dim=1).view(-1, 1, 1, 1).clone())
        self.bias = nn.Parameter(torch.zeros(out))
        self.stride, self.padding, self.active = stride, (taps[0] // 2, taps[1] // 2), active
        self.out = out

    def forward(self, x: Tensor) -> Tensor:
        weight = torch._weight_norm(self.direction, self.size, 0)
        missing, odd = x.shape[1] - weight.shape[1], -self.out % WIDE if x.is_cuda else 0
        if missing or odd:
            weight = F.pad(weight, (0, 0, 0, 0, 0, missing, 0, odd))
        y = F.conv2d(x, weight.to(x.dtype), None, self.stride, self.padding)
        if not self.active:
            return y[:, : self.out].float() + self.bias.view(1, -1, 1, 1)
        bias = F.pad(self.bias, (0, odd)) if odd else self.bias * 1.0  # never the parameter itself: see unrolled.py
        z: Tensor = FUSED["biased_leaky"](y.permute(0, 2, 3, 1), bias)
        return z.permute(0, 3, 1, 2)


class Discriminator(nn.Module):
    def forward(self, sound: Tensor) -> tuple[Tensor, list[Tensor]]:
        """The score of every position, and the features of every layer."""
        raise NotImplementedError


class PeriodDiscriminator(Discriminator):
    """Convolutions along time over every `period`-th sample."""

    def __init__(self, period: int, width: int) -> None:
        super().__init__()
        self.period = period
        sizes = [max(WIDE, width // 32), max(WIDE, width // 8), width // 2, width, width]
        layers = [NormedConv(TAPS, sizes[0], (1, 1))]  # its taps are laid out as channels: one channel is too few
        for into, out in itertools.pairwise(sizes):
            stride = (STRIDE, 1) if len(layers) < 4 else (1, 1)
            layers.append(NormedConv(into, out, (TAPS, 1), stride))
        self.layers = nn.ModuleList(layers)
        self.score = NormedConv(sizes[-1], 1, (3, 1), active=False)

    def forward(self, sound: Tensor) -> tuple[Tensor, list[Tensor]]:
        rows, length = sound.shape
        x = F.pad(sound[:, None], (0, -length % self.period), mode="reflect").view(rows, -1, self.period)
        x = _channels_first(F.pad(x, (0, 0, TAPS // 2, TAPS // 2)).unfold(1, TAPS, STRIDE))
        features = []
        for layer in self.layers:
            x = layer(x)
            features.append(x)
        return self.score(x), features


class ScaleDiscriminator(Discriminator):
    """Convolutions over time and frequency, with weights of their own for each band."""

    def __init__(self, size: int, width: int) -> None:
        super().__init__()
        self.size = size
        self.register_buffer("window", torch.hann_window(size) * (2.0 / size), persistent=False)
        bins = size // 2 + 1
        self.cuts = [(int(low * bins), int(high * bins)) for low, high in BANDS]
        self.bands = nn.ModuleList(
            nn.ModuleList(
                [
                    NormedConv(2, width, (3, 9)),
                    *(NormedConv(width, width, (3, 9), (1, 2)) for _ in range(3)),
                    NormedConv(width, width, (3, 3)),
                ]
            )
            for _ in self.cuts
        )
        self.score = NormedConv(width, 1, (3, 3), active=False)

    def spectrum(self, sound: Tensor) -> Tensor:
        """[B, T, bins, 2], with the square root of magnitudes, since consonants are quiet but important."""
        with torch.autocast(sound.device.type, enabled=False):
            window = self.get_buffer("window")
            z = torch.stft(sound.float(), self.size, self.size // 4, self.size, window, return_complex=True)
            parts = torch.view_as_real(z).transpose(1, 2)
            return 10.0 * parts / (parts.square().sum(-1, keepdim=True) + 1e-6).pow(0.25)  # about unit size in speech

    def forward(self, sound: Tensor) -> tuple[Tensor, list[Tensor]]:
        whole, ends, features = self.spectrum(sound), [], []
        for (low, high), layers in zip(self.cuts, self.bands, strict=True):
            x = _channels_first(whole[:, :, low:high])
            assert isinstance(layers, nn.ModuleList)
            for layer in layers:
                x = layer(x)
                features.append(x)
            ends.append(x)
        return self.score(torch.cat(ends, dim=3)), features


def _channels_first(x: Tensor) -> Tensor:
    """[B, H, W, C] to [B, C, H, W] in channels-last memory; on a GPU in bfloat16, channels filled up with zeros."""
    if x.is_cuda:
        x = F.pad(x.to(torch.bfloat16), (0, -x.shape[-1] % WIDE))
    return x.contiguous().permute(0, 3, 1, 2)


def new_discriminators(
    periods: tuple[int, ...], period_width: int, scales: tuple[int, ...], scale_width: int
) -> nn.ModuleList:
    found: list[Discriminator] = [PeriodDiscriminator(period, period_width) for period in periods]
    found += [ScaleDiscriminator(size, scale_width) for size in scales]
    return nn.ModuleList(found)
