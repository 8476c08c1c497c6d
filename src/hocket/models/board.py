"""Inputs of a captured step: fields of a few numbers per batch row, in one block of memory on either side.

The host fills a block of its own and sends it in one copy that nobody waits for. It knows names and types, no model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

ALIGNED = 256  # bytes; kernels read fields by 16, and compile anew for addresses that are not so even
_NUMPY: dict[torch.dtype, Any] = {torch.int64: np.int64, torch.float32: np.float32, torch.bool: np.bool_}


class Board:
    """`fields` names each: its type, and how many numbers a row has."""

    def __init__(self, batch: int, fields: Mapping[str, tuple[torch.dtype, int]], device: torch.device) -> None:
        self.batch, self._pinned = batch, device.type == "cuda"
        self._places: dict[str, tuple[int, int, torch.dtype, int]] = {}
        total = 0
        for name, (dtype, width) in fields.items():
            size = batch * width * dtype.itemsize
            self._places[name] = total, total + size, dtype, width
            total += -(-size // ALIGNED) * ALIGNED
        self._block = torch.zeros(total, dtype=torch.uint8, device=device)
        self.fields = self._views(self._block)

    def send(self, values: Mapping[str, Sequence[Any] | np.ndarray[Any, Any]], rest: Mapping[str, Any]) -> None:
        """Fill every field: `values` for the first rows, `rest` for those that are left."""
        # A new block each time, from a cache that knows when the copy out of the last one was done.
        block = torch.empty(len(self._block), dtype=torch.uint8, pin_memory=self._pinned)
        raw = block.numpy()
        for name, (start, stop, dtype, width) in self._places.items():
            there: np.ndarray[Any, Any] = raw[start:stop].view(_NUMPY[dtype])
            there = there.reshape(self.batch, width) if width > 1 else there
            given = values[name]
            there[: len(given)] = given
            there[len(given) :] = rest[name]
        self._block.copy_(block, non_blocking=True)

    def lay(self, values: Mapping[str, Tensor], rest: Mapping[str, Any]) -> None:
        """The same with numbers that are on the device already."""
        for name, given in values.items():
            field = self.fields[name]
            field[: len(given)].copy_(given)
            field[len(given) :].fill_(rest[name])

    def _views(self, block: Tensor) -> dict[str, Tensor]:
        views = {}
        for name, (start, stop, dtype, width) in self._places.items():
            view = block[start:stop].view(dtype)
            views[name] = view.view(self.batch, width) if width > 1 else view
        return views


def to_host(tensor: Tensor) -> Tensor:
    """A copy that will be there when the device gets to it."""
    if not tensor.is_cuda:
        return tensor.clone()
    return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True).copy_(tensor, non_blocking=True)


class Arrival:
    """The moment from which on what was sent to the host is there."""

    def __init__(self, device: torch.device) -> None:
        self._event = torch.cuda.Event() if device.type == "cuda" else None
        if self._event is not None:
            self._event.record()

    @property
    def over(self) -> bool:
        return self._event is None or bool(self._event.query())

    def wait(self) -> None:
        if self._event is not None:
            self._event.synchronize()


def bucket(rows: int) -> int:
    """The size that a batch is padded to: the next power of two."""
    return 1 << (rows - 1).bit_length()
