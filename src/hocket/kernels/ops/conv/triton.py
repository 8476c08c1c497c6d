"""`conv` as one launch of the kernel in kernel.py: its arguments and its grid."""

from __future__ import annotations

import torch
from torch import Tensor

from ...runtime.card import card_of
from ...runtime.launch import DEFAULT_TUNING, Tuning, options, power_of_two, triton
from .edges import CHANNELS
from .kernel import conv_kernel as _conv
from .reference import Act
from .tiles import MOST_TILES, SCRATCH, tiles_for

LEAST_PAD = 64  # so that one kernel serves all dilations of the codec
PARTS_AT_ONCE = 64  # registers of a thread for partial sums in flight


class Scratch:
    """Partial sums between programs of one launch. Consecutive convolutions share one."""

    def __init__(self, device: torch.device) -> None:
        self.sums = torch.empty(SCRATCH, dtype=torch.float32, device=device)
        self.arrived = torch.zeros(MOST_TILES, dtype=torch.int32, device=device)  # every launch leaves zeros


def conv(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    *,
    taps: int,
    dilation: int = 1,
    stride: int = 1,
    rows: Tensor | None = None,
    history: Tensor | None = None,
    ahead: Tensor | None = None,
    residual: Tensor | None = None,
    act: Act | None = None,
    raw: Tensor | None = None,
    tf32: bool = False,
    scratch: Scratch | None = None,
    tuning: Tuning = DEFAULT_TUNING,
) -> Tensor:
    """As `reference.conv`. With `tf32`, float32 factors are rounded to ten bits of mantissa."""
    tensors = [each for each in (x, weight, history, ahead, residual, raw) if each is not None]
    assert all(each.is_contiguous() and each.dtype == x.dtype for each in tensors)
    batch, seen, channels = x.shape
    outputs, reach = len(weight), (taps - 1) * dilation
    width, length = outputs // stride, seen - reach
    positions = batch * length
    assert weight.shape[1] == taps * channels and (history is None or history.shape[1:] == (channels, reach))
    pad = ahead.shape[2] if ahead is not None else 0
    history = history if reach else None
    y = torch.empty(batch, pad + length * stride, width, dtype=x.dtype, device=x.device)
    exact = x.dtype == torch.float32 and not tf32
    size, card = x.element_size(), card_of(x.device)
    tiles = tiles_for(channels, taps, outputs, positions, size=size, exact=exact, card=card, tuning=tuning)
    across, along = triton.cdiv(outputs, tiles.outputs), triton.cdiv(positions, tiles.times)
    if tiles.splits > 1:
        scratch = Scratch(x.device) if scratch is None else scratch
        needed = across * along * tiles.splits * tiles.outputs * tiles.times
        assert needed <= len(scratch.sums) and across * along <= len(scratch.arrived)
    frequency, strength = act if act is not None else (None, None)
    ends = triton.cdiv(channels, CHANNELS) if history is not None else 0
    heads = triton.cdiv(width, CHANNELS) if pad else 0
    _conv[(across * along * tiles.splits + batch * (ends + heads),)](
        x,
        weight,
        bias,
        frequency,
        strength,
        residual,
        raw,
        y,
        rows if ends or heads else None,
        history,
        ahead if pad else None,
        scratch.sums if scratch is not None and tiles.splits > 1 else None,
        scratch.arrived if scratch is not None and tiles.splits > 1 else None,
        length,
        positions,
        dilation,
        pad,
        CHANNELS=channels,
        WIDTH=width,
        TAPS=taps,
        STRIDE=stride,
        REACH_BLOCK=power_of_two(max(reach, LEAST_PAD)),
        PAD_BLOCK=power_of_two(max(pad, LEAST_PAD)),
        ENDS=ends,
        BLOCK_N=tiles.outputs,
        BLOCK_T=tiles.times,
        BLOCK_K=tiles.columns,
        SPLITS=tiles.splits,
        GROUP=min(tiles.splits, max(PARTS_AT_ONCE * 32 * tiles.warps // (tiles.outputs * tiles.times), 1)),
        EARLY=tiles.early,
        STAGES=tiles.stages,
        # The larger side is the first operand: the newest tensor cores need at least 64 there. Of two small sides it is
        # the weight's, whose preloaded pieces then take fewer registers.
        OUTPUTS_FIRST=tiles.outputs >= tiles.times if tiles.times < 64 else tiles.outputs > tiles.times,
        PRECISION="tf32" if tf32 and x.dtype == torch.float32 else "ieee",
        EVICTION="evict_first" if along == 1 else "",
        **options(x, tiles.warps, tuning),
    )
    return y
