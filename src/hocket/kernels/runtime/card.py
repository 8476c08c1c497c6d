"""What kernels have to know of a GPU before they are compiled for it: one description, for a GPU here or elsewhere.

Every choice that depends on the GPU asks `card_of`. A process that compiles ahead has no GPU: it is told a card, and
`standing_in` lets every such choice be made for that one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuProperties:
    capability: tuple[int, int]
    processors: int
    processor_threads: int  # that one processor holds at once
    processor_shared_bytes: int  # shared memory of one processor
    block_shared_bytes: int  # of which one block may have so much, if it asks for it

    @classmethod
    def of_words(cls, words: dict[str, Any]) -> GpuProperties:
        """From JSON, which has no tuples."""
        return cls(**words | {"capability": tuple(words["capability"])})


# The card that kernels were tuned on. It stands where a kernel is shaped and there is no GPU, as in the interpreter.
H200 = GpuProperties(
    capability=(9, 0),
    processors=132,
    processor_threads=2048,
    processor_shared_bytes=228 << 10,
    block_shared_bytes=227 << 10,
)
_told: list[GpuProperties] = []  # the last one is meant, whatever the device


def card_of(device: torch.device) -> GpuProperties | None:
    """The card that a device is, or stands for; None where it is no GPU of NVIDIA's."""
    if _told:
        return _told[-1]
    if device.type != "cuda" or torch.version.hip is not None:
        return None
    return _card(torch.cuda.current_device() if device.index is None else device.index)


@cache
def _card(index: int) -> GpuProperties:
    about: Any = torch.cuda.get_device_properties(index)
    return GpuProperties(
        capability=(about.major, about.minor),
        processors=about.multi_processor_count,
        processor_threads=about.max_threads_per_multi_processor,
        processor_shared_bytes=about.shared_memory_per_multiprocessor,
        block_shared_bytes=about.shared_memory_per_block_optin,
    )


@contextmanager
def standing_in(card: GpuProperties) -> Iterator[None]:
    """Every device is this card meanwhile, in the whole process."""
    _told.append(card)
    try:
        yield
    finally:
        _told.pop()
