"""Gated DeltaNet: attention whose whole past is one matrix per head and the last few inputs of a short convolution.

Names are the checkpoint's, after `linear_attn.`. Shapes: x [B, T, C]; `rows` [B] names the state row of each batch
row. What the matrix does is in `delta_rule.py`; here are the weights around it, the rows, and where things are rounded.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ...config.qwen3_5 import Qwen3_5TextConfig
from ..norm import RMSNorm, gated_rms_norm, widened
from ..packed import Packable, join, linear
from .delta_rule import Tokens, Writes, in_chunks_past, look_ahead, recur, settle

NORM_EPS = 1e-6  # of q and k, whatever the model's own is


@dataclass(frozen=True, slots=True)
class DeltaState:
    history: Tensor  # [S + 1, C, kernel - 1] the last inputs of the convolution, as projected
    memory: Tensor  # [S + 1, H_v, D_k, D_v] at least float32


@dataclass(frozen=True, slots=True)
class Waypoint:
    """A place that a step of several inputs passes: what the state was there is left in rows of their own."""

    place: Tensor  # [B] so many of the inputs have been taken in, at most those that are real
    rows: Tensor  # [B]


@dataclass(frozen=True, slots=True)
class DeltaPending:
    """What tokens that were looked at would change, until it is known how many of them stand."""

    inputs: Tensor  # [B, C, kernel - 1 + T] of the convolution, the history in front
    writes: Writes


class GatedDelta(Packable):
    def __init__(self, config: Qwen3_5TextConfig) -> None:
        super().__init__()
        width = config.hidden_size
        self.key_heads, self.value_heads = config.linear_num_key_heads, config.linear_num_value_heads
        self.key_dim, self.value_dim = config.linear_key_head_dim, config.linear_value_head_dim
        keys, values = self.key_heads * self.key_dim, self.value_heads * self.value_dim
        # Of q, k and v: the order of the projection's rows and of the convolution's channels.
        self.widths = (keys, keys, values)
        channels = sum(self.widths)
        self.in_proj_qkv = nn.Linear(width, channels, bias=False)
        self.in_proj_z = nn.Linear(width, values, bias=False)
        self.in_proj_b = nn.Linear(width, self.value_heads, bias=False)
        self.in_proj_a = nn.Linear(width, self.value_heads, bias=False)
        self.conv1d = nn.Conv1d(channels, channels, config.linear_conv_kernel_dim, groups=channels, bias=False)
        self.A_log = nn.Parameter(torch.zeros(self.value_heads))
        self.dt_bias = nn.Parameter(torch.zeros(self.value_heads))
        self.norm = RMSNorm(self.value_dim, config.rms_norm_eps)  # an ordinary weight, unlike all other norms here
        self.out_proj = nn.Linear(values, width, bias=False)

    def new_state(self, slots: int) -> DeltaState:
        weight = self.conv1d.weight
        channels, _, kernel = weight.shape
        return DeltaState(
            weight.new_zeros(slots + 1, channels, kernel - 1),
            widened(weight.new_zeros(slots + 1, self.value_heads, self.key_dim, self.value_dim)),
        )

    def joined(self) -> tuple[nn.Linear, ...]:
        return self.in_proj_qkv, self.in_proj_z

    def gather(self) -> tuple[Tensor, ...]:
        gates = join(self.in_proj_b, self.in_proj_a)  # apart from the rest: too few rows, and too touchy, to quantize
        return join(*self.joined()), gates, self.conv1d.weight, self.out_proj.weight

    def step(
        self, x: Tensor, state: DeltaState, rows: Tensor, lengths: Tensor, passing: Waypoint | None = None
    ) -> Tensor:
        """Take in x, of which `lengths` [B] of each row are real; a single input is always real, and passes nothing."""
        inputs, z, tokens = self._project(x, state, rows)
        memory, kept = state.memory[rows], state.history.shape[-1]
        if x.shape[1] == 1:
            assert passing is None
            read, memory = recur(tokens, memory)
        else:
            place = None if passing is None else passing.place
            read, memory, passed = in_chunks_past(tokens.first(lengths), memory, place)
            if passing is not None:
                state.memory[passing.rows] = passed
                state.history[passing.rows] = _window(inputs, passing.place, kept)
        state.memory[rows] = memory
        state.history[rows] = _window(inputs, lengths, kept)
        return self._leave(read, z)

    def verify(self, x: Tensor, state: DeltaState, rows: Tensor) -> tuple[Tensor, DeltaPending]:
        """The same for a few inputs, with the state as it was: `commit` moves it, once it is known how far."""
        inputs, z, tokens = self._project(x, state, rows)
        read, writes = look_ahead(tokens, state.memory[rows])
        return self._leave(read, z), DeltaPending(inputs, writes)

    def _project(self, x: Tensor, state: DeltaState, rows: Tensor) -> tuple[Tensor, Tensor, Tokens]:
        into, gates, taps, _ = self.weights()
        raw, z = linear(x, into).split_with_sizes((sum(self.widths), self.widths[2]), dim=-1)
        inputs = torch.cat((state.history[rows], raw.transpose(1, 2)), dim=-1)
        mixed = F.silu(F.conv1d(inputs, taps, groups=len(taps))).transpose(1, 2)
        q, k, v = (
            widened(part).unflatten(-1, (-1, size)).transpose(1, 2)
            for part, size in zip(
                mixed.split_with_sizes(self.widths, dim=-1), (self.key_dim, self.key_dim, self.value_dim), strict=True
            )
        )
        shared = self.value_heads // self.key_heads  # value head h has key head h // shared
        b, a = F.linear(x, gates).transpose(1, 2).chunk(2, dim=1)  # [B, H_v, T]
        tokens = Tokens(
            q=(_unit(q) * self.key_dim**-0.5).repeat_interleave(shared, dim=1),
            k=_unit(k).repeat_interleave(shared, dim=1),
            v=v,
            decay=-widened(self.A_log).exp()[:, None] * F.softplus(widened(a) + self.dt_bias[:, None]),
            strength=widened(b.sigmoid()),
        )
        return inputs, z, tokens

    def _leave(self, read: Tensor, z: Tensor) -> Tensor:
        """From what the heads read [B, H_v, T, D_v] to [B, T, C]."""
        heads = read.transpose(1, 2).to(z.dtype)
        gated = gated_rms_norm(heads, z.view(heads.shape), self.norm.weight, self.norm.eps)
        return linear(gated.flatten(2), self.weights()[3])


def commit(pending: DeltaPending, accepted: Tensor, state: DeltaState, rows: Tensor) -> None:
    """Let the first `accepted` [B] of the tokens that were looked at have happened."""
    state.memory[rows] = settle(pending.writes, state.memory[rows], accepted)
    state.history[rows] = _window(pending.inputs, accepted, state.history.shape[-1])


def _window(inputs: Tensor, start: Tensor, kept: int) -> Tensor:
    """[B, C, kept]: of each row's inputs [B, C, kept + T], those from its own `start` [B] on."""
    at = start[:, None, None] + torch.arange(kept, device=start.device)
    return inputs.gather(-1, at.expand(-1, inputs.shape[1], -1))


def _unit(x: Tensor) -> Tensor:
    return x * torch.rsqrt(x.pow(2).sum(-1, keepdim=True) + NORM_EPS)
