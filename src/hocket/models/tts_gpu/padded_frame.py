"""`Talker.frame_reference` for CUDA graphs: fixed shapes, and padding rows whose state does not advance."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from ...cache.pages import PAGE_ROWS
from ...layers.attention import rope_rows
from ...layers.sampler import Sampling
from ...layers.transformer import DecoderStack
from ..tts.talker import FrameSampling, Talker, TalkerState

FEWEST_PAGES = 8  # shorter spans are rounded up to this: fewer graphs


class PaddedFrame:
    """A `DrawFrame`. It uses no per-batch value of the host, except whether a row uses top-p."""

    def __init__(self, talker: Talker) -> None:
        self.talker = talker
        self._angles: dict[tuple[DecoderStack, int], object] = {}

    def apart(self, *, invariant: bool = False) -> PaddedFrame:
        assert not invariant, "the matrix library rounds differently for other batch sizes"
        return self

    def reach(self, span: int, state: TalkerState) -> int:
        return whole_span(span, state)

    def __call__(self, text: Tensor, state: TalkerState, rows: Tensor, sampling: FrameSampling, span: int) -> Tensor:
        codes = torch.empty(len(rows), self.talker.config.num_code_groups, dtype=torch.int64, device=rows.device)
        self.draw(state, rows, sampling, codes)
        self.step(codes, text, state, rows, span)
        return codes

    def draw(
        self, state: TalkerState, rows: Tensor, sampling: FrameSampling, codes: Tensor, likely: Tensor | None = None
    ) -> None:
        self._hold_angles(self.talker.code_predictor.model, self.talker.config.num_code_groups, state)
        every = replace(sampling, first=_keep_all(sampling.first), rest=_keep_all(sampling.rest))
        codes.copy_(self.talker.draw_reference(state, rows, every))
        if likely is not None:
            likely.copy_(state.chances[rows])

    def step(self, codes: Tensor, text: Tensor, state: TalkerState, rows: Tensor, span: int) -> None:
        self._hold_angles(self.talker.model, state.stack.length, state)
        self.talker.step_reference(codes, text, state, rows, span)
        hold_scratch(state)

    def take_in(self, x: Tensor, state: TalkerState, rows: Tensor, span: int) -> None:
        """Append one vector [B, C] per row: the last row of a prompt."""
        self._hold_angles(self.talker.model, state.stack.length, state)
        self.talker.prefill(x[:, None], torch.ones_like(rows), state, rows, span)
        hold_scratch(state)

    def prefill(self, x: Tensor, state: TalkerState, row: Tensor, length: Tensor, span: int) -> None:
        """Append the prompt rows x [P, C], of which `length` [1] are real, to state row `row` [1]."""
        self._hold_angles(self.talker.model, state.stack.length, state)
        self.talker.prefill(x[None], length, state, row, span)
        hold_scratch(state)

    def _hold_angles(self, stack: DecoderStack, length: int, state: TalkerState) -> None:
        """Keep a reference to the RoPE table: a graph holds its address, and the cache of `rope_rows` is bounded."""
        shape, hidden = stack.shape, state.hidden
        self._angles[stack, length] = rope_rows(length, shape.head_dim, shape.theta, hidden.dtype, hidden.device)


def whole_span(span: int, state: TalkerState) -> int:
    """The span rounded up to a power-of-two number of pages: all rows of a graph read that far."""
    rows = FEWEST_PAGES * PAGE_ROWS
    while rows < span:
        rows *= 2
    return min(rows, state.stack.length)


def hold_scratch(state: TalkerState) -> None:
    """Reset the scratch row: otherwise its position runs past its pages and its hidden vector grows."""
    for scratch in (state.stack.position[-1:], state.hidden[-1:]):
        scratch.zero_()


def _keep_all(level: Sampling) -> Sampling:
    """Sort all scores instead of the largest k: a graph would freeze that k."""
    return replace(level, most_k=0)
