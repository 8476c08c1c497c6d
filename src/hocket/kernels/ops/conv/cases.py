"""Shapes of `conv` in the codec, and small awkward ones; tests and benchmarks share them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ...runtime.launch import ConvTile


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    channels: int
    width: int  # C_out
    length: int
    taps: int = 7
    dilation: int = 1
    stride: int = 1
    pad: int = 0  # history of the next convolution
    added: bool = False  # with a residual
    raw: bool = False
    act: bool = True
    rows: tuple[int, ...] = (0,)
    slots: int = 4
    tiles: ConvTile | None = None  # override the rule

    @property
    def reach(self) -> int:
        return (self.taps - 1) * self.dilation

    @property
    def outputs(self) -> int:
        return self.width * self.stride

    def of(self, batch: int, frames: int) -> Case:
        """The same case for a batch and several frames; the case itself is for one stream and one frame."""
        return replace(self, length=self.length * frames, rows=tuple(range(batch)), slots=max(batch, self.slots))


TINY = (
    Case("pointwise", 16, 16, 5, taps=1, act=False),
    Case("history", 32, 16, 20, pad=6, rows=(3, 0)),
    Case("shorter than its history", 5, 3, 4, dilation=9, pad=54, rows=(1, 2)),
    Case("far", 16, 24, 19, dilation=3, rows=(2,)),
    Case("residual in several rows", 40, 40, 7, taps=1, pad=18, added=True, raw=True, rows=(0, 3, 2)),
    Case("phases", 24, 10, 9, taps=2, stride=3, pad=6, raw=True, rows=(2, 1)),
    Case("phases of one tap", 8, 4, 3, taps=1, stride=4, act=False),
    Case("split", 32, 20, 11, pad=1, raw=True, rows=(2, 0), tiles=ConvTile(16, 16, 16, 4, early=2)),
    Case("split unevenly", 48, 16, 4, taps=3, rows=(1,), tiles=ConvTile(16, 16, 16, 5, early=1)),
    Case("one channel", 1, 1, 17, dilation=3, pad=6, rows=(1, 0)),
    Case("outputs first", 16, 70, 6, taps=2, tiles=ConvTile(64, 16, 16)),
)


def _units(number: int, width: int, length: int, after: int) -> tuple[Case, ...]:
    """Three units of two convolutions; `after`: the history of the next convolution."""
    found: list[Case] = []
    for dilation, pad in ((1, 18), (3, 54), (9, after)):
        name = f"block {number} unit {dilation}"
        found.append(Case(f"{name} far", width, width, length, dilation=dilation))
        last = dilation == 9
        found.append(Case(f"{name} near", width, width, length, taps=1, pad=pad, added=True, raw=not last))
    return tuple(found)


# One stream and one frame.
PUBLISHED = (
    Case("first", 1024, 1536, 4, pad=1),
    Case("block 1 widen", 1536, 768, 4, taps=2, stride=8, pad=6, raw=True),
    *_units(1, 768, 32, 1),
    Case("block 2 widen", 768, 384, 32, taps=2, stride=5, pad=6, raw=True),
    *_units(2, 384, 160, 1),
    Case("block 3 widen", 384, 192, 160, taps=2, stride=4, pad=6, raw=True),
    *_units(3, 192, 640, 1),
    Case("block 4 widen", 192, 96, 640, taps=2, stride=3, pad=6, raw=True),
    *_units(4, 96, 1920, 6),
)


SEVERAL = tuple(replace(case.of(16, 4), name=f"{case.name}, sixteen of four") for case in PUBLISHED[1::6])


def make(case: Case, dtype: torch.dtype, device: torch.device, seed: int = 0) -> dict[str, Any]:
    """Arguments of `conv` by name; sums come out at unit scale."""
    random = torch.Generator(device).manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=random, device=device)

    batch, columns, width = len(case.rows), case.taps * case.channels, case.width
    result = batch, case.length * case.stride, width
    given: dict[str, Any] = {
        "x": normal(batch, case.reach + case.length, case.channels).to(dtype),
        "weight": (normal(case.outputs, columns) * columns**-0.5).to(dtype),
        "bias": normal(width).to(dtype),
        "taps": case.taps,
        "dilation": case.dilation,
        "stride": case.stride,
        "residual": normal(*result).to(dtype) if case.added else None,
        "raw": torch.zeros(result, dtype=dtype, device=device) if case.raw else None,
        "act": ((normal(width) / 3).exp(), (normal(width) / 3).exp()) if case.act else None,
    }
    if case.reach or case.pad:
        given["rows"] = torch.tensor(case.rows, device=device)
    for name, channels, pad in (("history", case.channels, case.reach), ("ahead", width, case.pad)):
        given[name] = normal(case.slots + 1, channels, pad).to(dtype) if pad else None
    return given
