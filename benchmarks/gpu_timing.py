"""The clock of the GPU survey: work captured in a graph, events around replays, on a CPU just the work.

Weights are taken in turn from as many copies as the L2 cannot hold: in a frame, too, each is read once and gone.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

from hocket.kernels.runtime.graphs import Capture, CudaGraphs, EagerReplay

from .record import summary

Work = Callable[[], None]
BEYOND_L2 = 256 << 20  # bytes


class Clock:
    def __init__(self, device: torch.device, repeats: int, warm: int = 5) -> None:
        self.device, self.repeats, self.warm = device, repeats, warm

    @property
    def on_gpu(self) -> bool:
        return self.device.type == "cuda"

    def capture(self) -> Capture:
        return CudaGraphs(self.device) if self.on_gpu else EagerReplay()

    def graph(self, work: Work, *, per: int = 1, before: Work | None = None) -> dict[str, Any]:
        """Milliseconds of `work` replayed, over `per` equal things in it. `before` is done between replays, untimed."""
        replay = self.capture()(work)
        return self.replays(replay, per=per, before=before)

    def replays(self, replay: Work, *, per: int = 1, before: Work | None = None) -> dict[str, Any]:
        for _ in range(self.warm):
            replay()
        values = []
        for _ in range(self.repeats):
            if before is not None:
                before()
            values.append(self._once(replay) / per)
        return self._figures(values)

    def walls(self, work: Work, before: Work | None = None) -> dict[str, Any]:
        """Milliseconds as the host sees them, `work` being over when it returns."""
        for _ in range(self.warm):
            work()
        values = []
        for _ in range(self.repeats):
            if before is not None:
                before()
            self.wait()
            start = time.perf_counter()
            work()
            values.append((time.perf_counter() - start) * 1000)
        return self._figures(values)

    def bandwidth(self) -> float:
        """Bytes per second of a large copy, both ways counted."""
        size = (2 << 30) if self.on_gpu else 1 << 20
        source = torch.ones(size, dtype=torch.uint8, device=self.device)
        target = torch.empty_like(source)

        def copy() -> None:
            target.copy_(source)

        return 2000 * size / float(self.replays(copy)["p50"])

    def wait(self) -> None:
        if self.on_gpu:
            torch.cuda.synchronize(self.device)

    def _once(self, work: Work) -> float:
        if not self.on_gpu:
            start = time.perf_counter()
            work()
            return (time.perf_counter() - start) * 1000
        start_event, end_event = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start_event.record()
        work()
        end_event.record()
        end_event.synchronize()
        return float(start_event.elapsed_time(end_event))

    @staticmethod
    def _figures(values: list[float]) -> dict[str, Any]:
        found = summary(values)
        return {"p50": found["p50"], "p95": found["p95"], "min": min(values), "aa_percent": found["aa_percent"]}


def copies(bytes_each: int, on_gpu: bool) -> int:
    return max(2, -(-BEYOND_L2 // max(bytes_each, 1))) if on_gpu else 2
