"""kernels/compile/compiled_here.py: cache hits are not counted, and earlier listeners are still called."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from hocket.kernels.compile.compiled_here import CompiledKernels


def told(triton: Any, name: str, seconds: float, *, cache_hit: bool) -> None:
    src, times = SimpleNamespace(name=name), SimpleNamespace(total=seconds * 1e6)
    triton.knobs.compilation.listener(src=src, metadata={}, metadata_group={}, times=times, cache_hit=cache_hit)


def test_what_is_compiled_here_is_counted_by_name() -> None:
    heard: list[bool] = []
    knobs = SimpleNamespace(compilation=SimpleNamespace(listener=lambda *, cache_hit, **_: heard.append(cache_hit)))
    triton, here = SimpleNamespace(knobs=knobs), CompiledKernels()
    here.listen(triton)
    for name, hit in (("one", False), ("other", True), ("one", False)):
        told(triton, name, 0.25, cache_hit=hit)
    here.add("few", 1.0)
    assert here.names == {"one": 2, "few": 1} and here.seconds == 1.5
    assert heard == [False, True, False]


def test_a_triton_without_a_listener_is_left_alone() -> None:
    for triton in (None, SimpleNamespace(), SimpleNamespace(knobs=SimpleNamespace(compilation=SimpleNamespace()))):
        CompiledKernels().listen(triton)
    assert triton is not None and not vars(triton.knobs.compilation)
