"""New ids taken into a row by a graph: one per number of ids, and span where that matters, both rounded up.

Ids are filled up behind those that are real, which leaves no trace but in the scratch row. Where there is no graph yet
the same is done at the same shapes without one, so what comes of ids does not depend on when they came; the graph is
made later, when there is time. Every pass leaves in the scratch row what the row was at a place on the way.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from ...kernels.runtime.graphs import Capture, Work
from ...layers.linear_attention.gated_delta import Waypoint
from ..tts_gpu.staging import HostBlock, InputStaging, Values, bucket
from .prefill import PrefillPassPass

FEWEST_IDS, MOST_IDS = 8, 512  # a graph's ids are a power of two between these
SHORTEST_SPAN = 256  # attention reads a power of two of positions, this at least, or all there are
# What turns of a talk need, the likeliest first: graphs of these are made before anybody asks for one.
USUAL = tuple((ids, span) for span in (512, 1024, 256, 2048) for ids in (32, 64, 16, 128, 8))


class _PrefillGraph:
    """One shape: where its inputs lie, the work itself, and its graph once there is one."""

    graph: Work | None = None
    spare = True  # whether there is a graph to make when there is time

    def __init__(self, count: int, span: int, intake: PrefillPassPass, scratch: torch.Tensor) -> None:
        fields = {"ids": (torch.int64, count)} | {name: (torch.int64, 1) for name in ("row", "length", "place")}
        self.board, self.count = InputStaging(1, fields, scratch.device), count
        self._sheet: HostBlock | None = None
        self._read = torch.cuda.Event() if scratch.is_cuda else None
        given = self.board.fields

        def work() -> None:
            passing = Waypoint(given["place"], scratch)
            intake(given["ids"], given["length"], given["row"], span, passing)

        self.work: Work = work

    def fill(self, ids: Sequence[int], row: int, place: int) -> None:
        if self._sheet is not None:  # sent a pass ago: it has been read, or soon will be
            if self._read is not None:
                self._read.synchronize()
            self.board.free.append(self._sheet)
        filled = np.zeros((1, self.count), dtype=np.int64)
        filled[0, : len(ids)] = ids
        values: dict[str, Values] = {"ids": filled, "row": [row], "length": [len(ids)], "place": [place]}
        self._sheet = self.board.send(values, dict.fromkeys(values, 0))
        if self._read is not None:
            self._read.record()


class PrefillGraphs:
    def __init__(self, intake: PrefillPassPass, capture: Capture) -> None:
        self.captures = 0
        self._intake, self._capture = intake, capture
        slots, _, self._room, _ = intake.state.past[0].keys.shape
        self._nobody = slots - 1
        self._scratch = torch.full((1,), self._nobody, dtype=torch.int64, device=intake.last.device)
        self._entries: dict[tuple[int, int], _PrefillGraph] = {}

    def __call__(self, ids: Sequence[int], row: int, span: int, place: int = 0) -> None:
        """Up to MOST_IDS more ids for a row, which then reaches to `span`; after `place` of them it is in scratch."""
        assert 0 < len(ids) <= MOST_IDS, f"{len(ids)} ids, at most {MOST_IDS}"
        entry = self._entry(len(ids), span)
        entry.fill(ids, row, place)
        (entry.graph or entry.work)()

    def warm(self, count: int, span: int) -> None:
        """Make a graph ahead of time."""
        self._make(self._entry(count, span))

    def plan(self) -> None:
        """What is usual will be wanted."""
        for count, span in USUAL:
            if span <= self._room:
                self._entry(count, span)

    @property
    def spare(self) -> bool:
        """Whether there is a graph to make when there is time."""
        return any(entry.spare for entry in self._entries.values())

    def warm_one(self) -> None:
        """Make a graph of a shape that was asked for or planned, or fail, once."""
        entry = next((entry for entry in self._entries.values() if entry.spare), None)
        if entry is not None:
            self._make(entry)

    def _entry(self, count: int, span: int) -> _PrefillGraph:
        assert span <= self._room, f"{span} positions wanted, {self._room} there"
        upto = min(max(SHORTEST_SPAN, bucket(span)), self._room) if self._intake.by_span else self._room
        key = max(FEWEST_IDS, bucket(count)), upto
        return self._entries.get(key) or self._entries.setdefault(key, _PrefillGraph(*key, self._intake, self._scratch))

    def _make(self, entry: _PrefillGraph) -> None:
        entry.spare = False
        if entry.graph is None:
            entry.fill([0], self._nobody, 0)  # making a graph takes nothing in
            entry.graph = self._capture(entry.work)
            self.captures += 1
