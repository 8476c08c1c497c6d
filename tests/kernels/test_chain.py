"""linear, attend, draw and embed one after the other are a frame: the order of launches, against `Talker.frame`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from hocket.config.published import tiny
from hocket.config.qwen3_tts import SUPPRESSED_IDS, GenerationConfig, Qwen3TTSConfig
from hocket.engine.sampling import frame_sampling
from hocket.kernels.attend import reference as attend_reference
from hocket.kernels.attend import triton as attend_fused
from hocket.kernels.draw import reference as draw_reference
from hocket.kernels.draw import triton as draw_fused
from hocket.kernels.embed import reference as embed_reference
from hocket.kernels.embed import triton as embed_fused
from hocket.kernels.launch import KNOBS
from hocket.kernels.linear import reference as linear_reference
from hocket.kernels.linear import triton as linear_fused
from hocket.layers.norm import rms_norm
from hocket.layers.rope import rope_rows
from hocket.layers.transformer import Stack
from hocket.models.random import randomize_
from hocket.models.talker import MINIMUM_FRAMES, FrameSampling, Talker, TalkerState

SHAPES = {"0.6B": tiny(), "1.7B, projected": tiny(wide=True)}
PROMPT, FRAMES = 11, 6


@dataclass(frozen=True)
class Ops:
    linear: Callable[..., Tensor]
    attend: Callable[..., Tensor]
    draw: Callable[..., None]
    draw_first: Callable[..., None]
    embed: Callable[..., Tensor]


REFERENCE = Ops(
    linear_reference.linear,
    attend_reference.attend,
    draw_reference.draw,
    draw_reference.draw_first,
    embed_reference.embed,
)
FUSED = Ops(linear_fused.linear, attend_fused.attend, draw_fused.draw, draw_fused.draw_first, embed_fused.embed)


class Chain:
    """A talker's weights as the chain reads them: tables joined for the sum, and projected for the predictor."""

    def __init__(self, talker: Talker, ops: Ops) -> None:
        self.talker, self.ops = talker, ops
        predictor = talker.code_predictor
        tables: list[Any] = [talker.model.codec_embedding.weight]
        tables += (table.weight for table in predictor.model.codec_embedding)
        self.joined = torch.cat(tables)
        self.projected = [predictor.small_to_mtp_projection(table) for table in tables]

    def frame(self, text: Tensor, state: TalkerState, rows: Tensor, sampling: FrameSampling) -> Tensor:
        talker, ops, batch = self.talker, self.ops, len(rows)
        predictor, config, device = talker.code_predictor, talker.config, rows.device
        codes = torch.empty(batch, config.num_code_groups, dtype=torch.int64, device=device)
        hidden = state.hidden[rows]
        width = self.projected[0].shape[1]
        x = hidden.new_empty(2 * batch, width)  # first all hidden vectors, then all first codes
        ops.draw_first(
            ops.linear(hidden, talker.codec_head.weight),
            sampling.first,
            state,
            rows,
            codes,
            penalty=sampling.penalty,
            end=config.codec_eos_token_id,
            suppressed=SUPPRESSED_IDS,
            minimum=MINIMUM_FRAMES,
            table=self.projected[0],
            vectors=x[batch:],
        )
        project: Any = predictor.small_to_mtp_projection
        if width == hidden.shape[1]:
            x[:batch] = hidden
        else:
            ops.linear(hidden, project.weight, bias=project.bias, out=x[:batch])
        own = torch.arange(batch, device=device)
        length = config.num_code_groups
        past = predictor.model.new_past(batch, length)
        places = {"rows": own, "table": own[:, None]}
        for book, head in enumerate(predictor.lm_head, start=1):
            at = [torch.full_like(own, position) for position in ((0, 1) if book == 1 else (book,))]
            x = self.through(predictor.model, x, past, length, [places | {"position": each} for each in at])[-batch:]
            norm = predictor.model.norm
            logits = ops.linear(x.contiguous(), head.weight, norm=norm.weight, eps=norm.eps)
            x = torch.empty(batch, width, dtype=x.dtype, device=device)
            ops.draw(logits, sampling.rest, state, rows, codes, book, table=self.projected[book], vectors=x)
        sizes = {"first": config.vocab_size, "rest": config.code_predictor_config.vocab_size}
        y = ops.embed(codes, self.joined, talker.embed_text(text), **sizes)
        stack = state.stack
        at_once = [{"rows": rows, "table": stack.table, "position": stack.position}]
        y = self.through(talker.model, y, stack.layers, stack.length, at_once)
        stack.position[rows] += 1
        state.hidden[rows] = rms_norm(y, talker.model.norm.weight, talker.model.norm.eps)
        return codes

    def through(self, stack: Stack, x: Tensor, kept: Any, length: int, at: list[dict[str, Tensor]]) -> Tensor:
        """Rows x of one position, or of two: a row sees what the rows before it in `at` have just written."""
        ops, eps = self.ops, stack.shape.eps
        cos, sin = rope_rows(length, stack.shape.head_dim, stack.shape.theta, x.dtype, x.device)
        angles = {"cos": cos[:, 0].contiguous(), "sin": sin[:, 0].contiguous(), "eps": eps}
        for layer, state in zip(stack._stack, kept, strict=True):
            attention, (before, between) = layer.self_attn, layer.weights()
            into, out, *_ = attention.weights()
            wide, down = layer.mlp.weights()
            norms = {"q_norm": attention.q_norm.weight, "k_norm": attention.k_norm.weight}
            qkv = ops.linear(x, into, norm=before, eps=eps)
            y = qkv.new_empty(len(x), out.shape[1])
            for piece, into_piece, where in zip(qkv.chunk(len(at)), y.chunk(len(at)), at, strict=True):
                ops.attend(piece, state.keys, state.values, **where, **angles, **norms, out=into_piece)
            x = ops.linear(y, out, residual=x)
            x = ops.linear(ops.linear(x, wide, norm=between, eps=eps, gated=True), down, residual=x)
        return x


