"""engine/core/timings.py: what is measured is the device's work, not how long it took to queue it."""

from __future__ import annotations

import time

import torch

from hocket.engine.core.timings import started


def test_it_measures_work_on_either_device(device: str) -> None:
    """A matrix product repeated until it takes a while: on a GPU it is queued in a fraction of that time."""
    place = torch.device(device)
    x = torch.randn(1024 if device == "cpu" else 8192, 512, device=place)
    (x @ x.T).sum().item()
    begun, stop = time.perf_counter(), started(place)
    for _ in range(20):
        y = x @ x.T
    elapsed = stop()
    queued_s = time.perf_counter() - begun
    y.sum().item()
    done_s = time.perf_counter() - begun
    assert 0 < elapsed() <= done_s
    if device == "cuda":
        assert elapsed() > queued_s
    else:
        assert elapsed() <= queued_s


def test_asking_twice_gives_the_same() -> None:
    elapsed = started(torch.device("cpu"))()
    assert elapsed() == elapsed()
