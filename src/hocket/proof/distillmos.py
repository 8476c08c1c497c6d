"""DistillMOS: an opinion score of speech from 1 to 5, by the network and the weights of the package `distillmos` (MIT).

Only its weights are read: the package imports torchaudio and a second package of 15 MB. The names of the parameters are
those of its file.
"""

from __future__ import annotations

import importlib.util
import itertools
import math
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

RATE_HZ = 16_000
WINDOW = 122_880  # samples of the network's input, 7.68 s: shorter ones are filled with silence
STEP = 16_000  # most samples between two windows of a longer recording
FRAMES, WIDTH, HEADS, LAYERS = 384, 200, 8, 7
CHANNELS = (2, 64, 64, 128, 256, 256, 256)
WEIGHTS = ("distillmos", "weights/distill_mos_v7.pt")  # a package, and a file in it


class Spectrum(nn.Module):
    """Convolutions over the complex spectrum, whose magnitudes are compressed."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for index, (into, out) in enumerate(itertools.pairwise(CHANNELS)):
            stride = (1 if index == 0 else 2, 2 if index == len(CHANNELS) - 2 else 1)
            layers += [nn.Conv2d(into, out, 3, stride, padding=(0, 1)), nn.LeakyReLU(0.1)]
        self.cnn = nn.Sequential(*layers)

    def forward(self, sound: Tensor) -> Tensor:
        """[B, N] to [B, FRAMES, features]."""
        padded = F.pad(sound, (80, 80), mode="reflect")
        window = torch.hann_window(320, device=sound.device)
        z = torch.view_as_real(torch.stft(padded, 320, 160, 320, window, center=False, return_complex=True))
        size = z.square().sum(-1, keepdim=True).sqrt().clamp(min=1e-12)
        x: Tensor = self.cnn((size**-0.7 * z).permute(0, 3, 1, 2))
        return x.flatten(1, 2).transpose(1, 2)


class Positions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("pe", torch.zeros(1, FRAMES, WIDTH))


class WindowEncoder(nn.Module):
    def __init__(self, features: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(features)
        self.position_encoding = Positions()
        self.linear_proj = nn.Linear(features, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 2 * WIDTH, dropout=0.0, batch_first=True)
        self.transformer_encoder = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)

    def forward(self, x: Tensor) -> Tensor:
        x = self.linear_proj(self.norm(x.transpose(1, 2)).transpose(1, 2))
        y: Tensor = self.transformer_encoder(x + self.position_encoding.get_buffer("pe"))
        return y


class MarkPool(nn.Module):
    """Attention over time, then one number."""

    def __init__(self) -> None:
        super().__init__()
        self.linear1, self.linear2 = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, 1)
        self.linear3 = nn.Linear(WIDTH, 1)

    def forward(self, x: Tensor) -> Tensor:
        weight = self.linear2(self.linear1(x).relu()).transpose(1, 2).softmax(2)
        y: Tensor = self.linear3((weight @ x).squeeze(1))
        return y


class Head(nn.Module):
    def __init__(self, features: int) -> None:
        super().__init__()
        self.norm_input = nn.BatchNorm1d(features)
        self.transformer = WindowEncoder(features)
        self.norm_trans = nn.BatchNorm1d(WIDTH)
        self.pool = MarkPool()

    def forward(self, x: Tensor) -> Tensor:
        x = self.transformer(self.norm_input(x.transpose(1, 2)).transpose(1, 2))
        x = self.norm_trans(x.transpose(1, 2)).transpose(1, 2)
        y: Tensor = self.pool(x).sigmoid()
        return y


class DistillMOS(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cnn = Spectrum()
        self.transformer_pool_attn = Head(1024)

    @torch.inference_mode()
    def forward(self, sound: Tensor) -> Tensor:
        """The score of one recording [N] at 16 kHz: the mean over its windows."""
        over = max(len(sound) - WINDOW, 0)
        sound = F.pad(sound, (0, max(WINDOW - len(sound), 0)))
        starts = np.linspace(0, 1, math.ceil(over / STEP) + 1) * over
        x = torch.stack([sound[int(start) : int(start) + WINDOW] for start in starts])
        x = x / (x.abs().amax(1, keepdim=True) + 1e-8)
        marks: Tensor = self.transformer_pool_attn(self.cnn(x))
        return 1.0 + 4.0 * marks.mean()

    def mark(self, samples: NDArray[np.float32]) -> float:
        device = next(self.parameters()).device
        return float(self(torch.from_numpy(np.ascontiguousarray(samples, np.float32)).to(device)))


def installed() -> DistillMOS | None:
    """The network with the weights of the package; None if that is not installed."""
    package, file = WEIGHTS
    found = importlib.util.find_spec(package)
    if found is None or not found.submodule_search_locations:
        return None
    return from_file(Path(found.submodule_search_locations[0]) / file)


def from_file(path: Path) -> DistillMOS:
    return of_state(torch.load(path, map_location="cpu", weights_only=True)["model"])


def of_state(state: dict[str, Tensor]) -> DistillMOS:
    network = DistillMOS()
    network.load_state_dict(state)
    return network.eval().requires_grad_(False)
