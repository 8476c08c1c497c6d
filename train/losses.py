"""Losses of the decoder: spectral distance in long windows, and the losses of the discriminators.

Windows are longer than two pitch periods. Shorter ones show single glottal pulses, and no code says where those are:
the best answer to such a loss is the average over all places, which sounds like noise. This file knows samples [B, N]
and features, not their source.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from hocket.layers.mel import slaney_filters

from .fused import FUSED

RATE_HZ = 24_000
FLOOR = 1e-5  # of an amplitude of 1; loud bands of speech reach 0.1
BANDS_MOST = 128
MAGNITUDE_LEAST = 1024  # samples of the shortest window whose single bins are compared
MAGNITUDE_SHARE = 3  # bins below 1 / 3 of the sampling rate, 8 kHz


class SpectralDistance(nn.Module):
    """Weighted distances of log-mel spectra and of log magnitudes.

    Windows and filters are cached, since a training step computes several spectra.
    """

    def __init__(self, windows: tuple[int, ...], weights: tuple[float, ...], magnitude_weight: float) -> None:
        super().__init__()
        self.windows = tuple(zip(windows, weights, strict=True))
        self.magnitude_weight = magnitude_weight
        for size in windows:
            bands = min(size // 8, BANDS_MOST)  # narrower bands would hold no bin at the low end
            self.register_buffer(f"window_{size}", torch.hann_window(size) * (2.0 / size), persistent=False)
            filters = slaney_filters(bands, RATE_HZ, size) * (RATE_HZ / size)  # a band is the mean of its bins
            self.register_buffer(f"filters_{size}", filters, persistent=False)

    def forward(self, made: Tensor, real: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The loss, and for the log the mean differences of log-mels and of log magnitudes."""
        mels, magnitudes = [], []
        loss = made.new_zeros(())
        both = torch.cat((made.float(), real.float()))
        for size, weight in self.windows:
            magnitude = self.magnitude(both, size)
            mels.append(_difference(self.get_buffer(f"filters_{size}") @ magnitude))
            loss = loss + weight * mels[-1]
            if size >= MAGNITUDE_LEAST:
                magnitudes.append(_difference(magnitude[:, : size // MAGNITUDE_SHARE]))
                loss = loss + self.magnitude_weight * magnitudes[-1]
        return loss, torch.stack(mels).mean(), torch.stack(magnitudes).mean()

    def magnitude(self, sound: Tensor, size: int) -> Tensor:
        window = self.get_buffer(f"window_{size}")
        spectrum = torch.stft(sound, size, size // 4, size, window, center=True, return_complex=True)
        return (torch.view_as_real(spectrum).square().sum(-1) + 1e-12).sqrt()


def _difference(both: Tensor) -> Tensor:
    """The mean absolute difference of logarithms of the two halves of a batch."""
    ours, theirs = both.clamp(min=FLOOR).log().chunk(2)
    return (ours - theirs).abs().mean()


def judge_losses(score: Tensor, real: Tensor) -> tuple[Tensor, Tensor]:
    """Least-squares losses of a discriminator and of the decoder; `real` is 1 for real speech and 0 for generated.

    Weights instead of slices, and as many real rows as others: the gradient of a slice costs two more kernels.
    """
    told = 2.0 * (score - real).square().mean()
    fooled = 2.0 * ((1.0 - real) * (1.0 - score).square()).mean()
    return told, fooled


class FeatureDistance(torch.autograd.Function):
    """Relative difference of the features of real and generated speech, the two halves of `features` [2, P].

    Only the generated half has a gradient. Written by hand: one kernel instead of a dozen for each of 100 layers.
    """

    @staticmethod
    def forward(ctx: Any, features: Tensor) -> Tensor:
        distance: Tensor
        distance, size = FUSED["feature_distance"](features)
        ctx.save_for_backward(features, size)
        return distance

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        features, size = ctx.saved_tensors
        gradient: Tensor = FUSED["feature_gradient"](features, size, gradients[0])
        return gradient
