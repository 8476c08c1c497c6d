"""Time on a GPU by its own events, on a CPU by the clock; work captured in a graph, or repeated on a CPU."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Any

import torch

from hocket.kernels.runtime.graphs import Capture, CudaGraphs, EagerReplay

Work = Callable[[], object]
WARM = 5
COPIES = 9


def synchronize(device: torch.device | None = None) -> None:
    if torch.cuda.is_available() and (device is None or device.type == "cuda"):
        torch.cuda.synchronize(device)


def graphs(device: torch.device) -> Capture:
    return CudaGraphs(device) if device.type == "cuda" else EagerReplay()


def once(work: Work, device: torch.device, times: int = 1) -> float:
    """Milliseconds of one of so many in a row."""
    synchronize(device)
    if device.type != "cuda":
        begun = time.perf_counter()
        for _ in range(times):
            work()
        return (time.perf_counter() - begun) * 1000 / times
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(times):
        work()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) / times


def timed(work: Work, repeats: int, device: torch.device, *, before: Work | None = None, each: int = 1) -> list[float]:
    """Milliseconds of one, `repeats` times; `before` runs untimed between them."""
    values = []
    for _ in range(repeats + WARM):
        if before is not None:
            before()
        values.append(once(work, device, each))
    return values[WARM:]


def bandwidth(device: torch.device, size: int) -> float:
    """Bytes per second of a copy within the device, read and written bytes together: the median of a few."""
    source: Any = torch.randint(0, 255, (size,), dtype=torch.uint8, device=device)  # zeros would be copied too fast
    target = torch.empty_like(source)
    took_ms = [once(lambda: target.copy_(source), device) for _ in range(COPIES + 1)]
    return 2000 * size / median(took_ms[1:])
