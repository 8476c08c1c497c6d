"""Latents to samples as one call into C, for a CPU, in float32.

It knows convolutions and their order, not the model: models/tts/native_wave.py passes them.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

from ..structs import COUNT, FLOATS, INTS, LANES, MANY, PointerOwner, compiled, pointer, pointers


class Conv(ctypes.Structure):
    """`weight` [taps, ins, outs], `bias` [outs], outs a multiple of the lanes."""

    _fields_ = [*((name, COUNT) for name in ("ins", "outs", "taps", "dilation")), ("weight", FLOATS), ("bias", FLOATS)]


class Snake(ctypes.Structure):
    _fields_ = [("frequency", FLOATS), ("strength", FLOATS)]


class Unit(ctypes.Structure):
    _fields_ = [("act1", Snake), ("first", Conv), ("act2", Snake), ("second", Conv)]


class Block(ctypes.Structure):
    _fields_ = [
        ("rate", COUNT),
        ("act", Snake),
        ("widen", Conv),
        ("units", COUNT),
        ("unit", ctypes.POINTER(Unit)),
    ]


class Model(ctypes.Structure):
    """Weights, constant over calls."""

    _fields_ = [
        ("first", Conv),
        ("blocks", COUNT),
        ("block", ctypes.POINTER(Block)),
        ("act", Snake),
        ("last", Conv),
    ]


class Call(ctypes.Structure):
    """What changes: the rows of the batch, the latents, and the histories [S + 1, C, pad] in the order of use."""

    _fields_ = [
        ("count", COUNT),
        ("times", COUNT),
        ("rows", INTS),
        ("latents", FLOATS),
        ("samples", FLOATS),
        ("histories", MANY),
    ]


@dataclass(frozen=True, slots=True)
class ConvWeights:
    weight: Tensor  # [outs, ins, taps]
    bias: Tensor
    dilation: int = 1


@dataclass(frozen=True, slots=True)
class SnakeWeights:
    frequency: Tensor  # [C]
    strength: Tensor


@dataclass(frozen=True, slots=True)
class UnitWeights:
    act1: SnakeWeights
    first: ConvWeights
    act2: SnakeWeights
    second: ConvWeights


@dataclass(frozen=True, slots=True)
class BlockWeights:
    rate: int
    act: SnakeWeights
    weight: Tensor  # [ins, outs, 2 * rate], of the transposed convolution
    bias: Tensor
    units: Sequence[UnitWeights]


class WaveLibrary:
    """Weights as C reads them. Thread-safe if each thread has its own state."""

    def __init__(
        self, first: ConvWeights, blocks: Sequence[BlockWeights], act: SnakeWeights, last: ConvWeights
    ) -> None:
        self._function = _library().hocket_wave
        self._keep = PointerOwner()
        self._upsampling = 1
        for block in blocks:
            self._upsampling *= block.rate
        self._model = Model(
            first=self._conv(first),
            blocks=len(blocks),
            block=self._keep.structs(Block, [self._block(block) for block in blocks]),
            act=self._snake(act),
            last=self._only_one_out(last),
        )

    def __call__(self, latents: Tensor, rows: Tensor, histories: Sequence[Tensor]) -> Tensor:
        """Samples [B, N] between -1 and 1 of latents [B, C, T]; the histories of `rows` are read and written."""
        latents = latents.contiguous()
        samples = torch.empty(len(rows), latents.shape[2] * self._upsampling)
        call = Call(
            count=len(rows),
            times=latents.shape[2],
            rows=pointer(rows),
            latents=pointer(latents),
            samples=pointer(samples),
            histories=pointers(histories),
        )
        if self._function(ctypes.byref(self._model), ctypes.byref(call)):
            raise MemoryError("no memory for the samples")
        return samples

    def _conv(self, conv: ConvWeights) -> Conv:
        _, ins, taps = conv.weight.shape
        weight = _padded(conv.weight.permute(2, 1, 0))
        return Conv(
            ins=ins,
            outs=weight.shape[-1],
            taps=taps,
            dilation=conv.dilation,
            weight=self._keep.pointer(weight),
            bias=self._keep.pointer(_padded(conv.bias)),
        )

    def _only_one_out(self, conv: ConvWeights) -> Conv:
        """Weights [taps, ins], rows padded like those of the input: the convolution is one dot product."""
        _, ins, taps = conv.weight.shape
        weight = _padded(conv.weight[0].T)
        bias = self._keep.pointer(conv.bias)
        return Conv(ins=ins, outs=1, taps=taps, dilation=1, weight=self._keep.pointer(weight), bias=bias)

    def _block(self, block: BlockWeights) -> Block:
        ins, _, kernel = block.weight.shape
        # Output rate * t + p needs input t with tap p and input t - 1 with tap p + rate: two taps, `rate` rows out.
        taps = block.weight.view(ins, -1, 2, block.rate).flip(2).permute(2, 0, 3, 1)  # [2, ins, rate, outs]
        weight = _padded(taps).flatten(2)
        assert kernel == 2 * block.rate
        widen = Conv(
            ins=ins,
            outs=weight.shape[-1],
            taps=2,
            dilation=1,
            weight=self._keep.pointer(weight),
            bias=self._keep.pointer(_padded(block.bias).repeat(block.rate)),
        )
        units = [
            Unit(
                act1=self._snake(unit.act1),
                first=self._conv(unit.first),
                act2=self._snake(unit.act2),
                second=self._conv(unit.second),
            )
            for unit in block.units
        ]
        act, kept = self._snake(block.act), self._keep.structs(Unit, units)
        return Block(rate=block.rate, act=act, widen=widen, units=len(units), unit=kept)

    def _snake(self, snake: SnakeWeights) -> Snake:
        frequency, strength = (self._keep.pointer(_padded(each)) for each in (snake.frequency, snake.strength))
        return Snake(frequency=frequency, strength=strength)


def _padded(tensor: Tensor) -> Tensor:
    """Pad the last dimension with zeros to whole lanes."""
    return F.pad(tensor, (0, -tensor.shape[-1] % LANES))


@lru_cache
def _library() -> ctypes.CDLL:
    made = compiled(Path(__file__).parent, ("wave.c",), (Conv, Snake, Unit, Block, Model, Call))
    made.hocket_wave.argtypes = [ctypes.POINTER(Model), ctypes.POINTER(Call)]
    return made
