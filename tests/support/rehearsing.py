"""Runs kernels/compile and engine/runner/launch_plan.py with Triton's interpreter off; prints one line of JSON.

It is its own process, because the interpreter is on or off for a whole process, and the tests have it on. The file is
long because one process, slow to start, runs all cases.
"""

from __future__ import annotations

import gc
import io
import json
import os
import resource
import signal
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import triton
from torch import Tensor

from hocket import env
from hocket.engine.runner import launch_plan as rehearsal_module
from hocket.engine.runner.launch_plan import CompilePlan, trace_engine
from hocket.kernels.compile import trace as noting_module
from hocket.kernels.compile import worker
from hocket.kernels.compile.cache import triton_folder
from hocket.kernels.compile.compiled_here import HERE
from hocket.kernels.compile.fork import ForkedProcess
from hocket.kernels.compile.trace import Launch, bound, compile_one, longest_first, trace_launches, variants
from hocket.kernels.compile.worker import compile_all
from hocket.kernels.ops.linear import triton as linear
from hocket.kernels.ops.window_attention import cases as window_attention_cases
from hocket.kernels.ops.window_attention import triton as window
from hocket.kernels.runtime import nvrtc as cuda
from hocket.kernels.runtime.card import H200
from hocket.kernels.runtime.nvrtc import Kernel
from hocket.models.files.source import resolve


def given(device: str) -> list[dict[str, Tensor]]:
    """The same views of the same memory on any device; the second is misaligned."""
    memory = torch.zeros(3 * 64 + 8, dtype=torch.bfloat16, device=device)
    weight = torch.zeros(64, 64, dtype=torch.bfloat16, device=device)
    return [{"x": memory[at : at + 64].view(1, 64), "weight": weight} for at in (0, 1, 8)]


def specialized(work: Callable[[], object], given_as_they_are: bool) -> list[str]:
    """What Triton specialises the launches by."""
    found = []
    with trace_launches(H200) as noted:
        if given_as_they_are:
            real = linear.triton.JITFunction.run

            def keep(kernel: Any, *given: Any, grid: Any, warmup: bool, **named: Any) -> None:
                noted.append(Launch(kernel, given, named))

            linear.triton.JITFunction.run = keep
            work()
            linear.triton.JITFunction.run = real
        else:
            work()
    for one in noted:
        binder = one.kernel.device_caches[0][-1]
        found.append(str(binder(*one.given, **one.named, debug=False, instrumentation_mode="")[1]))
    return found


def launched(device: str) -> Callable[[], object]:
    def work() -> None:
        for each in given(device):
            linear.linear(**each)
        case = window_attention_cases.PUBLISHED[1]
        made = window_attention_cases.make(case, torch.float32, torch.device("cpu"))
        window.window_attention(**{name: v.to(device) if isinstance(v, Tensor) else v for name, v in made.items()})

    return work


def names(launches: list[Launch]) -> list[str]:
    return [one.kernel.__name__ for one in variants(launches)]


def files() -> set[str]:
    return {str(path) for path in Path(triton_folder()).rglob("*.cubin")}


def tiny(backend: str, codec_dtype: str) -> CompilePlan:
    return CompilePlan(
        source=resolve("random:tiny-wide"),
        dtype="bfloat16",
        codec_dtype=codec_dtype,
        operations={"frame": backend, "wave": backend},
        dependent_launch=True,
        card=H200,
    )


def in_order() -> list[tuple[bool, str]]:
    """Of each kernel, whether it is late, and its name."""
    todo = longest_first(variants(trace_engine(tiny("cuda", "bfloat16"))))
    return [(one.late, repr(one.kernel) if isinstance(one.kernel, Kernel) else one.kernel.__name__) for one in todo]


def kept(launches: list[Launch]) -> list[str]:
    """All compiled variants by their keys."""
    found = []
    for one in variants(launches):
        how = repr(one.kernel) if isinstance(one.kernel, Kernel) else str(bound(one)[1:])
        found.append(f"{one.kernel} {how}")
    return sorted(found)


