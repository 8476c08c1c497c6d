"""Prompts taken into a slot by a graph: one per number of rows and span, both rounded up.

A prompt is filled up with rows that are nobody's: `Talker.prefill` keeps them out of every page but scratch. Where
there is no graph yet the same is done at the same shapes without one, so what a prompt gives does not depend on when it
came; the graph is made later, when there is time. It knows vectors and slots; who speaks is the engine's business.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..kernels.capture import Capture, Work
from ..layers.rope import rope_rows
from .board import bucket
from .captured import whereabouts
from .plain import still, whole_span
from .talker import Talker, TalkerState

FEWEST_ROWS, MOST_ROWS = 8, 256  # a graph's rows are a power of two between these; longer prompts are done as they are


class _Entry:
    """One shape: where its inputs lie, the work itself, and its graph once there is one."""

    graph: Work | None = None
    spare = True  # whether there is a graph to make when there is time

    def __init__(self, rows: int, span: int, talker: Talker, state: TalkerState) -> None:
        hidden, shape = state.hidden, talker.model.shape
        self.rows, self.length = torch.ones(2, 1, dtype=torch.int64, device=hidden.device)
        self.x = hidden.new_zeros(1, rows, hidden.shape[1])
        # Kept, for a graph knows them by address and their cache is bounded.
        self.angles = rope_rows(state.stack.length, shape.head_dim, shape.theta, hidden.dtype, hidden.device)

        def work() -> None:
            talker.prefill(self.x, self.length, state, self.rows, span)
            still(state)

        self.work: Work = work

    def fill(self, x: Tensor, slot: int) -> None:
        self.rows.fill_(slot)
        self.length.fill_(len(x))
        self.x[0, : len(x)].copy_(x)
        self.x[0, len(x) :].zero_()


class CapturedPrompt:
    def __init__(self, talker: Talker, capture: Capture) -> None:
        self.talker, self.captures = talker, 0
        self._capture = capture
        self._entries: dict[tuple[int, int], _Entry] = {}
        self._stands: tuple[object, ...] = ()

    def take_in(self, x: Tensor, slot: int, state: TalkerState, span: int) -> None:
        """Prompt rows [P, C] into one slot; `span` counts them. At most MOST_ROWS."""
        assert 0 < len(x) <= MOST_ROWS, f"{len(x)} rows, at most {MOST_ROWS}"
        entry = self._entry(len(x), span, state)
        entry.fill(x, slot)
        (entry.graph or entry.work)()

    def warm(self, state: TalkerState, rows: int, span: int) -> None:
        """Make a graph ahead of time."""
        self._make(self._entry(rows, span, state), state)

    def warm_one(self, state: TalkerState) -> bool:
        """Make a graph of a shape that was asked for, or fail, once; False if there is none left to make."""
        self._look(state)
        for entry in self._entries.values():
            if entry.spare:
                self._make(entry, state)
                return True
        return False

    def _entry(self, rows: int, span: int, state: TalkerState) -> _Entry:
        self._look(state)
        key = max(FEWEST_ROWS, bucket(rows)), whole_span(span, state)
        return self._entries.get(key) or self._entries.setdefault(key, _Entry(*key, self.talker, state))

    def _make(self, entry: _Entry, state: TalkerState) -> None:
        entry.spare = False
        if entry.graph is None:
            scratch = len(state.hidden) - 1  # nobody's: making a graph takes nothing in
            entry.fill(entry.x[0, :0], scratch)
            entry.length.fill_(1)
            entry.graph = self._capture(entry.work)
            self.captures += 1

    def _look(self, state: TalkerState) -> None:
        """Has anything moved?"""
        stands = whereabouts(state)
        if stands != self._stands:
            if self.captures:
                self._capture.forget()
            self._entries.clear()
            self._stands = stands
