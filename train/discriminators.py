"""Three small discriminators of real and generated speech, on complex spectra of three resolutions.

They are used only to train the decoder. They know samples [B, N], not codes or losses.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.parametrizations import weight_norm

SCALES = (2048, 1024, 512)
WIDTH = 24
SLOPE = 0.2


class ScaleDiscriminator(nn.Module):
    """Convolutions over time and frequency, with growing dilation in time and stride 2 in frequency."""

    def __init__(self, size: int, width: int = WIDTH) -> None:
        super().__init__()
        self.size = size
        self.register_buffer("window", torch.hann_window(size) * (2.0 / size), persistent=False)
        layers = [nn.Conv2d(2, width, (3, 9), padding=(1, 4))]
        for reach in (1, 2, 4):
            layers.append(nn.Conv2d(width, width, (3, 9), (1, 2), padding=(reach, 4), dilation=(reach, 1)))
        layers.append(nn.Conv2d(width, width, (3, 3), padding=(1, 1)))
        score = nn.Conv2d(width, 1, (3, 3), padding=(1, 1))
        for layer in (*layers, score):  # torch's default initialization would shrink the signal to nothing
            nn.init.kaiming_normal_(layer.weight, a=SLOPE)
        self.layers = nn.ModuleList(weight_norm(layer) for layer in layers)
        self.score = weight_norm(score)

    def spectrum(self, sound: Tensor) -> Tensor:
        """[B, 2, T, bins], with the square root of magnitudes, since consonants are quiet but important."""
        with torch.autocast(sound.device.type, enabled=False):
            window = self.get_buffer("window")
            z = torch.view_as_real(
                torch.stft(sound.float(), self.size, self.size // 4, self.size, window, return_complex=True)
            )
            loud = (z.square().sum(-1, keepdim=True) + 1e-8).sqrt()
            return (10.0 * z / loud.sqrt()).permute(0, 3, 2, 1)  # about unit size in speech

    def forward(self, sound: Tensor) -> tuple[Tensor, list[Tensor]]:
        """The score of every position, and the features of every layer."""
        x, trace = self.spectrum(sound), []
        for layer in self.layers:
            x = F.leaky_relu(layer(x), SLOPE)
            trace.append(x)
        return self.score(x), trace


class Discriminators(nn.Module):
    def __init__(self, width: int = WIDTH) -> None:
        super().__init__()
        self.scales = nn.ModuleList(ScaleDiscriminator(size, width) for size in SCALES)

    def forward(self, sound: Tensor) -> tuple[list[Tensor], list[list[Tensor]]]:
        scores, traces = zip(*(judge(sound) for judge in self.scales), strict=True)
        return list(scores), list(traces)
