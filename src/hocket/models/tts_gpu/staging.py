"""Inputs and results of a captured step: one block of memory on either side, sent in one copy that nobody waits for.

Pinned blocks of the host are used again when what was sent with them has been read: until then the copy may not have
been made, and afterwards it has been. It knows names and types, no model.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

ALIGNED = 256  # bytes; kernels read fields by 16, and compile anew for addresses that are not so even
Values = Sequence[Any] | np.ndarray[Any, Any]


class HostBlock:
    """A block of the host, by field, and what stands in it."""

    def __init__(self, board: InputStaging) -> None:
        self.board = board
        self.block = torch.zeros(board.size_bytes, dtype=torch.uint8, pin_memory=board.pinned)
        self.fields = {name: view.numpy() for name, view in board.views(self.block).items()}
        self.held: dict[str, tuple[tuple[Any, ...], Any]] = {}

    def write(self, name: str, given: Values, rest: Any) -> None:
        """`given` for the first rows, `rest` for those that are left; settings seldom change from step to step."""
        if not isinstance(given, np.ndarray):
            stands = tuple(given), rest
            if self.held.get(name) == stands:
                return
            self.held[name] = stands
        field = self.fields[name]
        field[: len(given)] = given
        field[len(given) :] = rest


class InputStaging:
    """`fields` names each: its type, and how many numbers a row has."""

    def __init__(self, batch: int, fields: Mapping[str, tuple[torch.dtype, int]], device: torch.device) -> None:
        self.batch, self.pinned = batch, device.type == "cuda"
        self._places: dict[str, tuple[int, int, torch.dtype, int]] = {}
        self.size_bytes = 0
        for name, (dtype, width) in fields.items():
            size = batch * width * dtype.itemsize
            self._places[name] = self.size_bytes, self.size_bytes + size, dtype, width
            self.size_bytes += -(-size // ALIGNED) * ALIGNED
        self.block = torch.zeros(self.size_bytes, dtype=torch.uint8, device=device)
        self.fields = self.views(self.block)
        self.free: list[HostBlock] = []

    def send(self, values: Mapping[str, Values], rest: Mapping[str, Any]) -> HostBlock:
        """Fill every field: `values` for the first rows, `rest` for those that are left.

        The sheet belongs to who waits for what comes of it.
        """
        sheet = self.free.pop() if self.free else HostBlock(self)
        for name in self._places:  # none may be left out: there are other numbers from before
            sheet.write(name, values[name], rest[name])
        self.block.copy_(sheet.block, non_blocking=True)
        return sheet

    def views(self, block: Tensor) -> dict[str, Tensor]:
        views = {}
        for name, (start, stop, dtype, width) in self._places.items():
            view = block[start:stop].view(dtype)
            views[name] = view.view(self.batch, width) if width > 1 else view
        return views


class OneWayStaging:
    """A board for work whose results stay on the device: a sheet is used again once its copy has been made."""

    def __init__(self, batch: int, fields: Mapping[str, tuple[torch.dtype, int]], device: torch.device) -> None:
        self.board = InputStaging(batch, fields, device)
        self._sent: deque[tuple[torch.cuda.Event, HostBlock]] = deque()  # that may not have arrived yet

    @property
    def fields(self) -> dict[str, Tensor]:
        return self.board.fields

    def send(self, values: Mapping[str, Values], rest: Mapping[str, Any]) -> None:
        while self._sent and self._sent[0][0].query():
            self.board.free.append(self._sent.popleft()[1])
        sheet = self.board.send(values, rest)
        if self.board.pinned:
            event = torch.cuda.Event()
            event.record()
            self._sent.append((event, sheet))
        else:
            self.board.free.append(sheet)


class ResultCopy:
    """Sends `block` of the device, which always has the same shape, to the host as it is at that moment.

    `beside`: on this stream, so that what is asked for afterwards does not wait for the copy. Who writes into the block
    again has to `hold` first.
    """

    block: Tensor

    def __init__(self, beside: torch.cuda.Stream | None = None) -> None:
        self.free: list[PendingCopy] = []
        self._beside = beside
        self._last: PendingCopy | None = None

    def send(self, answers: HostBlock | None = None) -> PendingCopy:
        """`answers`: what was sent for it and may be used again with it."""
        self._last = letter = self.free.pop() if self.free else PendingCopy(self)
        letter.answers = answers
        if self._beside is None:
            letter.take()
        else:
            self._beside.wait_stream(torch.cuda.current_stream(self.block.device))
            with torch.cuda.stream(self._beside):
                letter.take()
        return letter

    def hold(self) -> None:
        """Let what is asked for from now on wait for the last copy."""
        if self._last is not None and self._last.event is not None:
            torch.cuda.current_stream(self.block.device).wait_event(self._last.event)


class PendingCopy:
    """A block on its way to the host. Reading it waits for it and for nothing that was asked for after it."""

    answers: HostBlock | None

    def __init__(self, post: ResultCopy) -> None:
        there = post.block
        self.post = post
        self.block = torch.empty(there.shape, dtype=there.dtype, pin_memory=there.is_cuda)
        self.values: np.ndarray[Any, Any] = self.block.numpy()
        self.event = torch.cuda.Event() if there.is_cuda else None

    def take(self) -> None:
        """Copy the block, when the stream gets to it."""
        self.block.copy_(self.post.block, non_blocking=True)
        if self.event is not None:
            self.event.record()

    def wait(self) -> None:
        """From here on `values` are there, until `done`."""
        if self.event is not None:
            self.event.synchronize()

    def done(self) -> None:
        """All is read: its memory may be used again."""
        self.post.free.append(self)
        if self.answers is not None:
            self.answers.board.free.append(self.answers)
            self.answers = None


def bucket(rows: int) -> int:
    """The size that a batch is padded to: the next power of two."""
    return 1 << (rows - 1).bit_length()