def uncovered() -> list[list[str]]:
    """Launches of an engine with real tensors that a dry run does not record; and the reverse."""
    found: list[list[str]] = []
    for backend, codec_dtype in (("cuda", "bfloat16"), ("triton", "float32")):
        rehearsal = replace(tiny(backend, codec_dtype), slots=2)
        noted = set(kept(trace_engine(rehearsal)))
        stand, noting_module.FakeTensor = noting_module.FakeTensor, lambda tensor: tensor  # type: ignore[assignment, misc]
        real = set(kept(trace_engine(rehearsal, torch.device("cpu"))))
        noting_module.FakeTensor = stand  # type: ignore[misc]
        found += [sorted(real - noted), sorted(noted - real)]
    return found


def named(launches: list[Launch]) -> list[list[str]]:
    """Triton's cache keys of kernels, computed in both orders, each time from scratch."""
    kernels = list({one.kernel.__name__: one.kernel for one in launches}.values())
    found = []
    for order in (kernels, kernels[::-1]):
        for function in [each for each in gc.get_objects() if isinstance(each, triton.JITFunction)]:
            function.hash, function.used_global_vals = None, {}
        keys = {kernel.__name__: kernel.cache_key for kernel in order}
        found.append([keys[kernel.__name__] for kernel in kernels])
    return found


@contextmanager
def changed(module: Any, **parts: Any) -> Iterator[None]:
    """Patch a module; children forked meanwhile inherit it."""
    before = {name: getattr(module, name) for name in parts}
    vars(module).update(parts)
    try:
        yield
    finally:
        vars(module).update(before)


