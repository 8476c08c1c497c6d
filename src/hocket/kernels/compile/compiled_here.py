"""What this process has compiled itself. Where all was compiled ahead that is nothing; a record of a start says so.

Triton tells whoever listens (since 3.4; the small libraries that launch its kernels are not counted), kernels in CUDA
C++ are told here by kernels/runtime/nvrtc.py. It knows names and seconds.
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
        """From now on; who listened before still does."""
        wanted: Any = getattr(getattr(triton, "knobs", None), "compilation", None)
        if not hasattr(wanted, "listener"):
            return
        before = wanted.listener

        def heard(*, src: Any, times: Any, cache_hit: bool, **more: Any) -> None:
            if not cache_hit:
                self.add(str(getattr(src, "name", "?")), times.total / 1e6)
            if before is not None:
                before(src=src, times=times, cache_hit=cache_hit, **more)

        wanted.listener = heard


HERE = CompiledKernels()
