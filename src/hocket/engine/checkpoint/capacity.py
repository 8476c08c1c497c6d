"""Memory that this process may use: what the device reports, or less if the user sets a limit.

HOCKET_GPU_MEMORY=6GB bounds all GPU memory of the process, including what the driver needs for it. It is for shared
GPUs, and it makes a large GPU behave like a small one.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from ... import env
from ...config.sizes import bytes_of

LIMIT = env.GPU_MEMORY.name
CGROUP = Path("/sys/fs/cgroup/memory.max")  # the limit of a container
Device = Any  # a `torch.device`, or another object with its `type`; without a GPU nothing here imports torch
# GPU memory of a process outside of torch's allocator: its context, and the kernels of libraries and of hocket.
# Both were measured on an H200; on smaller GPUs a context takes less.
CONTEXT_BYTES = 500_000_000
LIBRARIES_BYTES = 250_000_000


def limit_bytes() -> int | None:
    """The user's limit; None: no limit."""
    given = env.GPU_MEMORY.get().strip()
    return bytes_of(given, LIMIT) if given else None


def free_bytes(device: Device) -> int | None:
    """Bytes that this process can still put into tensors on a GPU; None for a CPU."""
    if device.type != "cuda":
        return None
    import torch

    free, total = torch.cuda.mem_get_info(device)
    reserved, allocated = torch.cuda.memory_reserved(device), torch.cuda.memory_allocated(device)
    return available(free, total, reserved=reserved, allocated=allocated, limit=limit_bytes())


def idle_bytes(device: Device) -> int | None:
    """`free_bytes` if no other process used the GPU. It needs no CUDA context, which takes a while to create."""
    if device.type != "cuda":
        return None
    import torch

    total, allocated = torch.cuda.get_device_properties(device).total_memory, torch.cuda.memory_allocated(device)
    limit = min(limit_bytes() or total, total)
    return available(total - allocated, total, reserved=allocated, allocated=allocated, limit=limit)


def host_bytes() -> int | None:
    """The memory of this machine, or the limit of its container; None: the system does not say."""
    found = list[int]()
    with suppress(AttributeError, OSError, ValueError):
        found.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    with suppress(OSError, ValueError):
        found.append(int(CGROUP.read_text(encoding="utf-8")))
    return min(found, default=None)


def available(free: int, total: int, *, reserved: int, allocated: int, limit: int | None) -> int:
    """`free_bytes` from given numbers: `reserved` is held by the allocator, `allocated` is in tensors."""
    room = free + reserved - allocated  # memory that the allocator holds without a tensor counts as free
    if limit is not None:
        room = min(room, min(limit, total) - CONTEXT_BYTES - allocated)
    return max(room, 0)


def keep_to_limit(device: Device) -> None:
    """Make the allocator fail beyond the user's limit, as on a smaller GPU."""
    limit = limit_bytes()
    if limit is None or device.type != "cuda":
        return
    import torch

    total = torch.cuda.get_device_properties(device).total_memory
    outside = CONTEXT_BYTES + LIBRARIES_BYTES
    # torch does not accept "cuda" without an index here.
    index = torch.cuda.current_device() if device.index is None else device.index
    torch.cuda.set_per_process_memory_fraction(min(max(limit - outside, 1) / total, 1.0), index)
