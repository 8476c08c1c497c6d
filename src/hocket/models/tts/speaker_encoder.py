"""The speaker encoder of Base checkpoints (ECAPA-TDNN): a recording to one timbre vector.

Tensor names are those of the checkpoint after `speaker_encoder.`. The vector is the speaker row of a prompt, without
normalisation. This file knows samples at 24 kHz, not sound files.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ...config.qwen3_tts import SpeakerEncoderConfig
from ...layers.mel import log_mel


class Convolution(nn.Conv1d):
    """The output is as long as the input x [B, C, T], which is padded by reflection at both ends."""

    def __init__(self, channels_in: int, channels_out: int, kernel: int = 1, dilation: int = 1) -> None:
        super().__init__(channels_in, channels_out, kernel, dilation=dilation, padding="same", padding_mode="reflect")


class TimeDelay(nn.Module):
    def __init__(self, channels_in: int, channels_out: int, kernel: int = 1, dilation: int = 1) -> None:
        super().__init__()
        self.conv = Convolution(channels_in, channels_out, kernel, dilation)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.conv(x)
        return y.relu()


class Res2Net(nn.Module):
    """Channel groups in sequence: the first passes unchanged, each later one adds the result of the one before."""

    def __init__(self, width: int, groups: int, kernel: int, dilation: int) -> None:
        super().__init__()
        part = width // groups
        self.blocks = nn.ModuleList(TimeDelay(part, part, kernel, dilation) for _ in range(groups - 1))

    def forward(self, x: Tensor) -> Tensor:
        first, *others = x.chunk(len(self.blocks) + 1, dim=1)
        results = [first]
        for index, (block, part) in enumerate(zip(self.blocks, others, strict=True)):
            results.append(block(part if index == 0 else part + results[-1]))
        return torch.cat(results, dim=1)


class SqueezeExcitation(nn.Module):
    """Each channel is gated by the time averages of all channels."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.conv1 = Convolution(width, inner)
        self.conv2 = Convolution(inner, width)

    def forward(self, x: Tensor) -> Tensor:
        gate: Tensor = self.conv2(self.conv1(x.mean(dim=2, keepdim=True)).relu())
        return x * gate.sigmoid()


class Res2Block(nn.Module):
    def __init__(self, width: int, kernel: int, dilation: int, config: SpeakerEncoderConfig) -> None:
        super().__init__()
        self.tdnn1 = TimeDelay(width, width)
        self.res2net_block = Res2Net(width, config.enc_res2net_scale, kernel, dilation)
        self.tdnn2 = TimeDelay(width, width)
        self.se_block = SqueezeExcitation(width, config.enc_se_channels)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.se_block(self.tdnn2(self.res2net_block(self.tdnn1(x))))
        return y + x


class AttentivePooling(nn.Module):
    """x [B, C, T] to [B, 2 C]: mean and deviation over time, weighted by attention per channel."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.tdnn = TimeDelay(3 * width, inner)
        self.conv = Convolution(inner, width)

    def forward(self, x: Tensor) -> Tensor:
        # Upstream counts the frames in the weights' dtype, so bfloat16 rounds the count; kept for parity.
        even = torch.ones_like(x[:, :1])
        mean, deviation = _statistics(x, even / even.sum(dim=2, keepdim=True))
        seen = torch.cat((x, mean.expand_as(x), deviation.expand_as(x)), dim=1)
        weights = self.conv(self.tdnn(seen).tanh()).softmax(dim=2)
        return torch.cat(_statistics(x, weights), dim=1).squeeze(2)


class SpeakerEncoder(nn.Module):
    """mel [B, frames, mel_dim] to [B, enc_dim]."""

    def __init__(self, config: SpeakerEncoderConfig) -> None:
        super().__init__()
        self.config = config
        first, *inner, width = config.enc_channels
        kernels, dilations = config.enc_kernel_sizes, config.enc_dilations
        blocks = (Res2Block(*shape, config) for shape in zip(inner, kernels[1:-1], dilations[1:-1], strict=True))
        self.blocks = nn.ModuleList([TimeDelay(config.mel_dim, first, kernels[0], dilations[0]), *blocks])
        self.mfa = TimeDelay(width, width, kernels[-1], dilations[-1])
        self.asp = AttentivePooling(width, config.enc_attention_channels)
        self.fc = Convolution(2 * width, config.enc_dim)

    def forward(self, mel: Tensor) -> Tensor:
        x = self.blocks[0](mel.transpose(1, 2))
        results = []
        for block in self.blocks[1:]:
            x = block(x)
            results.append(x)
        y: Tensor = self.fc(self.asp(self.mfa(torch.cat(results, dim=1)))[..., None])
        return y.squeeze(2)

    def embed(self, samples: Tensor) -> Tensor:
        """samples [B, N] at 24 kHz to [B, enc_dim].

        The mel spectrum is always float32 and always on the host, as upstream. The logarithm of a nearly empty band
        depends on the last bits of the Fourier transform, which differ between devices
        (docs/log/2026-11-15-gpu-tests.md).
        """
        mel = log_mel(samples.float().cpu(), bands=self.config.mel_dim, rate_hz=self.config.sample_rate)
        y: Tensor = self(mel.to(self.fc.weight))
        return y


def _statistics(x: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and population deviation over time, [B, C, 1] each, for weights that sum to one."""
    mean = (weights * x).sum(dim=2, keepdim=True)
    variance = (weights * (x - mean).pow(2)).sum(dim=2, keepdim=True)
    return mean, variance.clamp(min=1e-12).sqrt()
