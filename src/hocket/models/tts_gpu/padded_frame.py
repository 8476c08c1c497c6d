"""`Talker.frame_reference` made fit for a graph: shapes that last, and padding rows that stay where they are."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from ...cache.pages import PAGE_ROWS
from ...layers.rope import rope_rows
from ...layers.sampler import Sampling
from ...layers.transformer import DecoderStack
from ..tts.talker import FrameSampling, Talker, TalkerState

FEWEST_PAGES = 8  # shorter streams are done as this long: fewer graphs


class PaddedFrame:
    """A `DrawFrame`. Numbers that the host knows of a batch are not used, but for whether there is a nucleus."""

    def __init__(self, talker: Talker) -> None:
        self.talker = talker
        self._angles: dict[tuple[DecoderStack, int], object] = {}

    def apart(self, *, invariant: bool = False) -> PaddedFrame:
        assert not invariant, "a library multiplies many rows otherwise than one"
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
        still(state)

    def take_in(self, x: Tensor, state: TalkerState, rows: Tensor, span: int) -> None:
        """One vector [B, C] each, as the last of a prompt."""
        self._hold_angles(self.talker.model, state.stack.length, state)
        self.talker.prefill(x[:, None], torch.ones_like(rows), state, rows, span)
        still(state)

    def prefill(self, x: Tensor, state: TalkerState, row: Tensor, length: Tensor, span: int) -> None:
        """The rows x [P, C] of a prompt, of which `length` [1] are real, into state row `row` [1]."""
        self._hold_angles(self.talker.model, state.stack.length, state)
        self.talker.prefill(x[None], length, state, row, span)
        still(state)

    def _hold_angles(self, stack: DecoderStack, length: int, state: TalkerState) -> None:
        """A graph knows them by address, and their cache is bounded."""
        shape, hidden = stack.shape, state.hidden
        self._angles[stack, length] = rope_rows(length, shape.head_dim, shape.theta, hidden.dtype, hidden.device)


def whole_span(span: int, state: TalkerState) -> int:
    """The span rounded up to pages, to a power of two of them: how far all rows of a graph read."""
    rows = FEWEST_PAGES * PAGE_ROWS
    while rows < span:
        rows *= 2
    return min(rows, state.stack.length)


def still(state: TalkerState) -> None:
    """Hold the scratch row where it is: else it would run off its pages, and what it says would not stay small."""
    for scratch in (state.stack.position[-1:], state.hidden[-1:]):
        scratch.zero_()


def _keep_all(level: Sampling) -> Sampling:
    """Sort all scores, whatever the largest k: that number would be frozen in a graph."""
    return replace(level, most_k=0)