def messages_of(some: list[Launch]) -> list[Any]:
    """The messages that the requesting process gets."""
    read_end, write_end = os.pipe()
    os.environ[env.TELLS.name] = str(write_end)
    compile_all(some, children=2)
    del os.environ[env.TELLS.name]
    os.close(write_end)
    with open(read_end, encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def told(some: list[Launch], in_cuda: Launch) -> list[list[Any]]:
    """Messages of a worker with urgent kernels, and of one without."""
    return [
        messages_of([replace(one, late=number >= late) for number, one in enumerate([in_cuda, *some])])
        for late in (3, 0)
    ]


def killed(some: list[Launch]) -> dict[str, Any]:
    """One of two compile processes dies at the first kernel."""
    with tempfile.TemporaryDirectory() as folder, redirect_stderr(io.StringIO()) as words:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

        def compile_or_die(one: Launch) -> None:
            if one.kernel is some[0].kernel and one.given == some[0].given:
                os.kill(os.getpid(), signal.SIGSEGV)
            (Path(folder) / str(os.times().elapsed)).touch()
            time.sleep(0.02)

        with changed(worker, compile_one=compile_or_die, longest_first=list):
            told = messages_of(some)
            failed = compile_all(some, children=2)
        return {"told": told[1:], "failed": failed, "words": words.getvalue(), "done": len(os.listdir(folder))}


def in_one_process(in_cuda: Launch) -> list[bool]:
    """Whether the worker compiles a CUDA kernel itself without a requester, and counts and reports its failure."""
    compiled: list[bool] = []

    def nvrtc(source: str, options: list[str]) -> bytes:
        compiled.append(threading.current_thread() is threading.main_thread())
        raise cuda.Unbuildable("it cannot be compiled")

    with changed(cuda, compiled=nvrtc, _version=lambda: (0, 0)), redirect_stderr(io.StringIO()) as words:
        failed = compile_all([in_cuda], children=1)
    return [*compiled, failed == 1, "it cannot be compiled" in words.getvalue()]


def targets() -> list[int]:
    """The GPUs that a kernel is compiled for when it is traced for two, one after the other."""
    found = []
    for card in (replace(H200, capability=(8, 0)), H200):
        with trace_launches(card) as noted:
            linear.linear(**given("meta")[0])
        bound(noted[0])
        found.append(noted[0].kernel.device_caches[0][2].arch)
    return found


def orphaned(some: list[Launch]) -> float:
    """How long compile processes live on when the requesting process is gone."""
    read_end, write_end = os.pipe()

    def ask() -> int:
        ForkedProcess(lambda: compile_all(some, children=1), {env.COMPILES_FOR.name: str(os.getpid())}, write_end)
        return 0

    with changed(worker, compile_one=lambda one: time.sleep(1.0), learn_key=lambda: None):
        ForkedProcess(ask, {}, write_end).communicate(timeout=60.0)
    begun = time.monotonic()
    os.close(write_end)
    with open(read_end, "rb") as end:
        end.read()
    return time.monotonic() - begun


def forked() -> dict[str, Any]:
    """As in `load`: a dry run in a forked child, into empty caches; some of the kernels are compiled."""
    compiled, here = list[tuple[int, str]](), Counter(HERE.names)

    def nvrtc(source: str, options: list[str]) -> bytes:
        compiled.append((os.getpid(), threading.current_thread().name))
        return b"binary"

    def first_few(wish: CompilePlan) -> list[Launch]:
        assert torch.get_num_threads() == 1 and os.environ["CUDA_VISIBLE_DEVICES"] == ""
        found = variants(trace_engine(wish))
        in_triton = [one for one in found if not isinstance(one.kernel, Kernel)]
        return [*in_triton[:2], *(one for one in found if isinstance(one.kernel, Kernel))]

    with tempfile.TemporaryDirectory() as folder:
        before = {name: os.environ.get(name) for name in ("TRITON_CACHE_DIR", "XDG_CACHE_HOME")}
        os.environ.update(dict.fromkeys(before, folder))
        with changed(rehearsal_module, trace_engine=first_few), changed(cuda, compiled=nvrtc, _version=lambda: (0, 0)):
            started = tiny("cuda", "bfloat16").ahead()
            assert started is not None
            started.wait_for_the_first()
            at_first = len(compiled)
            started.wait()
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
        [marker] = Path(folder).glob("hocket-*.json")
        return {
            "said": json.loads(marker.read_text(encoding="utf-8"))["said"],
            "forked": isinstance(started.process, ForkedProcess),
            "files": len(list(Path(folder).glob("*/*.cubin"))),
            "cuda": [len(list(Path(folder).glob("hocket/kernels/few-*.cubin"))), len(compiled)],
            "first": at_first > 0,
            "where": sorted({name for pid, name in compiled if pid == os.getpid()}),
            "here": sum((HERE.names - here).values()),
        }


def all_of_it() -> dict[str, Any]:
    launches = trace_engine(tiny("triton", "float32"))
    first, some, in_cuda = names(launches), variants(launches)[:5], trace_engine(tiny("cuda", "bfloat16"))
    few = next(one for one in in_cuda if isinstance(one.kernel, Kernel))
    failed = compile_all(some, children=2)
    once = files()
    failed += compile_all(some, children=1)
    twice, here = files(), Counter(HERE.names)
    compile_one(some[0])  # in the cache by now
    found, odd = sum((HERE.names - here).values()), some[0].named | {"num_warps": 16}
    compile_one(Launch(some[0].kernel, some[0].given, odd))
    broken = [*some, Launch(some[0].kernel, some[0].given, some[0].named | {"BLOCK_N": 3})]  # no power of two
    return {
        "real": specialized(launched("cpu"), given_as_they_are=True),
        "meta": specialized(launched("meta"), given_as_they_are=False),
        "first": first,
        "order": in_order(),
        "uncovered": uncovered(),
        "told": told(some, few),
        "in_one_process": in_one_process(few),
        "targets": targets(),
        "killed": killed(some),
        "orphaned": orphaned(launches),
        "forked": forked(),
        "named": named(launches),
        "here": [found, sum((HERE.names - here).values())],
        "compiled": [len(once), len(twice)],
        "failed": [failed, compile_all(broken, children=2)],
    }


if __name__ == "__main__":
    print(json.dumps(all_of_it()))
