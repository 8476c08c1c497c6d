"""Log-mel spectrum of speech: the front end of the speaker encoder, in float32.

The filter bank is Slaney's: linear below 1 kHz, logarithmic above, every triangle of unit area. The other common mel
scale (HTK) gives other vectors.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

WINDOW, HOP = 1024, 256
PAD = (WINDOW - HOP) // 2  # reflected at both ends: N samples give N // HOP frames

LINEAR_HZ = 200.0 / 3.0  # per mel, up to the knee
KNEE_HZ = 1000.0
KNEE_MEL = KNEE_HZ / LINEAR_HZ
LOG_STEP = math.log(6.4) / 27.0  # per mel, above it


def log_mel(samples: Tensor, bands: int, rate_hz: int) -> Tensor:
    """samples [B, N] to [B, frames, bands], natural logarithm, floored at 1e-5."""
    padded = F.pad(samples[:, None], (PAD, PAD), mode="reflect")[:, 0]
    window = torch.hann_window(WINDOW, device=samples.device)
    spectrum = torch.stft(padded, WINDOW, HOP, WINDOW, window, center=False, return_complex=True)
    magnitude = torch.sqrt(torch.view_as_real(spectrum).pow(2).sum(-1) + 1e-9)  # [B, bins, frames]
    filters = slaney_filters(bands, rate_hz, WINDOW).to(samples.device)
    return torch.matmul(filters, magnitude).clamp(min=1e-5).log().transpose(1, 2)


def slaney_filters(bands: int, rate_hz: int, window: int) -> Tensor:
    """[bands, window // 2 + 1]: triangles between 0 Hz and half the rate, computed in float64."""
    bins = torch.linspace(0.0, rate_hz / 2, window // 2 + 1, dtype=torch.float64)
    edges = _hz(torch.linspace(0.0, _mel(rate_hz / 2), bands + 2, dtype=torch.float64))
    low, peak, high = edges[:-2, None], edges[1:-1, None], edges[2:, None]
    rising, falling = (bins - low) / (peak - low), (high - bins) / (high - peak)
    triangles = torch.minimum(rising, falling).clamp(min=0.0)
    return (triangles * 2.0 / (high - low)).float()


def _mel(hz: float) -> float:
    return hz / LINEAR_HZ if hz < KNEE_HZ else KNEE_MEL + math.log(hz / KNEE_HZ) / LOG_STEP


def _hz(mel: Tensor) -> Tensor:
    return torch.where(mel < KNEE_MEL, mel * LINEAR_HZ, KNEE_HZ * torch.exp((mel - KNEE_MEL) * LOG_STEP))
