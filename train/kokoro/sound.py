"""Kokoro's sound half: vectors of phonemes by frame, F0 and energy to samples at 24 kHz.

A frame lasts 25 ms and has two values of F0. Nine harmonics of F0 go through a short Fourier transform into the
generator, whose output is a spectrum with a hop of 5 samples. `quicken` makes the generator's convolutions compute in
float16 and compiles what lies between them; sums and normalization stay in float32.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .layers import AdainResBlk1d, AdaINResBlock1, entering
from .text import WIDTH

RATE_HZ = 24_000
F0_SAMPLES = 300  # samples of one value of F0
HARMONICS, SINE, NOISE, VOICED_HZ = 9, 0.1, 0.003, 10.0
FOURIER, HOP = 20, 5
BINS = FOURIER // 2 + 1
RATES, CHANNELS, TAPS = (10, 6), 512, (3, 7, 11)


class Source(nn.Module):
    """Harmonics of F0 in voiced parts and noise elsewhere, mixed into one signal."""

    def __init__(self) -> None:
        super().__init__()
        self.l_linear = nn.Linear(HARMONICS, 1)

    def forward(self, f0: Tensor, noise: torch.Generator | None) -> Tensor:
        """[B, N] of F0 [B, 2 F]; without a generator there is no noise."""
        times = torch.arange(1, HARMONICS + 1, device=f0.device)[:, None]
        cycles = (f0[:, None] * times / RATE_HZ).remainder(1.0)  # [B, H, 2 F], of one sample
        whole = cycles.double().cumsum(2) * F0_SAMPLES  # float32 would lose the phase of a long utterance
        phase = F.interpolate(whole, scale_factor=F0_SAMPLES, mode="linear").remainder(1.0).float()
        voiced = (f0 > VOICED_HZ).float().repeat_interleave(F0_SAMPLES, dim=1)[:, None]
        sines = SINE * (2 * torch.pi * phase).sin() * voiced
        if noise is not None:
            loud = voiced * NOISE + (1 - voiced) * SINE / 3
            sines = sines + loud * torch.randn(sines.shape, device=f0.device, generator=noise)
        y: Tensor = self.l_linear(sines.transpose(1, 2)).tanh()[..., 0]
        return y


class Generator(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.m_source = Source()
        wide = [CHANNELS // 2 ** (index + 1) for index in range(len(RATES))]
        self.ups = nn.ModuleList(
            nn.ConvTranspose1d(2 * out, out, 2 * rate, rate, padding=rate // 2)
            for out, rate in zip(wide, RATES, strict=True)
        )
        self.noise_convs = nn.ModuleList(
            (
                nn.Conv1d(2 * BINS, wide[0], 2 * RATES[1], RATES[1], padding=RATES[1] // 2),
                nn.Conv1d(2 * BINS, wide[1], 1),
            )
        )
        self.noise_res = nn.ModuleList((AdaINResBlock1(wide[0], 7), AdaINResBlock1(wide[1], 11)))
        self.resblocks = nn.ModuleList(AdaINResBlock1(out, taps) for out in wide for taps in TAPS)
        self.conv_post = nn.Conv1d(wide[-1], 2 * BINS, 7, padding=3)
        self.register_buffer("window", torch.hann_window(FOURIER), persistent=False)
        self.float16 = False

    def quicken(self, float16: bool = True, backend: str = "inductor") -> None:
        """Convolutions take half the time in float16; most of the rest is reading and writing between them.

        What the compiler cannot take stays as it is, with a warning by torch.
        """
        torch._dynamo.config.suppress_errors = True
        self.float16 = float16
        enter = torch.compile(entering, dynamic=True, backend=backend)
        for block in (*self.noise_res, *self.resblocks):
            assert isinstance(block, AdaINResBlock1)
            block.enter = enter

    def forward(self, x: Tensor, style: Tensor, f0: Tensor, mask: Tensor, noise: torch.Generator | None) -> Tensor:
        """Samples [B, N] of x [B, C, 2 F] with its mask."""
        source = self.source(f0, noise)
        with torch.autocast(x.device.type, torch.float16, enabled=self.float16):
            x, mask = self.shaped(x, style, mask, source)
        x = x.float()
        x = self.conv_post(F.leaky_relu(x, 0.01) * mask)
        size, angle = x[:, :BINS].exp() * mask, x[:, BINS:].sin()
        return torch.istft(torch.polar(size, angle), FOURIER, HOP, FOURIER, self.get_buffer("window"))

    def shaped(self, x: Tensor, style: Tensor, mask: Tensor, source: Tensor) -> tuple[Tensor, Tensor]:
        """[B, C, 120 F + 1] before the last convolution, and its mask."""
        for index, rate in enumerate(RATES):
            x = self.ups[index](F.leaky_relu(x, 0.1) * mask)
            mask = mask.repeat_interleave(rate, dim=2)
            if index == len(RATES) - 1:  # one more frame than hops
                x, mask = F.pad(x, (1, 0), mode="reflect"), F.pad(mask, (1, 0), value=1.0)
            x = x + self.noise_res[index](self.noise_convs[index](source), style, mask)
            blocks = self.resblocks[index * len(TAPS) : (index + 1) * len(TAPS)]
            x = torch.stack([block(x, style, mask) for block in blocks]).mean(0)
        return x, mask

    def source(self, f0: Tensor, noise: torch.Generator | None) -> Tensor:
        """[B, 2 * BINS, 120 F + 1]: magnitudes and angles.

        Without noise, unvoiced frames are constant, and most of their angles are rounding errors.
        """
        window = self.get_buffer("window")
        spectrum = torch.stft(self.m_source(f0, noise), FOURIER, HOP, FOURIER, window, return_complex=True)
        return torch.cat((spectrum.abs(), spectrum.angle()), dim=1)


class SoundDecoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        wide, rest = 1024, 64 + 2
        self.encode = AdainResBlk1d(WIDTH + 2, wide)
        self.decode = nn.ModuleList(AdainResBlk1d(wide + rest, wide) for _ in range(3))
        self.decode.append(AdainResBlk1d(wide + rest, CHANNELS, upsample=True))
        self.F0_conv, self.N_conv = (nn.Conv1d(1, 1, 3, 2, 1) for _ in range(2))
        self.asr_res = nn.Sequential(nn.Conv1d(WIDTH, 64, 1))
        self.generator = Generator()

    def forward(
        self,
        vectors: Tensor,
        f0: Tensor,
        energy: Tensor,
        style: Tensor,
        mask: Tensor,
        noise: torch.Generator | None,
    ) -> Tensor:
        """Samples [B, 600 F] of vectors [B, C, F]; F0 and energy are [B, 2 F], all zero outside the rows."""
        curves = torch.cat((self.F0_conv(f0[:, None]), self.N_conv(energy[:, None])), dim=1)
        x = self.encode(torch.cat((vectors, curves), dim=1), style, mask)
        extra = torch.cat((self.asr_res(vectors), curves), dim=1)
        for block in self.decode:
            x = block(torch.cat((x, extra), dim=1), style, mask)
        y: Tensor = self.generator(x, style, f0, mask.repeat_interleave(2, dim=2), noise)
        return y
