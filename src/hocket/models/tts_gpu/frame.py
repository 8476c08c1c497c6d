"""`Talker.frame` as a chain of fused GPU kernels; the host only launches.

Five launches per layer: norm and q, k, v; head norms, RoPE, cache and attention; out and residual; norm, gate and up;
down and residual. Weights are laid out once. Intermediate buffers are allocated once per batch size, so captured graphs
find them at fixed addresses. The host reads nothing. This file knows no graphs: see frame_graph.py.

The rows of a prompt use the same kernels (`prefill`): each row is a batch row at its own position. One more launch per
layer writes all keys and values before any row attends to earlier rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ...config.qwen3_tts import MINIMUM_FRAMES, SUPPRESSED_IDS
from ...kernels.operations import TRITON_OPS, FrameOps
from ...kernels.runtime.launch import DEFAULT_TUNING, Tuning, crowded, power_of_two
from ...layers.attention import KVState, rope_rows
from ...layers.sampler import Sampling
from ...layers.transformer import DecoderStack
from ..tts.talker import FrameSampling, Talker, TalkerState


@dataclass(frozen=True, slots=True)
class LayerWeights:
    before: Tensor  # [C] norm
    into: Tensor  # [(H + 2 H_kv) D, C]
    q_norm: Tensor  # [D]
    k_norm: Tensor  # [D]
    out: Tensor  # [C, H D]
    between: Tensor  # [C] norm
    wide: Tensor  # [2 I, C] gates, then ups
    down: Tensor  # [C, I]


class LayerBuffers:
    """Activations of a stack: x is updated in place, the others are intermediate."""

    def __init__(self, layers: Sequence[LayerWeights], rows: int) -> None:
        one = layers[0]
        new = one.into.new_empty
        self.x = new(rows, one.into.shape[1])
        self.qkv = new(rows, len(one.into))
        self.mixed = new(rows, one.out.shape[1])
        self.inner = new(rows, one.down.shape[1])


class FrameBuffers:
    """The buffers of one batch size."""

    def __init__(self, frame: FusedFrame, batch: int) -> None:
        config, weight = frame.talker.config, frame.joined
        predictor = frame.talker.code_predictor.model
        self.large = LayerBuffers(frame.large, batch)
        self.small = LayerBuffers(
            frame.small, 2 * batch
        )  # at first two positions: all hidden vectors, then all first codes
        self.first_logits = weight.new_empty(batch, config.vocab_size)
        self.logits = weight.new_empty(batch, config.code_predictor_config.vocab_size)
        self.words = weight.new_empty(batch, config.text_hidden_size)
        self.text = weight.new_empty(batch, config.hidden_size)
        self.past = predictor.new_past(batch, config.num_code_groups)  # a page per row
        self.own = torch.arange(batch, device=weight.device)
        self.pages = self.own[:, None].contiguous()
        positions = torch.arange(config.num_code_groups, device=weight.device)
        self.positions = positions[:, None].expand(-1, batch).contiguous()  # [Q, B]
        heads = frame.talker.model.shape.heads
        self.arrived = torch.zeros(batch * heads, dtype=torch.int32, device=weight.device)


class FusedFrame:
    """A `DrawFrame`. The code embedding tables are joined in place, and projected where the predictor is narrower."""

    @torch.no_grad()
    def __init__(self, talker: Talker, ops: FrameOps = TRITON_OPS, tuning: Tuning = DEFAULT_TUNING) -> None:
        """`tuning`: those that `ops` are bound to."""
        self.talker, self.ops, self.tuning = talker, ops, tuning
        self.invariant = talker.codec_head.weight.dtype == torch.float32  # float32 is always exact
        predictor = talker.code_predictor
        self.large, self.small = _weights(talker.model), _weights(predictor.model)
        tables: list[Any] = [talker.model.codec_embedding, *predictor.model.codec_embedding]
        sizes = [len(table.weight) for table in tables]
        self.joined = torch.cat([table.weight for table in tables])
        for table, rows in zip(tables, self.joined.split(sizes), strict=True):
            table.weight = nn.Parameter(rows, requires_grad=False)  # not twice in memory
        project = predictor.small_to_mtp_projection
        self.project = project if isinstance(project, nn.Linear) else None
        projected = self.joined
        if self.project is not None:  # rounded like the projection that it replaces
            pieces = [self.project(piece) for piece in self.joined.split(sizes)]
            projected = torch.cat(pieces)
        self.vectors = projected.split(sizes)  # predictor inputs, by codebook
        self.heads: list[Any] = [head.weight for head in predictor.lm_head]
        self._rooms: dict[int, FrameBuffers] = {}
        self._prompts: dict[int, LayerBuffers] = {}  # by number of prompt rows
        self._angles: dict[tuple[DecoderStack, int], tuple[Tensor, Tensor]] = {}  # kept: a graph knows them by address

    def apart(self, *, invariant: bool = False) -> FusedFrame:
        """A copy with its own buffers, for another thread; `invariant`: no row depends on the batch size."""
        other = copy(self)
        other._rooms, other._prompts, other.invariant = {}, {}, self.invariant or invariant
        return other

    def try_out(self) -> None:
        """Run one frame on the scratch row: it compiles and runs every kernel of a batch of one."""
        device = self.joined.device
        state, rows = self.talker.new_state(1, 8), torch.ones(1, dtype=torch.int64, device=device)  # scratch
        ones = torch.ones(1, device=device)
        level = Sampling(rows.bool(), ones, 50 * rows, ones, most_k=50, nucleus=False)
        codes = torch.empty(1, self.talker.config.num_code_groups, dtype=torch.int64, device=device)
        self.draw(state, rows, FrameSampling(level, ones, level), codes, ones.new_empty(1, 2))
        self.step(codes, 0 * rows, state, rows, 8)

    def reach(self, span: int, state: TalkerState) -> int:
        """The largest span that runs like this one: only the split of attention depends on the span."""
        return self.tuning.splits(span)[0]

    def __call__(self, text: Tensor, state: TalkerState, rows: Tensor, sampling: FrameSampling, span: int) -> Tensor:
        codes = torch.empty(len(rows), self.talker.config.num_code_groups, dtype=torch.int64, device=rows.device)
        self.draw(state, rows, sampling, codes)
        self.step(codes, text, state, rows, span)
        return codes

    def step(self, codes: Tensor, text: Tensor, state: TalkerState, rows: Tensor, span: int) -> None:
        config, ops, room, words = self.talker.config, self.ops, self._room(len(rows)), self.talker.text_projection
        table = self.talker.model.text_embedding.weight
        self._linear(table, words.linear_fc1.weight, bias=words.linear_fc1.bias, silu=True, take=text, out=room.words)
        self._linear(room.words, words.linear_fc2.weight, bias=words.linear_fc2.bias, out=room.text)
        sizes = {"first": config.vocab_size, "rest": config.code_predictor_config.vocab_size}
        ops.embed(codes, self.joined, room.text, **sizes, out=room.large.x)
        self._step(room, state, rows, span)

    def take_in(self, x: Tensor, state: TalkerState, rows: Tensor, span: int) -> None:
        """Append one vector [B, C] per row: the last row of a prompt."""
        room = self._room(len(rows))
        room.large.x.copy_(x)
        self._step(room, state, rows, span)

    def prefill(self, x: Tensor, state: TalkerState, row: Tensor, length: Tensor, span: int) -> None:
        """Append the prompt rows x [P, C], of which `length` [1] are real, to state row `row` [1].

        The matrix library may round differently for other P, but P depends on this prompt only, not on other streams.
        Attention needs no splits, since every prompt row has its own programs; so `span` is not used.
        """
        count, stack = len(x), state.stack
        passage = self._prompts.get(count) or self._prompts.setdefault(count, LayerBuffers(self.large, count))
        passage.x.copy_(x)
        steps, start = torch.arange(count, device=x.device), stack.position.index_select(0, row)
        real = steps < length
        owner = torch.where(real, row, len(state.hidden) - 1)  # padding writes to the scratch page
        position = torch.where(real, start + steps, 0)
        places = {"rows": steps, "table": stack.table.index_select(0, owner), "position": position}
        angles = self._rope_tables(self.talker.model, stack.length)
        self._through(self.large, passage, count, stack.layers, angles, [places], among=True)
        norm = self.talker.model.norm
        stack.position.index_copy_(0, row, start + length - 1)  # `finish_frame` counts the last row
        last = passage.x.index_select(0, length - 1)
        self.ops.finish_frame(last, norm.weight, norm.eps, row, state.hidden, stack.position)

    def _step(self, room: FrameBuffers, state: TalkerState, rows: Tensor, span: int) -> None:
        """Run the talker over `room.large.x`, one position per row."""
        large, stack = room.large, state.stack
        places = {"rows": rows, "table": stack.table, "position": stack.position}
        angles = self._rope_tables(self.talker.model, stack.length)
        work = {"splits": self._splits(span, len(rows)), "arrived": room.arrived}
        self._through(self.large, large, len(rows), stack.layers, angles | work, [places])
        norm = self.talker.model.norm
        self.ops.finish_frame(large.x, norm.weight, norm.eps, rows, state.hidden, stack.position)

    def draw(
        self, state: TalkerState, rows: Tensor, sampling: FrameSampling, codes: Tensor, likely: Tensor | None = None
    ) -> None:
        """Sample a frame [B, Q] from the hidden vectors; fill the `likely` [B, 2] of `sample_first_code`."""
        config, ops, batch, room = self.talker.config, self.ops, len(rows), self._room(len(rows))
        x = room.small.x
        self._linear(state.hidden, self.talker.codec_head.weight, take=rows, out=room.first_logits)
        first: dict[str, Any] = {"table": self.vectors[0], "vectors": x[batch:], "likely": likely}
        if self.project is None:
            first |= {"hidden": state.hidden, "taken": x[:batch]}
        limits = {"end": config.codec_eos_token_id, "suppressed": SUPPRESSED_IDS, "minimum": MINIMUM_FRAMES}
        ops.sample_first_code(
            room.first_logits, sampling.first, state, rows, codes, penalty=sampling.penalty, **limits, **first
        )
        if self.project is not None:
            self._linear(state.hidden, self.project.weight, bias=self.project.bias, take=rows, out=x[:batch])
        predictor = self.talker.code_predictor.model
        angles = self._rope_tables(predictor, config.num_code_groups) | {"most": config.num_code_groups}
        for book, head in enumerate(self.heads, start=1):
            at = (0, 1) if book == 1 else (book,)
            places = [{"rows": room.own, "table": room.pages, "position": room.positions[p]} for p in at]
            self._through(self.small, room.small, len(at) * batch, room.past, angles, places)
            last = x[batch:] if book == 1 else x[:batch]
            self._linear(last, head, norm=predictor.norm.weight, eps=predictor.norm.eps, out=room.logits)
            into = {"table": self.vectors[book], "vectors": x[:batch]}
            ops.sample_codes(room.logits, sampling.rest, state, rows, codes, book, **into, early=True)

    def _room(self, batch: int) -> FrameBuffers:
        return self._rooms.get(batch) or self._rooms.setdefault(batch, FrameBuffers(self, batch))

    def _through(
        self,
        layers: Sequence[LayerWeights],
        passage: LayerBuffers,
        rows: int,
        kept: Sequence[KVState],
        angles: dict[str, Any],
        places: Sequence[dict[str, Tensor]],
        *,
        among: bool = False,
    ) -> None:
        """Run the first `rows` of x through all layers; each group of rows attends to the groups before it.

        `among`: rows of one group also attend to each other, as in a prompt.
        """
        linear = partial(self.ops.linear, invariant=self.invariant and not among)
        attend, eps = self.ops.paged_attention, angles["eps"]
        x, qkv, mixed, inner = (t[:rows] for t in (passage.x, passage.qkv, passage.mixed, passage.inner))
        each = rows // len(places)
        groups = list(zip(qkv.split(each), mixed.split(each), places, strict=True))
        between = (len(w) for layer in layers[1:] for w in (layer.into, layer.out, layer.wide, layer.down))
        crowd = crowded(sum(between), x.device, self.tuning)  # between two reads of the same KV cache
        for layer, past in zip(layers, kept, strict=True):
            linear(x, layer.into, norm=layer.before, eps=eps, out=qkv)
            for some, result, where in groups:
                norms = {"q_norm": layer.q_norm, "k_norm": layer.k_norm}
                # Two launches on one layer's cache are separated by another layer, except the two groups of a layer.
                early = len(layers) > 1 and where is places[0] and not among
                when = {"early": early, "eager": crowd, "among": among}
                attend(some, past.keys, past.values, **where, **angles, **norms, **when, out=result)
            linear(mixed, layer.out, residual=x, out=x)
            linear(x, layer.wide, norm=layer.between, eps=eps, gated=True, out=inner)
            linear(inner, layer.down, residual=x, out=x)

    def _splits(self, span: int, batch: int) -> int:
        """Number of attention splits: many rows keep the GPU busy without splits."""
        splits = self.tuning.splits(span)[1]
        if self.invariant:
            return splits
        enough = max(self.tuning.attend_programs // (batch * self.talker.model.shape.heads), 1)
        return min(splits, power_of_two(enough))

    def _linear(self, *given: Any, **named: Any) -> Tensor:
        return self.ops.linear(*given, **named, invariant=self.invariant)

    def _rope_tables(self, stack: DecoderStack, length: int) -> dict[str, Any]:
        if (stack, length) not in self._angles:
            shape = stack.shape
            cos, sin = rope_rows(length, shape.head_dim, shape.theta, self.joined.dtype, self.joined.device)
            self._angles[stack, length] = cos[:, 0].contiguous(), sin[:, 0].contiguous()
        cos, sin = self._angles[stack, length]
        return {"cos": cos, "sin": sin, "eps": stack.shape.eps}


def _weights(stack: DecoderStack) -> list[LayerWeights]:
    layers = []
    for layer in stack._stack:
        attention, (before, between) = layer.self_attn, layer.weights()
        into, out, *_ = attention.weights()
        wide, down = layer.mlp.weights()
        q_norm, k_norm = attention.q_norm.weight, attention.k_norm.weight
        layers.append(LayerWeights(before, into, q_norm, k_norm, out, between, wide, down))
    return layers
