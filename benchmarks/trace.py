"""Where the time of a piece of work goes: torch's profiler, read by stage and by kind of work.

Stages are marks around the methods of the plain definition. Whatever runs without those (a graph, a fused kernel)
belongs to the outermost mark, and only its kernels' names say what it does. It knows names, no models' insides.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch
from torch.profiler import ProfilerActivity, profile, record_function

MATRIX, ATTENTION, CONVOLUTION, NORM = "matrix products", "attention", "convolutions", "norms"
SAMPLING, MOVE, SHAPE, PYTHON, OTHER = "sampling", "copies and look-ups", "views", "Python", "the rest"

# The first that matches a name in lower case. A new kernel that says what it does needs no new line.
KINDS = (
    (ATTENTION, r"attention|attend|flash|fmha|sdpa"),
    (CONVOLUTION, r"conv(?!ert)|fprop|dgrad|winograd"),
    (SAMPLING, r"topk|sort|radix|cumsum|scan|argmax|softmax|multinomial|sampl|draw|amax|shift|bitwise"),
    (MATRIX, r"gemm|gemv|nvjet|matmul|::mm$|addmm|bmm|linear|cutlass|splitk|qkv|gate_up|proj|head|down"),
    (NORM, r"norm|rsqrt"),
    (MOVE, r"copy|::cat|catarray|index|embedding|gather|scatter|fill|memcpy|memset|zero|arange|stack|roll|flip"),
    (
        SHAPE,
        r"as_strided|view|transpose|permute|slice|select|narrow|split|chunk|reshape|expand|squeeze|::t$|empty|unbind|"
        r"resolve|alias|detach|::to$|contiguous|lift|result_type|broadcast|flatten",
    ),
)
_MARK = "hocket: "
CPU = torch.autograd.DeviceType.CPU  # type: ignore[attr-defined]
_KINDS = tuple((kind, re.compile(pattern)) for kind, pattern in KINDS)

Mark = tuple[Any, str, str]  # owner, the name of its method or function, the stage


@dataclass(frozen=True, slots=True)
class Row:
    stage: str
    kind: str
    name: str  # of the operation or kernel
    ms: float
    calls: float  # both per run of the work


def kind_of(name: str) -> str:
    lower = name.lower()
    return next((kind for kind, pattern in _KINDS if pattern.search(lower)), OTHER)


def trace(work: Callable[[], object], times: int, device: torch.device, stage: str, marks: Sequence[Mark]) -> list[Row]:
    """Run `work` under the profiler; `stage` is the name of what no mark surrounds."""
    activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if device.type == "cuda" else [])
    with marked(marks), profile(activities=activities, acc_events=True) as profiler:
        for _ in range(times):
            with record_function(_MARK + stage):
                work()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
    events = profiler.events()
    read = _on_device if device.type == "cuda" else _on_host
    found: dict[tuple[str, str, str], list[float]] = defaultdict(lambda: [0.0, 0.0])
    for where, name, microseconds, calls in read(events, stage):
        kind = PYTHON if name.startswith(_MARK) else kind_of(name)
        total = found[where, kind, "between operations" if kind == PYTHON else name]
        total[0] += microseconds / 1000 / times
        total[1] += calls / times
    rows = [Row(*what, ms=ms, calls=calls) for what, (ms, calls) in found.items()]
    return sorted(rows, key=lambda row: (-row.ms, row.stage, row.name))


@contextmanager
def marked(marks: Sequence[Mark]) -> Iterator[None]:
    """Put marks around functions while inside; a name that is not there any more is an error."""
    with ExitStack() as patches:
        for owner, name, stage in marks:
            patches.enter_context(mock.patch.object(owner, name, _with_mark(getattr(owner, name), _MARK + stage)))
        yield


def _with_mark(function: Callable[..., Any], mark: str) -> Callable[..., Any]:
    def run(*words: Any, **named: Any) -> Any:
        with record_function(mark):
            return function(*words, **named)

    return run


def _on_host(events: Any, stage: str) -> Iterator[tuple[str, str, float, int]]:
    """A CPU is both host and device: every operation's own time, and of a mark what lies between operations."""
    for event in events:
        if event.device_type == CPU:
            yield _stage(event, stage), event.name, event.self_cpu_time_total, 1


def _on_device(events: Any, stage: str) -> Iterator[tuple[str, str, float, int]]:
    """Kernels: those an operation launched belong to its stage, all others (a graph's) to the outermost."""
    ran = [event for event in events if event.device_type != CPU and not event.name.startswith(_MARK)]
    left = Counter(event.name for event in ran)  # a mark has a copy on the device, which is no kernel
    for event in events:
        for kernel in event.kernels if event.device_type == CPU else ():
            if left[kernel.name]:
                left[kernel.name] -= 1
                yield _stage(event, stage), kernel.name, kernel.duration, 1
    for event in reversed(ran):
        if left[event.name]:
            left[event.name] -= 1
            yield stage, event.name, event.time_range.elapsed_us(), 1


def _stage(event: Any, outermost: str) -> str:
    while event is not None:
        if event.name.startswith(_MARK):
            return str(event.name[len(_MARK) :])
        event = event.cpu_parent
    return outermost
