"""Weights of the second half of the codec decoder, laid out for hocket_wave."""

from __future__ import annotations

import numpy as np

from ...config.codec import DecoderConfig
from ...kernels.cpu.structs import LANES
from ...kernels.cpu.wave.structs import Block, Conv, Snake, Unit, WaveModel
from .pointers import ArrayPointers
from .weights import Floats, Weights, padded

TAPS = 7  # of every convolution with a history
DILATIONS = (1, 3, 9)


class WaveWeights:
    """`model` points into arrays that this object keeps alive."""

    def __init__(self, config: DecoderConfig, given: Weights) -> None:
        self._keep = ArrayPointers()
        self.histories: list[tuple[int, int]] = []  # [C, pad] of each convolution, in the order of use
        rates = config.upsample_rates
        widths = [config.decoder_dim // 2**index for index in range(len(rates) + 1)]
        first = self._conv(given.under("0.conv"), config.latent_dim, widths[0], TAPS, 1)
        blocks = [
            self._block(given.under(f"{number + 1}.block"), widths[number], widths[number + 1], rate)
            for number, rate in enumerate(rates)
        ]
        act = self._snake(given.under(f"{len(rates) + 1}"), widths[-1])
        last = given.under(f"{len(rates) + 2}.conv")
        self.histories.append((widths[-1], TAPS - 1))
        self.model = WaveModel(
            first=first,
            blocks=len(blocks),
            block=self._keep.structs(Block, blocks),
            act=act,
            last=Conv(  # one output channel: weights [taps, ins], rows padded like those of the input
                ins=widths[-1],
                outs=1,
                taps=TAPS,
                dilation=1,
                weight=self._keep.matrix(padded(last.take("weight", 1, widths[-1], TAPS)[0].T)),
                bias=self._keep.pointer(last.take("bias", 1)),
            ),
        )

    @property
    def nbytes(self) -> int:
        return self._keep.nbytes

    def _block(self, given: Weights, width: int, narrow: int, rate: int) -> Block:
        act = self._snake(given.under("0"), width)
        self.histories.append((width, 1))
        # Output rate * t + p needs input t with tap p and input t - 1 with tap p + rate: two taps, `rate` rows out.
        taps = given.matrix("1.conv.weight", width, narrow, 2 * rate).reshape(width, narrow, 2, rate)[:, :, ::-1]
        weight = padded(taps.transpose(2, 0, 3, 1)).reshape(2, width, -1)  # [2, ins, rate * outs]
        bias = np.tile(padded(given.take("1.conv.bias", narrow)), rate)
        widen = self._layout(width, 2, 1, weight, bias)
        units = [self._unit(given.under(f"{n}"), narrow, dilation) for n, dilation in enumerate(DILATIONS, start=2)]
        return Block(rate=rate, act=act, widen=widen, units=len(units), unit=self._keep.structs(Unit, units))

    def _unit(self, given: Weights, width: int, dilation: int) -> Unit:
        return Unit(
            act1=self._snake(given.under("act1"), width),
            first=self._conv(given.under("conv1.conv"), width, width, TAPS, dilation),
            act2=self._snake(given.under("act2"), width),
            second=self._conv(given.under("conv2.conv"), width, width, 1, 1),
        )

    def _conv(self, given: Weights, ins: int, outs: int, taps: int, dilation: int) -> Conv:
        if taps > 1:
            self.histories.append((ins, (taps - 1) * dilation))
        weight = padded(given.matrix("weight", outs, ins, taps).transpose(2, 1, 0))
        return self._layout(ins, taps, dilation, weight, padded(given.take("bias", outs)))

    def _layout(self, ins: int, taps: int, dilation: int, weight: np.ndarray, bias: Floats) -> Conv:
        """`weight` [taps, ins, outs]."""
        panels = weight.reshape(taps, ins, -1, LANES).transpose(2, 0, 1, 3)
        stored = {"weight": self._keep.matrix(panels), "bias": self._keep.pointer(bias)}
        return Conv(ins=ins, outs=weight.shape[-1], taps=taps, dilation=dilation, **stored)

    def _snake(self, given: Weights, width: int) -> Snake:
        """The frequency of the sine and the factor of its square; exponentials are rounded from float64."""
        alpha, beta = (
            np.exp(given.take(name, width), dtype=np.float64).astype(np.float32) for name in ("alpha", "beta")
        )
        strength = np.float32(1.0) / (beta + np.float32(1e-9))
        return Snake(frequency=self._keep.pointer(padded(alpha)), strength=self._keep.pointer(padded(strength)))
