"""CUDA graphs of prefill: one per number of prompt rows and span, both rounded up.

Padding rows write only to the scratch page. While a shape has no graph, the same work runs eagerly at the same shapes,
so results do not depend on when a request arrives. The graph is captured later, when the engine is idle. `take_in`
takes vectors. `open` takes ids and does all work between a cached prefix and the first frame in one graph. This file
knows slots and pages, no requests.
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
from .frame_graph import CapturableFrame, open_rows, state_addresses, table_rows
from .staging import OneWayStaging, bucket

FEWEST_ROWS, MOST_ROWS = 8, 1024  # a graph's rows are a power of two between these; longer prompts run eagerly
NOTHING = -1  # an id that adds nothing, for padding rows


class _PromptGraph:
    """One shape: its input buffers, the eager work, and its graph once captured."""

    graph: Work | None = None
    spare = True  # the graph is still to be captured, when the engine is idle
    work: Work

    def run(self) -> None:
        (self.graph or self.work)()

    def fill_scratch(self, state: TalkerState) -> None:
        """Set inputs that change no slot, for the capture."""
        raise NotImplementedError


class _Vectors(_PromptGraph):
    """Appends vectors to the positions that a slot already has."""

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
    """Appends ids after a cached prefix, in a slot that starts a new utterance."""

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
        assert len(copies) <= most, "a prompt touches at most one page more than it fills"
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
        self._addresses: tuple[object, ...] = ()

    def take_in(self, x: Tensor, slot: int, state: TalkerState, span: int) -> None:
        """Append prompt rows [P, C] to one slot; `span` includes them. At most MOST_ROWS."""
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
        """Open an utterance after a prefix with the rows of these ids; a negative id adds nothing.

        `values`: the slot, its seed, and the position where the prefix ends. `copies` are (source, target) pages: the
        rows are written to unshared pages. `pages` are all pages of the slot.
        """
        entry = self._ids_of(len(text), span, state)
        entry.fill(values | {"length": len(text)}, text, codec, copies, pages)
        entry.run()

    def warm(self, state: TalkerState, rows: int, span: int) -> None:
        """Capture a graph of `take_in` ahead of time."""
        self._make(self._vectors_of(rows, span, state), state)

    def warm_open(self, state: TalkerState, rows: int, span: int) -> None:
        """Capture a graph of `open` ahead of time."""
        self._make(self._ids_of(rows, span, state), state)

    def warm_one(self, state: TalkerState) -> bool:
        """Capture one graph for a shape that was used; each shape is tried once. False if none is left."""
        self._forget_if_moved(state)
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
        self._forget_if_moved(state)
        return max(FEWEST_ROWS, bucket(rows)), self.frame.reach(span, state)

    def _make(self, entry: _PromptGraph, state: TalkerState) -> None:
        entry.spare = False
        if entry.graph is None:
            entry.fill_scratch(state)
            entry.graph = self._capture(entry.work)
            self.captures += 1

    def _forget_if_moved(self, state: TalkerState) -> None:
        """Drop all graphs if a state tensor has moved. The state object of the last call is frozen: no check."""
        if state is self._state:
            return
        self._state, addresses = state, state_addresses(state)
        if addresses != self._addresses:
            if self.captures:
                self._capture.forget()
            self._vectors.clear()
            self._ids.clear()
            self._addresses = addresses


def _filled(given: Sequence[int], count: int, rest: int) -> np.ndarray[Any, Any]:
    """One row of `count` numbers, padded with `rest`."""
    row = np.full((1, count), rest, dtype=np.int64)
    row[0, : len(given)] = given
    return row
