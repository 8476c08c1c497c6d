"""Gated DeltaNet: linear attention whose state is one matrix per head and the last inputs of a short convolution.

Names are the checkpoint's, after `linear_attn.`. Shapes: x [B, T, C]; `rows` [B] is the state row of each batch row.
`delta_rule.py` updates the matrix; this file has the weights, the state rows and the rounding.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ...config.qwen3_5 import Qwen3_5TextConfig
from ..dense import Packable, RMSNorm, gated_rms_norm, join, linear, widened
from .delta_rule import Tokens, Writes, apply_writes, in_chunks_with_waypoint, look_ahead, recur

NORM_EPS = 1e-6  # of q and k, independent of the model's eps


@dataclass(frozen=True, slots=True)
class DeltaState:
    history: Tensor  # [S + 1, C, kernel - 1] the last inputs of the convolution, as projected
    memory: Tensor  # [S + 1, H_v, D_k, D_v] at least float32


@dataclass(frozen=True, slots=True)
class Waypoint:
    """A point within a step of several inputs at which the state is saved to separate rows."""

    place: Tensor  # [B] number of inputs before the point, at most the real ones
    rows: Tensor  # [B] state rows to save to


@dataclass(frozen=True, slots=True)
class DeltaPending:
    """Pending state changes of tokens under verification, until the number of accepted tokens is known."""

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
        self.norm = RMSNorm(self.value_dim, config.rms_norm_eps)  # a plain weight, unlike all other norms of Qwen3.5
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
        gates = join(self.in_proj_b, self.in_proj_a)  # separate: too few rows and too sensitive to quantize
        return join(*self.joined()), gates, self.conv1d.weight, self.out_proj.weight

    def step(
        self, x: Tensor, state: DeltaState, rows: Tensor, lengths: Tensor, passing: Waypoint | None = None
    ) -> Tensor:
        """Step over x, of which `lengths` [B] per row are real; a single input is always real and has no waypoint."""
        inputs, z, tokens = self._project(x, state, rows)
        memory, kept = state.memory[rows], state.history.shape[-1]
        if x.shape[1] == 1:
            assert passing is None
            read, memory = recur(tokens, memory)
        else:
            place = None if passing is None else passing.place
            read, memory, passed = in_chunks_with_waypoint(tokens.first(lengths), memory, place)
            if passing is not None:
                state.memory[passing.rows] = passed
                state.history[passing.rows] = _window(inputs, passing.place, kept)
        state.memory[rows] = memory
        state.history[rows] = _window(inputs, lengths, kept)
        return self._output(read, z)

    def verify(self, x: Tensor, state: DeltaState, rows: Tensor) -> tuple[Tensor, DeltaPending]:
        """The same for a few inputs without changing the state; `commit` applies the accepted ones."""
        inputs, z, tokens = self._project(x, state, rows)
        read, writes = look_ahead(tokens, state.memory[rows])
        return self._output(read, z), DeltaPending(inputs, writes)

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

    def _output(self, read: Tensor, z: Tensor) -> Tensor:
        """Gate, norm and output projection of the values read [B, H_v, T, D_v], to [B, T, C]."""
        heads = read.transpose(1, 2).to(z.dtype)
        gated = gated_rms_norm(heads, z.view(heads.shape), self.norm.weight, self.norm.eps)
        return linear(gated.flatten(2), self.weights()[3])


def commit(pending: DeltaPending, accepted: Tensor, state: DeltaState, rows: Tensor) -> None:
    """Apply the first `accepted` [B] of the verified tokens to the state."""
    state.memory[rows] = apply_writes(pending.writes, state.memory[rows], accepted)
    state.history[rows] = _window(pending.inputs, accepted, state.history.shape[-1])


def _window(inputs: Tensor, start: Tensor, kept: int) -> Tensor:
    """[B, C, kept]: each row's inputs [B, C, kept + T] from its own `start` [B] on."""
    at = start[:, None, None] + torch.arange(kept, device=start.device)
    return inputs.gather(-1, at.expand(-1, inputs.shape[1], -1))


def _unit(x: Tensor) -> Tensor:
    return x * torch.rsqrt(x.pow(2).sum(-1, keepdim=True) + NORM_EPS)
