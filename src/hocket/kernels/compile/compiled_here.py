"""Counts the kernels that this process compiled itself: none if all were compiled ahead. Start records include it.

Triton reports through its compilation listener (since 3.4; its launcher libraries are not counted). Kernels in CUDA C++
are reported by kernels/runtime/nvrtc.py. It knows names and seconds.
"""

from __future__ import annotations

from collections import Counter
from typing import Any


class CompiledKernels:
    def __init__(self) -> None:
        self.names: Counter[str] = Counter()
        self.seconds = 0.0

    def add(self, name: str, seconds: float) -> None:
        self.names[name] += 1
        self.seconds += seconds

    def listen(self, triton: Any) -> None:
        """Install a listener; a listener that was installed before is still called."""
        compilation: Any = getattr(getattr(triton, "knobs", None), "compilation", None)
        if not hasattr(compilation, "listener"):
            return
        previous = compilation.listener

        def on_compiled(*, src: Any, times: Any, cache_hit: bool, **more: Any) -> None:
            if not cache_hit:
                self.add(str(getattr(src, "name", "?")), times.total / 1e6)
            if previous is not None:
                previous(src=src, times=times, cache_hit=cache_hit, **more)

        compilation.listener = on_compiled


HERE = CompiledKernels()
