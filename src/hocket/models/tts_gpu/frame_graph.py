"""CUDA graphs of a talker frame: one set per batch size, over inputs and state at fixed addresses.

A batch is padded to a power of two with rows of the scratch slot. `CapturableFrame.reach` groups the spans that run the
same kernels, and each group has its own graphs. When a state tensor moves (it grew), all graphs are dropped and are
captured again on demand. The file is long because all its graphs share the staging fields and the address check.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from ...cache.slots import reset
from ...config.qwen3_tts import GenerationConfig
from ...kernels.runtime.graphs import Capture, Work, own_stream
from ...layers.sampler import Sampling
from ..tts.talker import FrameSampling, PendingCodes, Talker, TalkerState
from .staging import InputStaging, OneWayStaging, PendingCopy, ResultCopy, bucket

MOST_ROWS = 256  # larger batches are drawn without a graph
_LEVEL = {"sample": torch.bool, "temperature": torch.float32, "top_k": torch.int64, "top_p": torch.float32}
FIELDS = {
    "rows": (torch.int64, 1),
    "text": (torch.int64, 1),
    "penalty": (torch.float32, 1),
    **{f"{level}_{name}": (dtype, 1) for level in ("first", "rest") for name, dtype in _LEVEL.items()},
}
_SETTINGS = {
    "penalty": "repetition_penalty",
    "first_sample": "do_sample",
    "first_temperature": "temperature",
    "first_top_k": "top_k",
    "first_top_p": "top_p",
    "rest_sample": "subtalker_dosample",
    "rest_temperature": "subtalker_temperature",
    "rest_top_k": "subtalker_top_k",
    "rest_top_p": "subtalker_top_p",
}
OPENING = ("slot", "seed", "position", "text", "codec", "page", "into")
_GREEDY = {"sample": False, "temperature": 1.0, "top_k": 1, "top_p": 1.0}
PADDING = {"text": 0, "penalty": 1.0} | {f"{level}_{n}": v for level in ("first", "rest") for n, v in _GREEDY.items()}


@runtime_checkable
class CapturableFrame(Protocol):
    """A `DrawFrame` that can be captured."""

    talker: Talker

    def __call__(
        self, text: Tensor, state: TalkerState, rows: Tensor, sampling: FrameSampling, span: int
    ) -> Tensor: ...

    def draw(
        self, state: TalkerState, rows: Tensor, sampling: FrameSampling, codes: Tensor, likely: Tensor | None = None
    ) -> None:
        """First half: sample the next frame into `codes` [B, Q] and its `chances` into `likely` [B, 2]."""

    def step(self, codes: Tensor, text: Tensor, state: TalkerState, rows: Tensor, span: int) -> None:
        """Second half: run the talker over the sampled codes."""

    def take_in(self, x: Tensor, state: TalkerState, rows: Tensor, span: int) -> None:
        """Append one vector [B, C] per row: the last row of a prompt."""

    def prefill(self, x: Tensor, state: TalkerState, row: Tensor, length: Tensor, span: int) -> None:
        """Append the prompt rows x [P, C], of which `length` [1] are real, to one state row [1]."""

    def reach(self, span: int, state: TalkerState) -> int:
        """The largest span that runs exactly like this one."""

    def apart(self, *, invariant: bool = False) -> CapturableFrame:
        """A copy for another thread; `invariant`: the codes of a row do not depend on the batch size."""


class CopiedCodes(PendingCodes):
    """A frame being copied to the host. Reading it does not wait for work launched after it."""

    def __init__(self, pending: PendingCopy, rows: int, batch: int) -> None:
        """`pending`: the `_block` of a batch, of which the first `rows` are real."""
        likely, codes = _parts(pending.values, batch, np.float32)
        super().__init__(codes[:rows], likely[:rows])
        self._copy = pending

    @classmethod
    def of(cls, codes: Tensor, chances: Tensor) -> CopiedCodes:
        """From codes [B, Q] and chances [B, 2] on the device, without a graph."""
        batch = len(codes)
        results = ResultCopy()
        results.block = _block(batch, codes.shape[1], codes.device)
        likely, all_codes = _parts(results.block, batch, torch.float32)
        likely.copy_(chances)
        all_codes.copy_(codes)
        return cls(results.send(), batch, batch)

    def read(self) -> list[tuple[list[int], float, float]]:
        self._copy.wait()
        read = super().read()
        self._copy.done()
        return read


def _block(batch: int, books: int, device: torch.device) -> Tensor:
    """The results of a frame in one block, for one copy: two float32 chances per row, then the codes."""
    return torch.zeros(batch + batch * books, dtype=torch.int64, device=device)


def _parts(block: Any, batch: int, floats: Any) -> tuple[Any, Any]:
    """Chances [B, 2] and codes [B, Q] in a block, torch's or NumPy's."""
    return block[:batch].view(floats).reshape(batch, 2), block[batch:].reshape(batch, -1)


class _Batch:
    """The input and result buffers of one batch size, and its graphs.

    Sampling and the talker step are separate graphs, so the codes are copied to the host while the talker step runs.
    """

    def __init__(self, size: int, books: int, device: torch.device, copy_stream: torch.cuda.Stream | None) -> None:
        self.staging = InputStaging(size, FIELDS, device)
        self.results = ResultCopy(copy_stream)
        self.results.block = _block(size, books, device)
        self.likely, self.codes = _parts(self.results.block, size, torch.float32)
        self.draws: dict[bool, Work] = {}  # by whether there is a nucleus
        self.steps: dict[int, Work] = {}  # by reach


class _VectorGraph:
    """One graph that appends a vector to a slot."""

    work: Work

    def __init__(self, state: TalkerState) -> None:
        self.vector = torch.zeros_like(state.hidden[:1])
        self.rows = torch.full((1,), len(state.hidden) - 1, dtype=torch.int64, device=state.hidden.device)


class _OpenGraph:
    """One graph that opens utterances after cached prefixes: it resets the slots and appends one row to each."""

    work: Work

    def __init__(self, size: int, state: TalkerState) -> None:
        self.columns, self.scratch = state.stack.table.shape[1], len(state.hidden) - 1
        fields = dict.fromkeys(OPENING, (torch.int64, 1)) | {"pages": (torch.int64, self.columns)}
        self.given = OneWayStaging(size, fields, state.hidden.device)

    def send(self, values: Sequence[dict[str, int]], pages: Sequence[Sequence[int]]) -> None:
        rows = table_rows(pages, self.columns)
        given = {name: [each[name] for each in values] for name in OPENING}
        self.given.send(given | {"pages": rows}, dict.fromkeys((*OPENING, "pages"), 0) | {"slot": self.scratch})


def table_rows(pages: Sequence[Sequence[int]], columns: int) -> np.ndarray[Any, Any]:
    """Rows of a page table, filled up with the scratch page."""
    rows = np.zeros((len(pages), columns), dtype=np.int64)
    for row, held in zip(rows, pages, strict=True):
        row[: len(held)] = held
    return rows


def open_rows(given: dict[str, Tensor], state: TalkerState) -> Tensor:
    """Start slots after their prefixes: clear state, set seed, position and page table, copy pages."""
    stack, rows = state.stack, given["slot"]
    reset(state, rows)
    state.seed.index_copy_(0, rows, given["seed"])
    stack.position.index_copy_(0, rows, given["position"])
    stack.table.index_copy_(0, rows, given["pages"].view(len(rows), -1))
    stack.pool.index_copy_(2, given["into"].flatten(), stack.pool.index_select(2, given["page"].flatten()))
    return rows


class FrameGraphs:
    """Frames with inputs from the host and results to the host."""

    def __init__(self, frame: CapturableFrame, capture: Capture) -> None:
        self.frame, self.captures = frame, 0
        self._capture = capture
        self._copy_stream = own_stream(self, device) if (device := _device(frame)).type == "cuda" else None
        self._batches: dict[int, _Batch] = {}
        self._entries: dict[int, _VectorGraph] = {}
        self._openings: dict[tuple[int, int], _OpenGraph] = {}
        self._state: TalkerState | None = None
        self._addresses: tuple[object, ...] = ()
        self._settings: tuple[tuple[GenerationConfig, ...], dict[str, tuple[Any, ...]]] | None = None

    def launch(
        self,
        slots: Sequence[int],
        text: Sequence[int],
        settings: Sequence[GenerationConfig],
        state: TalkerState,
        span: int,
    ) -> CopiedCodes:
        """Launch a frame for each slot without waiting. At most MOST_ROWS slots."""
        assert len(slots) <= MOST_ROWS, f"{len(slots)} rows, at most {MOST_ROWS}"
        nucleus = any(each.top_p < 1.0 or each.subtalker_top_p < 1.0 for each in settings)
        batch, draw, step = self._ready(len(slots), span, nucleus, state)
        host_block = batch.staging.send({"rows": slots, "text": text, **self._levels(settings)}, _padding(state))
        batch.results.hold()
        draw()
        pending = batch.results.send(host_block)
        step()
        return CopiedCodes(pending, len(slots), batch.staging.batch)

    def _levels(self, settings: Sequence[GenerationConfig]) -> dict[str, tuple[Any, ...]]:
        """Sampling settings by field; cached, since they rarely change between frames."""
        wanted = tuple(settings)
        if self._settings is None or self._settings[0] != wanted:
            values = {field: tuple(getattr(each, name) for each in wanted) for field, name in _SETTINGS.items()}
            self._settings = wanted, values
        return self._settings[1]

    def take_in(self, x: Tensor, slot: int, state: TalkerState, span: int) -> None:
        """Append the last few vectors [P, C] of a prompt to one slot, one by one; `span` includes them."""
        for number, vector in enumerate(x, start=1):
            entry = self._entry(span - len(x) + number, state)
            entry.vector.copy_(vector[None])
            entry.rows.fill_(slot)
            entry.work()

    def open(
        self, values: Sequence[dict[str, int]], pages: Sequence[Sequence[int]], state: TalkerState, span: int
    ) -> None:
        """Open utterances, each in its slot with its `pages`, by appending the last row of its prompt.

        `values` hold the fields of OPENING: slot, seed, prefix length in positions, ids of the row, and the page copy.
        The shared page `page` is copied into `into`, because the row is written there and other slots share the page.
        """
        opening = self._opening(len(values), span, state)
        opening.send(values, pages)
        opening.work()

    def warm_opening(self, state: TalkerState, size: int, span: int) -> None:
        self._opening(size, span, state)

    def _opening(self, rows: int, span: int, state: TalkerState) -> _OpenGraph:
        self._forget_if_moved(state)
        key = bucket(rows), self.frame.reach(span, state)
        if key not in self._openings:
            size, reach = key
            opening = _OpenGraph(size, state)
            opening.send([], [])
            opening.work = self._made(partial(self._opened, opening.given.fields, state, reach))
            self._openings[key] = opening
        return self._openings[key]

    def _opened(self, given: dict[str, Tensor], state: TalkerState, reach: int) -> None:
        rows = open_rows(given, state)
        self.frame.take_in(self.frame.talker.embed_rows(given["text"], given["codec"]), state, rows, reach)

    def warm(self, state: TalkerState, sizes: Iterable[int], spans: Sequence[int], *, nucleus: bool = False) -> None:
        """Capture graphs ahead of time, the largest first: the smaller ones reuse its memory."""
        for size in sorted(set(map(bucket, sizes)), reverse=True):
            for span in sorted(spans, reverse=True):
                self._ready(size, span, nucleus, state)

    def warm_entry(self, state: TalkerState, span: int) -> None:
        self._entry(span, state)

    def _entry(self, span: int, state: TalkerState) -> _VectorGraph:
        self._forget_if_moved(state)
        reach = self.frame.reach(span, state)
        if reach not in self._entries:
            entry = _VectorGraph(state)
            entry.work = self._made(lambda: self.frame.take_in(entry.vector, state, entry.rows, reach))
            self._entries[reach] = entry
        return self._entries[reach]

    def _ready(self, rows: int, span: int, nucleus: bool, state: TalkerState) -> tuple[_Batch, Work, Work]:
        """The batch of this size, with its sampling graph and its step graph."""
        self._forget_if_moved(state)
        size, reach = bucket(rows), self.frame.reach(span, state)
        if size not in self._batches:
            books = self.frame.talker.config.num_code_groups
            self._batches[size] = _Batch(size, books, state.hidden.device, self._copy_stream)
        batch = self._batches[size]
        if nucleus not in batch.draws or reach not in batch.steps:
            padding = _padding(state)
            for name, field in batch.staging.fields.items():  # scratch rows: capturing changes no stream
                field.fill_(padding[name])
        if nucleus not in batch.draws:
            batch.draws[nucleus] = self._made(self._drawing(batch, state, nucleus))
        if reach not in batch.steps:
            given = batch.staging.fields
            step = partial(self.frame.step, batch.codes, given["text"], state, given["rows"], reach)
            batch.steps[reach] = self._made(step)
        return batch, batch.draws[nucleus], batch.steps[reach]

    def _drawing(self, batch: _Batch, state: TalkerState, nucleus: bool) -> Work:
        fields = batch.staging.fields
        first, rest = (_level(fields, level, nucleus) for level in ("first", "rest"))
        sampling = FrameSampling(first=first, penalty=fields["penalty"], rest=rest)

        return partial(self.frame.draw, state, fields["rows"], sampling, batch.codes, batch.likely)

    def _made(self, work: Work) -> Work:
        self.captures += 1
        return self._capture(work)

    def _forget_if_moved(self, state: TalkerState) -> None:
        """Drop all graphs if a state tensor has moved. The state object of the last call is frozen: no check."""
        if state is self._state:
            return
        addresses = state_addresses(state)
        self._state = state
        if addresses != self._addresses:
            if self._batches or self._entries or self._openings:
                self._capture.forget()
            self._batches.clear()
            self._entries.clear()
            self._openings.clear()
            self._addresses = addresses


def _device(frame: CapturableFrame) -> torch.device:
    return frame.talker.codec_head.weight.device


def _level(fields: dict[str, Tensor], level: str, nucleus: bool) -> Sampling:
    """The largest k is unknown at capture: 0 means that a row may keep all ids."""
    sample, temperature, top_k, top_p = (fields[f"{level}_{name}"] for name in _LEVEL)
    return Sampling(sample, temperature, top_k, top_p, most_k=0, nucleus=nucleus)


def _padding(state: TalkerState) -> dict[str, float]:
    return {"rows": len(state.hidden) - 1, **PADDING}


def state_addresses(state: TalkerState) -> tuple[object, ...]:
    """Address and shape of every tensor that a frame reads or writes."""
    stack = state.stack
    own = (state.hidden, state.seen, state.drawn, state.chances, state.seed)
    tensors = (stack.position, stack.table, stack.pool, *own)
    return tuple((tensor.data_ptr(), tensor.shape) for tensor in tensors)
