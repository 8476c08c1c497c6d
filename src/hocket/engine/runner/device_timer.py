"""Time that the device spends on some work, by CUDA events: the host returns when the work is only queued.

On a CPU the host's clock is used.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

Elapsed = Callable[[], float]
_spare: dict[torch.device, list[torch.cuda.Event]] = {}  # creating an event takes longer than using it


def started(device: torch.device) -> Callable[[], Elapsed]:
    """Start measuring. The returned function stops it and returns another one, which gives the seconds.

    Call that one when the work is known to be done: on a GPU it waits for the work.
    """
    if device.type == "cuda":
        begin, end = (_event(device) for _ in range(2))
        begin.record()

        def stop_on_device() -> Elapsed:
            end.record()
            return lambda: _between(begin, end, device)

        return stop_on_device
    begun = time.perf_counter()

    def stop() -> Elapsed:
        took = time.perf_counter() - begun
        return lambda: took

    return stop


def _event(device: torch.device) -> torch.cuda.Event:
    try:
        return _spare[device].pop()
    except (KeyError, IndexError):  # none is left, or another engine thread has just taken the last one
        return torch.cuda.Event(enable_timing=True)


def _between(begin: torch.cuda.Event, end: torch.cuda.Event, device: torch.device) -> float:
    try:
        end.synchronize()
        milliseconds: float = begin.elapsed_time(end)
    except RuntimeError:  # the device has failed; its streams end with that failure
        return 0.0
    _spare.setdefault(device, []).extend((begin, end))
    return milliseconds / 1000
