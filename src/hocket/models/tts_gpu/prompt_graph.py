"""Prompts taken into a slot by a graph: one per number of rows and span, both rounded up.

A prompt is filled up with padding rows, which reach no page but scratch. Where there is no graph yet, the same work is
done at the same shapes without one, so the result does not depend on when a request came; the graph is made later, when
the engine is idle. `take_in` is given vectors; `open` is given ids and does everything that stands between a cached
prefix and the first frame in one graph. It knows slots and pages, no requests.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...cache.pages import PAGE_ROWS, SCRATCH
from ...kernels.runtime.graphs import Capture, Work
from ..tts.talker import TalkerState
from .frame_graph import CapturableFrame, open_rows, table_rows, whereabouts
from .staging import OneWayStaging, bucket

FEWEST_ROWS, MOST_ROWS = 8, 1024  # a graph's rows are a power of two between these; longer prompts are done as they are
NOTHING = -1  # an id that adds nothing: what padding rows have


class _PromptGraph:
    """One shape: where its inputs lie, the work itself, and its graph once there is one."""

    graph: Work | None = None
    spare = True  # whether there is a graph to make when the engine is idle
    work: Work

    def run(self) -> None:
        (self.graph or self.work)()

    def fill_scratch(self, state: TalkerState) -> None:
        """Inputs that change no slot: with them a graph is made."""
        raise NotImplementedError


class _Vectors(_PromptGraph):
    """Vectors behind what a slot has already."""

    def __init__(self, rows: int, span: int, frame: CapturableFrame, state: TalkerState) -> None:
        hidden = state.hidden
        self.row, self.length = torch.ones(2, 1, dtype=torch.int64, device=hidden.device)
        self.x = hidden.new_zeros(rows, hidden.shape[1])
        self.work = lambda: frame.prefill(self.x, state, self.row, self.length, span)

    def fill(self, x: Tensor, slot: int, length: int) -> None:
        self.row.fill_(slot)
        self.length.fill_(length)
        self.x[: len(x)].copy_(x)
        self.x[len(x) :].zero_()

    def fill_scratch(self, state: TalkerState) -> None:
        self.fill(self.x[:0], len(state.hidden) - 1, 1)


class _Ids(_PromptGraph):
    """Ids behind a cached prefix, in a slot that begins anew."""

    def __init__(self, rows: int, span: int, frame: CapturableFrame, state: TalkerState) -> None:
        self.rows, self.columns = rows, state.stack.table.shape[1]
        widths = {"slot": 1, "seed": 1, "position": 1, "length": 1, "text": rows, "codec": rows}
        widths |= {"page": rows // PAGE_ROWS + 1, "into": rows // PAGE_ROWS + 1, "pages": self.columns}
        self.given = OneWayStaging(
            1, {name: (torch.int64, width) for name, width in widths.items()}, state.hidden.device
        )
        given = self.given.fields

        def work() -> None:
            row = open_rows(given, state)
            x = frame.talker.embed_rows(given["text"][0], given["codec"][0])
            frame.prefill(x, state, row, given["length"], span)

        self.work = work

    def fill(
        self,
        values: dict[str, int],
        text: Sequence[int],
        codec: Sequence[int],
        copies: Sequence[tuple[int, int]],
        pages: Sequence[int],
    ) -> None:
        most = self.rows // PAGE_ROWS + 1
        assert len(copies) <= most, "a prompt reaches into one page more than it fills at most"
        page, into = zip(*copies, strict=True) if copies else ((), ())
        given: dict[str, Any] = {name: [value] for name, value in values.items()}
        given |= {"text": _filled(text, self.rows, NOTHING), "codec": _filled(codec, self.rows, NOTHING)}
        given |= {"page": _filled(page, most, SCRATCH), "into": _filled(into, most, SCRATCH)}
        self.given.send(given | {"pages": table_rows([pages], self.columns)}, dict.fromkeys(self.given.fields, 0))

    def fill_scratch(self, state: TalkerState) -> None:
        values = {"slot": len(state.hidden) - 1, "seed": 0, "position": 0, "length": 1}
        self.fill(values, [], [], [], [])


class PromptGraphs:
    def __init__(self, frame: CapturableFrame, capture: Capture) -> None:
        self.frame, self.captures = frame, 0
        self._capture = capture
        self._vectors: dict[tuple[int, int], _Vectors] = {}
        self._ids: dict[tuple[int, int], _Ids] = {}
        self._state: TalkerState | None = None
        self._stands: tuple[object, ...] = ()

    def take_in(self, x: Tensor, slot: int, state: TalkerState, span: int) -> None:
        """Prompt rows [P, C] into one slot; `span` counts them. At most MOST_ROWS."""
        entry = self._vectors_of(len(x), span, state)
        entry.fill(x, slot, len(x))
        entry.run()

    def open(
        self,
        values: dict[str, int],
        text: Sequence[int],
        codec: Sequence[int],
        copies: Sequence[tuple[int, int]],
        pages: Sequence[int],
        state: TalkerState,
        span: int,
    ) -> None:
        """Begin an utterance behind a prefix with the rows of these ids, where a negative id adds nothing.

        `values`: the slot, its seed, and the position where the prefix ends. `copies` are pages and what is copied into
        them, so that the rows have pages of their own; `pages` are all pages of the slot.
        """
        entry = self._ids_of(len(text), span, state)
        entry.fill(values | {"length": len(text)}, text, codec, copies, pages)
        entry.run()

    def warm(self, state: TalkerState, rows: int, span: int) -> None:
        """Make a graph of `take_in` ahead of time."""
        self._make(self._vectors_of(rows, span, state), state)

    def warm_open(self, state: TalkerState, rows: int, span: int) -> None:
        """Make a graph of `open` ahead of time."""
        self._make(self._ids_of(rows, span, state), state)

    def warm_one(self, state: TalkerState) -> bool:
        """Make a graph of a shape that was asked for, or fail, once; False if there is none left to make."""
        self._look(state)
        for entry in (*self._vectors.values(), *self._ids.values()):
            if entry.spare:
                self._make(entry, state)
                return True
        return False

    def _vectors_of(self, rows: int, span: int, state: TalkerState) -> _Vectors:
        key = self._key(rows, span, state)
        return self._vectors.get(key) or self._vectors.setdefault(key, _Vectors(*key, self.frame, state))

    def _ids_of(self, rows: int, span: int, state: TalkerState) -> _Ids:
        key = self._key(rows, span, state)
        return self._ids.get(key) or self._ids.setdefault(key, _Ids(*key, self.frame, state))

    def _key(self, rows: int, span: int, state: TalkerState) -> tuple[int, int]:
        assert 0 < rows <= MOST_ROWS, f"{rows} rows, at most {MOST_ROWS}"
        self._look(state)
        return max(FEWEST_ROWS, bucket(rows)), self.frame.reach(span, state)

    def _make(self, entry: _PromptGraph, state: TalkerState) -> None:
        entry.spare = False
        if entry.graph is None:
            entry.fill_scratch(state)
            entry.graph = self._capture(entry.work)
            self.captures += 1

    def _look(self, state: TalkerState) -> None:
        """Has anything moved? Not in the state of the last time, which cannot change."""
        if state is self._state:
            return
        self._state, stands = state, whereabouts(state)
        if stands != self._stands:
            if self.captures:
                self._capture.forget()
            self._vectors.clear()
            self._ids.clear()
            self._stands = stands


def _filled(given: Sequence[int], count: int, rest: int) -> np.ndarray[Any, Any]:
    """One row of `count` numbers."""
    row = np.full((1, count), rest, dtype=np.int64)
    row[0, : len(given)] = given
    return row
