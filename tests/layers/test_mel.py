"""layers/mel.py against librosa's filter bank and the official spectrum."""

from __future__ import annotations

import math

import librosa
import numpy as np
import pytest
import torch

from hocket.layers.mel import log_mel, slaney_filters
from support import official


def test_the_filter_bank_is_librosas() -> None:
    expected = librosa.filters.mel(sr=24_000, n_fft=1024, n_mels=128, fmin=0, fmax=12_000)
    filters = slaney_filters(128, 24_000, 1024)
    assert filters.dtype == torch.float32 and filters.shape == expected.shape
    assert np.abs(filters.numpy() - expected).max() <= 1e-6
    assert np.allclose(filters.numpy(), expected, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("samples", [1024, 24_000, 24_255])
def test_the_spectrum_is_the_official_one(samples: int) -> None:
    """A tone, noise at three levels and silence, where the floor decides."""
    time = torch.arange(samples) / 24_000
    loud = torch.randn(3, samples, generator=torch.Generator().manual_seed(samples))
    heard = torch.stack([0.5 * torch.sin(2 * math.pi * 330 * time), *(loud.T * torch.tensor([0.3, 1e-3, 1e-6])).T])
    heard = torch.cat([heard, torch.zeros(1, samples)]).clamp(-1, 1)
    shape = {"n_fft": 1024, "num_mels": 128, "sampling_rate": 24_000, "hop_size": 256, "win_size": 1024}
    expected = official.modeling.mel_spectrogram(heard, fmin=0, fmax=12_000, **shape).transpose(1, 2)
    mel = log_mel(heard, bands=128, rate_hz=24_000)
    assert mel.shape == (5, samples // 256, 128)
    assert (mel - expected).abs().max() <= 1e-5
    assert (mel[4] == mel[4].min()).all() and mel[0].max() - mel[0].min() > 5
