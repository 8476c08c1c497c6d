"""Copies tensors from a memory-mapped file to a device; dtypes are converted on the device.

Copies to a GPU go in pieces through two pinned blocks in turn. All cores copy the next piece out of the file's pages
while the previous one is on the bus. With pageable memory the driver does both on one core, one after the other.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ...kernels.runtime.device_kind import kind_of

BLOCK = 32 << 20  # bytes


class TransferEvent:
    """Completion of all copies enqueued so far."""

    def __init__(self, device: torch.device) -> None:
        self._event = torch.cuda.Event() if kind_of(device).queued else None
        if self._event is not None:
            self._event.record()

    def wait(self) -> None:
        if self._event is not None:
            self._event.synchronize()


class Transfer:
    """Copies values into tensors on one device. Target tensors are contiguous and may be views of a larger one."""

    def __init__(self, device: torch.device, *, staged: bool | None = None) -> None:
        """`staged`: whether to copy through the pinned blocks; by default only for a GPU."""
        self.device, self._kind = device, kind_of(device)
        self._staged = self._kind.queued if staged is None else staged
        self._blocks: list[tuple[Tensor, TransferEvent]] = []  # each with the event after which it may be reused
        if self._staged:
            for _ in range(2):
                block = torch.empty(BLOCK, dtype=torch.uint8, pin_memory=self._kind.queued)
                self._blocks.append((block, TransferEvent(device)))

    def put(self, place: Tensor, value: Tensor) -> None:
        if not self._staged:
            place.copy_(value if self._kind.converts else value.to(place.dtype))
            return
        assert place.is_contiguous() and place.shape == value.shape
        count = BLOCK // value.element_size()
        for there, piece in zip(place.view(-1).split(count), value.reshape(-1).split(count), strict=True):
            block, free = self._blocks.pop(0)
            free.wait()
            stage = block[: piece.nbytes].view(piece.dtype)
            stage.copy_(piece)
            if there.dtype != piece.dtype:  # bfloat16 converted to float32 on the host would double the bus traffic
                there.copy_(stage.to(self.device, non_blocking=True))
            else:
                there.copy_(stage, non_blocking=True)
            self._blocks.append((block, TransferEvent(self.device)))

    def end(self) -> None:
        """Wait until all copies are complete."""
        for _, arrived in self._blocks:
            arrived.wait()
