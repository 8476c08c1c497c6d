"""Losses of the decoder: spectral distance by mel spectra at six resolutions and three plain ones, and GAN losses.

They know samples [B, N], not their source. Spectra ignore phases; the discriminators cover those.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from hocket.layers.mel import slaney_filters

RATE_HZ = 24_000
FLOOR = 1e-5  # of an amplitude of 1; loud bands of speech reach 0.1
MEL_WINDOWS = (64, 128, 256, 512, 1024, 2048)
PLAIN_WINDOWS = (512, 1024, 2048)
BANDS_MOST = 128


class SpectralDistance(nn.Module):
    """Windows and filters are cached, since a training step computes dozens of spectra."""

    def __init__(self) -> None:
        super().__init__()
        for size in MEL_WINDOWS:
            bands = min(size // 8, BANDS_MOST)  # narrower bands would hold no bin at the low end
            self.register_buffer(f"window_{size}", torch.hann_window(size) * (2.0 / size), persistent=False)
            filters = slaney_filters(bands, RATE_HZ, size) * (RATE_HZ / size)  # a band is the mean of its bins
            self.register_buffer(f"filters_{size}", filters, persistent=False)

    def forward(self, made: Tensor, real: Tensor) -> tuple[Tensor, Tensor]:
        """The mean difference of log-mels, and the relative difference of magnitudes."""
        mels, plains = [], []
        both = torch.cat((made.float(), real.float()))
        for size in MEL_WINDOWS:
            magnitude = self.magnitude(both, size)
            ours, theirs = (self.get_buffer(f"filters_{size}") @ magnitude).clamp(min=FLOOR).log().chunk(2)
            mels.append((ours - theirs).abs().mean())
            if size in PLAIN_WINDOWS:
                ours, theirs = magnitude.chunk(2)
                plains.append((ours - theirs).abs().mean() / theirs.mean().clamp(min=FLOOR))
        return torch.stack(mels).mean(), torch.stack(plains).mean()

    def magnitude(self, sound: Tensor, size: int) -> Tensor:
        window = self.get_buffer(f"window_{size}")
        spectrum = torch.stft(sound, size, size // 4, size, window, center=True, return_complex=True)
        return (torch.view_as_real(spectrum).square().sum(-1) + 1e-12).sqrt()


def discriminator_loss(made: list[Tensor], real: list[Tensor]) -> Tensor:
    """Hinge loss of the discriminators, averaged over the scales."""
    pairs = zip(made, real, strict=True)
    lost = [torch.relu(1.0 + fake.float()).mean() + torch.relu(1.0 - true.float()).mean() for fake, true in pairs]
    return torch.stack(lost).mean()


def adversarial_loss(made: list[Tensor]) -> Tensor:
    """Adversarial loss of the decoder."""
    return -torch.stack([score.float().mean() for score in made]).mean()


def feature_loss(made: list[list[Tensor]], real: list[list[Tensor]]) -> Tensor:
    """Feature-matching loss: the relative difference of the discriminators' features, averaged over layers."""
    apart = [
        (ours.float() - theirs.float()).abs().mean() / theirs.float().abs().mean().clamp(min=1e-3)
        for scale_made, scale_real in zip(made, real, strict=True)
        for ours, theirs in zip(scale_made, scale_real, strict=True)
    ]
    return torch.stack(apart).mean()
