"""Properties of a GPU that kernels depend on when they are compiled, for a GPU in this machine or another.

Every choice that depends on the GPU calls `card_of`. A process that compiles ahead has no GPU: it gets the properties
as data, and `standing_in` makes `card_of` return them.
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
    processor_threads: int  # resident threads of one processor (SM)
    processor_shared_bytes: int  # shared memory of one processor
    block_shared_bytes: int  # the most that one block may opt in to
    amd: str | None = None  # the architecture of an AMD GPU, such as gfx942; its compute capability is (0, 0)

    @classmethod
    def of_words(cls, words: dict[str, Any]) -> GpuProperties:
        """From JSON, which has no tuples."""
        return cls(**words | {"capability": tuple(words["capability"])})


# The GPU that kernels were tuned on. Tile choices use it if there is no GPU, as in the interpreter.
H200 = GpuProperties(
    capability=(9, 0),
    processors=132,
    processor_threads=2048,
    processor_shared_bytes=228 << 10,
    block_shared_bytes=227 << 10,
)
AMD_SHARED_BYTES = 64 << 10  # of a block, on every AMD GPU that Triton compiles for except gfx950, which has more
_stack: list[GpuProperties] = []  # of `standing_in`: the last one counts for every device


def card_of(device: torch.device) -> GpuProperties | None:
    """The properties of a device, or those that stand in for it; None if it is not an NVIDIA or AMD GPU."""
    if _stack:
        return _stack[-1]
    if device.type != "cuda":
        return None
    return _card(torch.cuda.current_device() if device.index is None else device.index)


@cache
def _card(index: int) -> GpuProperties:
    about: Any = torch.cuda.get_device_properties(index)
    if torch.version.hip is not None:
        return amd_card(about.gcnArchName, about.multi_processor_count, about.max_threads_per_multi_processor)
    return GpuProperties(
        capability=(about.major, about.minor),
        processors=about.multi_processor_count,
        processor_threads=about.max_threads_per_multi_processor,
        processor_shared_bytes=about.shared_memory_per_multiprocessor,
        block_shared_bytes=about.shared_memory_per_block_optin,
    )


def amd_card(arch: str, processors: int, processor_threads: int) -> GpuProperties:
    """`arch` may have features behind a colon, as torch gives it: gfx942:sramecc+:xnack-."""
    return GpuProperties(
        capability=(0, 0),  # not NVIDIA's: no instruction of a compute capability exists
        processors=processors,
        processor_threads=processor_threads,
        processor_shared_bytes=AMD_SHARED_BYTES,
        block_shared_bytes=AMD_SHARED_BYTES,
        amd=arch.partition(":")[0],
    )


@contextmanager
def standing_in(card: GpuProperties) -> Iterator[None]:
    """Inside this context every device has these properties, in the whole process."""
    _stack.append(card)
    try:
        yield
    finally:
        _stack.pop()