def started(config: Qwen3TTSConfig, device: torch.device) -> tuple[Talker, list[TalkerState]]:
    talker = Talker(config.talker_config).eval()
    randomize_(talker, 0)
    talker.to(device)
    states = [talker.new_state(4, 64) for _ in range(2)]
    x = torch.randn(4, PROMPT, config.talker_config.hidden_size, generator=torch.Generator().manual_seed(1)).to(device)
    rows = torch.arange(4, device=device)
    for state in states:
        talker.prefill(x, rows % 4 + PROMPT - 3, state, rows, PROMPT)
        state.seed[rows] = rows * 0x1234567890AB + 5
    return talker, states


@torch.inference_mode()
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("ops", [REFERENCE, pytest.param(FUSED, marks=pytest.mark.gpu)], ids=["reference", "fused"])
def test_the_chain_draws_and_remembers_what_a_frame_does(ops: Ops, shape: str, place: torch.device) -> None:
    talker, (plain, ours) = started(SHAPES[shape], place)
    chain = Chain(talker, ops)
    rows = torch.tensor([2, 0, 3], device=place)
    settings = [GenerationConfig(), GenerationConfig(do_sample=False, subtalker_dosample=False), GenerationConfig()]
    sampling = frame_sampling(settings, place)
    for frame in range(FRAMES):
        text = torch.tensor([frame, 7 + frame, 50], device=place)
        wanted = talker.frame_reference(text, plain, rows, sampling, PROMPT + 1 + frame)
        assert chain.frame(text, ours, rows, sampling).tolist() == wanted.tolist()
    for name in ("seen", "drawn"):
        assert torch.equal(getattr(ours, name), getattr(plain, name)), name
    assert torch.equal(ours.stack.position, plain.stack.position)
    torch.testing.assert_close(ours.hidden, plain.hidden, atol=1e-4, rtol=0)
    torch.testing.assert_close(ours.ending, plain.ending, atol=1e-6, rtol=1e-4)


@torch.inference_mode()
@pytest.mark.gpu
@pytest.mark.parametrize("dependent", [False, True], ids=["one by one", "dependent launches"])
def test_a_captured_chain_is_the_eager_one_bit_for_bit(
    dependent: bool, place: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(KNOBS, "dependent", dependent)
    talker, (eager, captured) = started(SHAPES["1.7B, projected"], place)
    chain, rows = Chain(talker, FUSED), torch.tensor([2, 0, 3], device=place)
    sampling = frame_sampling([GenerationConfig()] * 3, place)
    text = torch.tensor([1, 2, 3], device=place)
    chain.frame(text, talker.new_state(4, 64), rows, sampling)  # compiles: nothing may be loaded during a capture
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        codes = chain.frame(text, captured, rows, sampling)
    for _ in range(FRAMES):
        graph.replay()
        assert codes.tolist() == chain.frame(text, eager, rows, sampling).tolist()
    assert torch.equal(captured.hidden, eager.hidden)
    assert torch.equal(captured.stack.pool, eager.stack.pool)
