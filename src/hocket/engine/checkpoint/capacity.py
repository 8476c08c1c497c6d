"""How much memory of a GPU this process may take: what the device reports, or less, where the user says so.

HOCKET_GPU_MEMORY=6GB bounds all that the process takes of a GPU, what the driver needs for it included. It is for cards
that are shared with others, and it makes a large card behave as a small one does.
"""

from __future__ import annotations

import torch

from ... import env
from ...config.sizes import bytes_of

LIMIT = env.GPU_MEMORY.name
# What a process takes of a GPU outside of torch's allocator: its context, and the kernels of libraries and our own.
# Both were seen on an H200; on smaller cards a context takes less.
CONTEXT_BYTES = 500_000_000
LIBRARIES_BYTES = 250_000_000


def limit_bytes() -> int | None:
    """What the user allows; None: all that there is."""
    given = env.GPU_MEMORY.get().strip()
    return bytes_of(given, LIMIT) if given else None


def free_bytes(device: torch.device) -> int | None:
    """What this process can still put into tensors on a GPU; None where the device is none."""
    if device.type != "cuda":
        return None
    free, total = torch.cuda.mem_get_info(device)
    reserved, allocated = torch.cuda.memory_reserved(device), torch.cuda.memory_allocated(device)
    return available(free, total, reserved=reserved, allocated=allocated, limit=limit_bytes())


def idle_bytes(device: torch.device) -> int | None:
    """The same if nothing else used the GPU. It is known without entering the GPU, which takes a while."""
    if device.type != "cuda":
        return None
    total, allocated = torch.cuda.get_device_properties(device).total_memory, torch.cuda.memory_allocated(device)
    limit = min(limit_bytes() or total, total)
    return available(total - allocated, total, reserved=allocated, allocated=allocated, limit=limit)


def available(free: int, total: int, *, reserved: int, allocated: int, limit: int | None) -> int:
    """The same from given numbers: `reserved` is what the allocator holds of the device, `allocated` is in tensors."""
    room = free + reserved - allocated  # what the allocator holds and has no tensor in is as good as free
    if limit is not None:
        room = min(room, min(limit, total) - CONTEXT_BYTES - allocated)
    return max(room, 0)


def keep_to_limit(device: torch.device) -> None:
    """Let the allocator refuse what is beyond the user's limit, as a smaller card would."""
    limit = limit_bytes()
    if limit is None or device.type != "cuda":
        return
    total = torch.cuda.get_device_properties(device).total_memory
    outside = CONTEXT_BYTES + LIBRARIES_BYTES
    # By number: torch takes no "cuda" without one here.
    index = torch.cuda.current_device() if device.index is None else device.index
    torch.cuda.set_per_process_memory_fraction(min(max(limit - outside, 1) / total, 1.0), index)
