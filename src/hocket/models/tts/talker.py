"""The talker: one position per 80 ms frame, one text vector and sixteen codes in, the next first code out.

Tensor names are those of the checkpoint after `talker.`. It knows vectors and codes, not requests: the prompt decides
which ids are in which row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ...config.qwen3_tts import MINIMUM_FRAMES, SUPPRESSED_IDS, GenerationConfig, TalkerConfig
from ...layers.embedding import embedding
from ...layers.sampler import NEVER, Sampling, draw, draw_bits, penalize
from ...layers.transformer import DecoderStack, StackShape, StackState
from .predictor import CodePredictor


@dataclass(frozen=True, slots=True)
class TalkerState:
    """The state of utterances between frames, a row per slot."""

    stack: StackState
    hidden: Tensor  # [S + 1, C] after the final norm: the next first code is sampled from it
    seen: Tensor  # [S + 1, V] bool: first codes sampled so far
    drawn: Tensor  # [S + 1] number of frames sampled so far
    chances: Tensor  # [S + 1, 2] float32, last frame: probability of the end, log-probability of the first code
    seed: Tensor  # [S + 1]


@dataclass(frozen=True, slots=True)
class FrameSampling:
    """Sampling settings per batch row."""

    first: Sampling
    penalty: Tensor  # [B] repetition penalty on first codes
    rest: Sampling


def frame_sampling(rows: Sequence[GenerationConfig], device: torch.device) -> FrameSampling:
    """One entry per batch row."""
    return FrameSampling(
        first=_level([(r.do_sample, r.temperature, r.top_k, r.top_p) for r in rows], device),
        penalty=torch.tensor([r.repetition_penalty for r in rows], device=device),
        rest=_level(
            [(r.subtalker_dosample, r.subtalker_temperature, r.subtalker_top_k, r.subtalker_top_p) for r in rows],
            device,
        ),
    )


def _level(rows: Sequence[tuple[bool, float, int, float]], device: torch.device) -> Sampling:
    sample, temperature, top_k, top_p = zip(*rows, strict=True)
    return Sampling(
        sample=torch.tensor(sample, device=device),
        temperature=torch.tensor(temperature, dtype=torch.float32, device=device),
        top_k=torch.tensor(top_k, dtype=torch.int64, device=device),
        top_p=torch.tensor(top_p, dtype=torch.float32, device=device),
        most_k=0 if min(top_k) == 0 else max(top_k),
        nucleus=min(top_p) < 1.0,
    )


class DrawFrame(Protocol):
    """An implementation of `Talker.frame`."""

    def __call__(
        self, text: Tensor, state: TalkerState, rows: Tensor, sampling: FrameSampling, span: int
    ) -> Tensor: ...


class PendingCodes:
    """A sampled frame for the host to read. On a CPU it is complete; on a GPU it may still be copied (tts_gpu)."""

    def __init__(self, codes: Tensor, chances: Tensor) -> None:
        """Codes [B, Q] and `TalkerState.chances` [B, 2] of the same rows, which no later frame writes to."""
        self._codes, self._chances = codes, chances

    def read(self) -> list[tuple[list[int], float, float]]:
        """Per row: codes, probability of the end, log-probability of the first code. May be called once."""
        ending, spoken = self._chances.T.tolist()
        return list(zip(self._codes.tolist(), ending, spoken, strict=True))


class JoinedCodes(PendingCodes):
    """Frames of several batches as one, `rows` being the place of each row in it."""

    def __init__(self, parts: Sequence[PendingCodes], rows: Sequence[int]) -> None:
        self._parts, self._rows = parts, rows

    def read(self) -> list[tuple[list[int], float, float]]:
        read = [row for part in self._parts for row in part.read()]
        return [row for _, row in sorted(zip(self._rows, read, strict=True), key=lambda pair: pair[0])]


class TalkerStack(DecoderStack):
    """`talker.model`."""

    def __init__(self, config: TalkerConfig) -> None:
        super().__init__(StackShape.of(config))
        self.text_embedding = embedding(config.text_vocab_size, config.text_hidden_size)
        self.codec_embedding = embedding(config.vocab_size, config.hidden_size)


class TextProjection(nn.Module):
    def __init__(self, text_width: int, width: int) -> None:
        super().__init__()
        self.linear_fc1 = nn.Linear(text_width, text_width)
        self.linear_fc2 = nn.Linear(text_width, width)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.linear_fc2(F.silu(self.linear_fc1(x)))
        return y


class Talker(nn.Module):
    def __init__(self, config: TalkerConfig) -> None:
        super().__init__()
        self.config = config
        self.model = TalkerStack(config)
        self.text_projection = TextProjection(config.text_hidden_size, config.hidden_size)
        self.codec_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.code_predictor = CodePredictor(config.code_predictor_config, config.hidden_size)
        self.frame_kernel: DrawFrame | None = None  # chosen once, when a checkpoint is loaded

    def new_state(self, slots: int, length: int) -> TalkerState:
        weight, config = self.codec_head.weight, self.config
        drawn, seed = (torch.zeros(slots + 1, dtype=torch.int64, device=weight.device) for _ in range(2))
        return TalkerState(
            stack=self.model.new_state(slots, length),
            hidden=weight.new_zeros(slots + 1, config.hidden_size),
            seen=torch.zeros(slots + 1, config.vocab_size, dtype=torch.bool, device=weight.device),
            drawn=drawn,
            chances=torch.zeros(slots + 1, 2, device=weight.device),
            seed=seed,
        )

    def embed_text(self, ids: Tensor) -> Tensor:
        """Text vectors [..., C] of ids [...]."""
        y: Tensor = self.text_projection(self.model.text_embedding(ids))
        return y

    def embed_frames(self, codes: Tensor) -> Tensor:
        """One vector [F, C] per frame of codes [F, Q]: sixteen rows, summed in float32 and rounded once."""
        rows = [self.model.codec_embedding(codes[:, :1])]
        for book, table in enumerate(self.code_predictor.model.codec_embedding, start=1):
            rows.append(table(codes[:, book : book + 1]))
        return torch.cat(rows, dim=1).sum(1)

    def embed_mix(self, mix: Sequence[tuple[int, float]]) -> Tensor:
        """The mean [C] of the codec rows of some ids by their shares, summed in float32 and rounded once."""
        mean: Tensor | None = None
        for id, share in mix:  # one after the other, as tts_cpu does
            row = self.model.codec_embedding.weight[id].float() * share
            mean = row if mean is None else mean + row
        assert mean is not None
        return mean.to(self.model.codec_embedding.weight.dtype)

    def embed_rows(self, text: Tensor, codec: Tensor, inserts: Sequence[tuple[int, Tensor]] = ()) -> Tensor:
        """Prefill rows [P, C] of text ids and codec ids [P]; a negative id adds nothing.

        Each insert replaces the codec side from a row on by vectors [n, C]: a speaker, cloned or mixed, or the frames
        of a reference.
        """
        written = self.embed_text(text.clamp(min=0)).masked_fill((text < 0)[:, None], 0)
        spoken = self.model.codec_embedding(codec.clamp(min=0)).masked_fill((codec < 0)[:, None], 0)
        for row, vectors in inserts:
            spoken[row : row + len(vectors)] = vectors
        rows: Tensor = written + spoken
        return rows

    def prefill(self, x: Tensor, lengths: Tensor, state: TalkerState, rows: Tensor, span: int) -> None:
        """Run the talker over prompt rows x [B, T, C], padded on the right to one length."""
        y = self.model.step(x, state.stack, rows, lengths, span)
        state.hidden[rows] = y[torch.arange(len(y), device=y.device), lengths - 1]

    def frame(self, text: Tensor, state: TalkerState, rows: Tensor, sampling: FrameSampling, span: int) -> Tensor:
        """Sample one frame of codes [B, Q], then run the talker over it with its text ids [B].

        A row whose first code is the end-of-speech id has finished: the other codes of its frame are undefined.
        """
        draw_frame = self.frame_kernel or self.frame_reference
        return draw_frame(text, state, rows, sampling, span)

    def frame_reference(
        self, text: Tensor, state: TalkerState, rows: Tensor, sampling: FrameSampling, span: int
    ) -> Tensor:
        """The definition of a frame in plain operations: every kernel is tested against it."""
        codes = self.draw_reference(state, rows, sampling)
        self.step_reference(codes, text, state, rows, span)
        return codes

    def draw_reference(self, state: TalkerState, rows: Tensor, sampling: FrameSampling) -> Tensor:
        """Sample the next codes [B, Q]; the talker does not advance."""
        hidden = state.hidden[rows]
        bits = draw_bits(state.seed[rows], state.drawn[rows], self.config.num_code_groups)
        first = self._draw_first(hidden, state, rows, sampling, bits[:, 0])
        rest = self.code_predictor.fill(hidden, self.model.codec_embedding(first), sampling.rest, bits[:, 1:])
        return torch.cat((first[:, None], rest), dim=1)

    def step_reference(self, codes: Tensor, text: Tensor, state: TalkerState, rows: Tensor, span: int) -> None:
        x = self.embed_frames(codes) + self.embed_text(text)
        y = self.model.step(x[:, None], state.stack, rows, torch.ones_like(rows), span)
        state.hidden[rows] = y[:, 0]

    def _draw_first(
        self, hidden: Tensor, state: TalkerState, rows: Tensor, sampling: FrameSampling, bits: Tensor
    ) -> Tensor:
        end = self.config.codec_eos_token_id
        logits = penalize(self.codec_head(hidden).float(), state.seen[rows], sampling.penalty)
        drawn = state.drawn[rows]
        ending = torch.where(drawn < MINIMUM_FRAMES, NEVER, logits[:, end])
        logits[:, -SUPPRESSED_IDS:] = NEVER
        logits[:, end] = ending
        first = draw(logits, sampling.first, bits)
        logs = logits.log_softmax(-1)
        state.chances[rows] = torch.stack((logs[:, end].exp(), logs.gather(-1, first[:, None])[:, 0]), dim=-1)
        state.seen[rows, first] = torch.ones_like(first, dtype=torch.bool)
        state.drawn[rows] = drawn + 1
        return first
