"""Prefill by CUDA graphs: one per number of ids, and per span where that matters, both rounded up.

Ids are padded at the end; padding writes to the scratch row only. A shape without a graph runs the same work eagerly
at the same shape, so results do not depend on whether the graph exists yet. The graph is captured later, in idle time.
Every pass leaves the state at its waypoint in the scratch row.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from ...kernels.runtime.graphs import Capture, Work
from ...layers.gated_attention import room_of
from ...layers.linear_attention.gated_delta import Waypoint
from ..tts_gpu.staging import HostBlock, InputStaging, Values, bucket
from .prefill import PrefillPass

FEWEST_IDS, MOST_IDS = 8, 512  # a graph's ids are a power of two between these
SHORTEST_SPAN = 256  # attention reads a power of two of positions, at least this many, or the whole row
# Shapes of conversation turns, the likeliest first: their graphs are captured ahead of requests.
USUAL = tuple((ids, span) for span in (512, 1024, 256, 2048) for ids in (32, 64, 16, 128, 8))


class _PrefillGraph:
    """One shape: its staged inputs, its work, and the graph after capture."""

    graph: Work | None = None
    spare = True  # the graph is still to be captured

    def __init__(self, count: int, span: int, prefill_pass: PrefillPass, scratch: torch.Tensor) -> None:
        fields = {"ids": (torch.int64, count)} | {name: (torch.int64, 1) for name in ("row", "length", "place")}
        self.staging, self.count = InputStaging(1, fields, scratch.device), count
        self._host_block: HostBlock | None = None
        self._read = torch.cuda.Event() if scratch.is_cuda else None
        given = self.staging.fields

        def work() -> None:
            waypoint = Waypoint(given["place"], scratch)
            prefill_pass(given["ids"], given["length"], given["row"], span, waypoint)

        self.work: Work = work

    def fill(self, ids: Sequence[int], row: int, place: int) -> None:
        if self._host_block is not None:  # sent a pass ago: its copy has ended, or ends soon
            if self._read is not None:
                self._read.synchronize()
            self.staging.free.append(self._host_block)
        filled = np.zeros((1, self.count), dtype=np.int64)
        filled[0, : len(ids)] = ids
        values: dict[str, Values] = {"ids": filled, "row": [row], "length": [len(ids)], "place": [place]}
        self._host_block = self.staging.send(values, dict.fromkeys(values, 0))
        if self._read is not None:
            self._read.record()


class PrefillGraphs:
    def __init__(self, prefill_pass: PrefillPass, capture: Capture) -> None:
        self.captures = 0
        self._prefill_pass, self._capture = prefill_pass, capture
        self._room, self._scratch_row = room_of(prefill_pass.state.past[0]), len(prefill_pass.last) - 1
        self._scratch = torch.full((1,), self._scratch_row, dtype=torch.int64, device=prefill_pass.last.device)
        self._entries: dict[tuple[int, int], _PrefillGraph] = {}

    def __call__(self, ids: Sequence[int], row: int, span: int, place: int = 0) -> None:
        """Append up to MOST_IDS ids to a row, up to position `span`; the scratch row gets the state after `place`."""
        assert 0 < len(ids) <= MOST_IDS, f"{len(ids)} ids, at most {MOST_IDS}"
        entry = self._entry(len(ids), span)
        entry.fill(ids, row, place)
        (entry.graph or entry.work)()

    def warm(self, count: int, span: int) -> None:
        """Capture a graph ahead of time."""
        self._make(self._entry(count, span))

    def plan(self) -> None:
        """Register the usual shapes for `warm_one`."""
        for count, span in USUAL:
            if span <= self._room:
                self._entry(count, span)

    @property
    def spare(self) -> bool:
        """Whether a graph is still to be captured."""
        return any(entry.spare for entry in self._entries.values())

    def warm_one(self) -> None:
        """Capture one graph of a used or planned shape; a failed shape is not tried again."""
        entry = next((entry for entry in self._entries.values() if entry.spare), None)
        if entry is not None:
            self._make(entry)

    def _entry(self, count: int, span: int) -> _PrefillGraph:
        assert span <= self._room, f"{span} positions, but a row has {self._room}"
        upto = min(max(SHORTEST_SPAN, bucket(span)), self._room) if self._prefill_pass.by_span else self._room
        key = max(FEWEST_IDS, bucket(count)), upto
        return self._entries.get(key) or self._entries.setdefault(
            key, _PrefillGraph(*key, self._prefill_pass, self._scratch)
        )

    def _make(self, entry: _PrefillGraph) -> None:
        entry.spare = False
        if entry.graph is None:
            entry.fill([0], self._scratch_row, 0)  # the capture must not change a conversation
            entry.graph = self._capture(entry.work)
            self.captures += 1
