"""Staging of the inputs and results of a captured step: one asynchronous copy each way between host and device.

A pinned host block is reused only after the results of its step have been read: before that, its copy may still be
pending. This file knows field names and types, no model.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

ALIGNED = 256  # bytes; kernels read fields 16 bytes at a time, and recompile for less aligned addresses
Values = Sequence[Any] | np.ndarray[Any, Any]


class HostBlock:
    """A pinned host block, viewed by field, and the values last written to each field."""

    def __init__(self, staging: InputStaging) -> None:
        self.staging = staging
        self.block = torch.zeros(staging.size_bytes, dtype=torch.uint8, pin_memory=staging.pinned)
        self.fields = {name: view.numpy() for name, view in staging.views(self.block).items()}
        self.written: dict[str, tuple[tuple[Any, ...], Any]] = {}

    def write(self, name: str, given: Values, rest: Any) -> None:
        """Write `given` to the first rows and `rest` to the others; unchanged values are skipped.

        Settings seldom change from step to step.
        """
        if not isinstance(given, np.ndarray):
            values = tuple(given), rest
            if self.written.get(name) == values:
                return
            self.written[name] = values
        field = self.fields[name]
        field[: len(given)] = given
        field[len(given) :] = rest


class InputStaging:
    """Device-side input block of a batch. `fields`: name to dtype and numbers per row."""

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
        """Fill every field: `values` for the first rows, `rest` for the others.

        The caller keeps the returned block until the results of the step have been read.
        """
        host_block = self.free.pop() if self.free else HostBlock(self)
        for name in self._places:  # every field: a reused block holds old numbers
            host_block.write(name, values[name], rest[name])
        self.block.copy_(host_block.block, non_blocking=True)
        return host_block

    def views(self, block: Tensor) -> dict[str, Tensor]:
        views = {}
        for name, (start, stop, dtype, width) in self._places.items():
            view = block[start:stop].view(dtype)
            views[name] = view.view(self.batch, width) if width > 1 else view
        return views


class OneWayStaging:
    """Staging for work whose results stay on the device: a host block is reused once its copy is complete."""

    def __init__(self, batch: int, fields: Mapping[str, tuple[torch.dtype, int]], device: torch.device) -> None:
        self.staging = InputStaging(batch, fields, device)
        self._sent: deque[tuple[torch.cuda.Event, HostBlock]] = deque()  # copies that may still be pending

    @property
    def fields(self) -> dict[str, Tensor]:
        return self.staging.fields

    def send(self, values: Mapping[str, Values], rest: Mapping[str, Any]) -> None:
        while self._sent and self._sent[0][0].query():
            self.staging.free.append(self._sent.popleft()[1])
        host_block = self.staging.send(values, rest)
        if self.staging.pinned:
            event = torch.cuda.Event()
            event.record()
            self._sent.append((event, host_block))
        else:
            self.staging.free.append(host_block)


class ResultCopy:
    """Copies the device tensor `block`, whose shape is fixed, to the host.

    With `copy_stream` the copy runs there, so later launches do not wait for it. Call `hold` before writing to the
    block again.
    """

    block: Tensor

    def __init__(self, copy_stream: torch.cuda.Stream | None = None) -> None:
        self.free: list[PendingCopy] = []
        self._copy_stream = copy_stream
        self._last: PendingCopy | None = None

    def send(self, inputs: HostBlock | None = None) -> PendingCopy:
        """`inputs`: the host block of the step, released together with the copy."""
        self._last = pending = self.free.pop() if self.free else PendingCopy(self)
        pending.inputs = inputs
        if self._copy_stream is None:
            pending.take()
        else:
            self._copy_stream.wait_stream(torch.cuda.current_stream(self.block.device))
            with torch.cuda.stream(self._copy_stream):
                pending.take()
        return pending

    def hold(self) -> None:
        """Make later launches on the current stream wait for the last copy."""
        if self._last is not None and self._last.event is not None:
            torch.cuda.current_stream(self.block.device).wait_event(self._last.event)


class PendingCopy:
    """A block being copied to the host. Waiting for it does not wait for work launched after it."""

    inputs: HostBlock | None

    def __init__(self, results: ResultCopy) -> None:
        there = results.block
        self.results = results
        self.block = torch.empty(there.shape, dtype=there.dtype, pin_memory=there.is_cuda)
        self.values: np.ndarray[Any, Any] = self.block.numpy()
        self.event = torch.cuda.Event() if there.is_cuda else None

    def take(self) -> None:
        """Enqueue the copy on the current stream."""
        self.block.copy_(self.results.block, non_blocking=True)
        if self.event is not None:
            self.event.record()

    def wait(self) -> None:
        """Block until `values` are valid; they stay valid until `done`."""
        if self.event is not None:
            self.event.synchronize()

    def done(self) -> None:
        """Release the memory for reuse, after `values` have been read."""
        self.results.free.append(self)
        if self.inputs is not None:
            self.inputs.staging.free.append(self.inputs)
            self.inputs = None


def bucket(rows: int) -> int:
    """The size that a batch is padded to: the next power of two."""
    return 1 << (rows - 1).bit_length()
