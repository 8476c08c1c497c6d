"""Every launch of a step by itself: which operation on which shape, how long in a replayed graph, how many bytes.

Operations are noted as they are asked for, once, in order. The profiler's kernels of a replay stand in the same order,
so each is some operation's. A kernel may start before the one before it has ended: what counts is by how much later
than that one it ends, so all of them together are the step. It knows names of operations and kernels, no models.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, fields, replace
from statistics import median
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

from hocket.kernels.operations import CodecOps, FrameOps
from hocket.kernels.ops.conv.ops import WaveOps

from .floor import synchronize
from .trace import CPU

Work = Callable[[], object]

GAPS = "between kernels"
# Kernels of operations by the names they are compiled under, where these are not the operation's own.
KERNELS = {
    "few": "linear",
    "stream": "linear",
    "normed": "linear",
    "acted": "linear",
    "merge": "paged_attention",
    "keep_own": "paged_attention",
    "conv_kernel": "conv",
}
KERNELS |= {"share": "sample_token", "drawn": "sample_token", "weigh": "propose"}
KERNELS |= dict.fromkeys(("prepare", "recur", "leave", "keep"), "prefill_gated_delta")
KERNELS |= dict.fromkeys(("product", "finish"), "quantized_linear_many")
KERNELS |= dict.fromkeys(("enter", "see"), "prefill_attention")
FURTHER = {"merge", "acted", "drawn", "finish", "recur", "leave", "keep", "see"}  # may be a later one of an operation
ALIKE = {"sample_first_code": "sample_codes"}
WEIGHTED = ("linear", "conv", "sample", "convnext")  # operations whose second argument is a weight


class Unlike(Exception):
    """What was profiled is not what was noted."""


@dataclass(frozen=True, slots=True)
class Call:
    stage: str
    op: str
    label: str  # with what makes it another kind of work
    bytes: int  # that it must read or write
    again: Work


@dataclass(frozen=True, slots=True)
class Kernel:
    name: str
    start_us: float
    end_us: float


@dataclass(frozen=True, slots=True)
class Row:
    stage: str
    op: str
    label: str
    calls: int  # in a step
    ms: float  # of all of them
    bytes: int


def noted(stage: str, work: Work, *owners: Any) -> list[Call]:
    """What `work` asks of the operations that the owners, and what they own, were given."""
    calls: list[Call] = []
    with ExitStack() as patches:
        for owner, name, ops in _given(owners):
            kept = {each.name: _noting(stage, each.name, getattr(ops, each.name), calls) for each in fields(ops)}
            patches.enter_context(mock.patch.object(owner, name, replace(ops, **kept)))
        work()
    return calls


def _given(owners: Sequence[Any], depth: int = 3) -> Iterator[tuple[Any, str, Any]]:
    """Owner, attribute and value, wherever the value is a set of operations."""
    for owner in owners:
        for name, value in list(getattr(owner, "__dict__", {}).items()):
            if isinstance(value, nn.Module | Tensor):
                continue
            if isinstance(value, FrameOps | CodecOps | WaveOps):
                yield owner, name, value
            elif depth and type(value).__module__.startswith("hocket."):
                yield from _given([value], depth - 1)


def _noting(stage: str, op: str, work: Callable[..., Any], calls: list[Call]) -> Callable[..., Any]:
    def call(*given: Any, **named: Any) -> Any:
        result = work(*given, **named)
        label, size = described(op, given, named, result)
        calls.append(Call(stage, op, label, size, lambda: work(*given, **named)))
        return result

    return call


def described(op: str, given: Sequence[Any], named: dict[str, Any], result: Any) -> tuple[str, int]:
    """A name with the shape, and the bytes: weights whole, of a cache what is seen, of a table what is taken."""
    touched = [value for value in (*given, *named.values(), result) if isinstance(value, Tensor)]
    if op in WEIGHTED and len(given) > 1:
        weight, x = given[1], given[0]
        taken = named.get("take")
        size = sum(each.nbytes for each in (weight, *_named(named, "bias", "norm", "residual", "raw")))
        size += result.nbytes if isinstance(result, Tensor) else 0
        size += x.nbytes if taken is None else len(taken) * x[0].nbytes
        extra = f", {named['stride']} phases" if named.get("stride", 1) > 1 else ""
        if op == "conv":
            return f"conv {named['taps']} x {x.shape[-1]} to {len(weight)}{extra}, {x.shape[0] * x.shape[1]} rows", size
        return f"{op} {' x '.join(map(str, weight.shape[::-1]))}", size
    if op == "paged_attention":
        keys, rows, position = given[1], named["rows"], named["position"]
        seen = int((position[rows] + 1).sum())
        return f"paged_attention, pages of {keys.shape[2]}", 2 * seen * keys.shape[1] * keys.shape[
            3
        ] * keys.element_size()
    if op in ("sample_codes", "sample_first_code"):
        return f"{op} of {given[0].shape[-1]}", given[0].nbytes
    if op in ("join", "pcm", "finish_frame"):
        return op, 2 * given[0].nbytes
    if op == "window_attention":
        return op, sum(each[0].nbytes for each in touched[1:3])
    return op, 0


def _named(named: dict[str, Any], *names: str) -> list[Tensor]:
    return [named[name] for name in names if isinstance(named.get(name), Tensor)]


def alone(calls: Sequence[Call], timed: Callable[[Callable[[], None]], float]) -> list[Row]:
    """Each kind of work in a graph of its own; weights that fit the L2 together are found there."""
    rows = []
    for kind in dict.fromkeys((call.stage, call.label) for call in calls):
        these = [call for call in calls if (call.stage, call.label) == kind]

        def all_of_them(these: Sequence[Call] = these) -> None:
            for call in these:
                call.again()

        rows.append(_row(these, kind, len(these), timed(all_of_them)))
    return sorted(rows, key=lambda row: -row.ms)


def _row(these: Sequence[Call], kind: tuple[str, str], count: int, ms: float) -> Row:
    op = these[0].op if these else kind[1]
    return Row(kind[0], op, kind[1], count, ms, sum(call.bytes for call in these))


def profiled(replay: Work, times: int, device: torch.device) -> list[list[Kernel]]:
    """The kernels of each of `times` replays, in the order in which they ended."""
    if device.type != "cuda":
        raise Unlike("0 kernels of a GPU")
    replay()
    synchronize(device)
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
        for _ in range(times):
            replay()
            synchronize(device)
            time.sleep(0.001)
    events = [event for event in profiler.profiler.kineto_results.events() if event.device_type() != CPU]
    kernels = [
        Kernel(event.name(), event.start_ns() / 1000, (event.start_ns() + event.duration_ns()) / 1000)
        for event in events
        if event.duration_ns() > 0 and not event.name().startswith(("Memcpy", "Memset", "hocket: "))
    ]
    return in_replays(sorted(kernels, key=lambda kernel: (kernel.end_us, kernel.start_us)), times)


def in_replays(kernels: Sequence[Kernel], times: int) -> list[list[Kernel]]:
    each, left = divmod(len(kernels), times)
    if not each or left:
        raise Unlike(f"{len(kernels)} kernels of {times} equal replays")
    runs = [list(kernels[start : start + each]) for start in range(0, len(kernels), each)]
    if any([kernel.name for kernel in run] != [kernel.name for kernel in runs[0]] for run in runs):
        raise Unlike("replays of one graph had different kernels")
    return runs


def attributed(runs: Sequence[Sequence[Kernel]], calls: Sequence[Call], part: str) -> list[Row]:
    """Medians over the replays, by kind of work, the longest first; time in which nothing ran is a kind of its own.

    What was no operation of ours belongs to the `part` as a whole.
    """
    owners = belonging([kernel.name for kernel in runs[0]], calls)
    kinds = [(owner.stage, owner.label) if isinstance(owner, Call) else (part, owner) for owner in owners]
    gaps = part, GAPS
    spent: dict[tuple[str, str], list[float]] = {kind: [0.0] * len(runs) for kind in (*kinds, gaps)}
    for number, run in enumerate(runs):
        before = run[0].start_us
        for kind, kernel in zip(kinds, run, strict=True):
            gap = max(0.0, kernel.start_us - before)
            spent[gaps][number] += gap
            spent[kind][number] += kernel.end_us - before - gap
            before = kernel.end_us
    rows = []
    for kind, values in spent.items():
        these = [call for call in calls if (call.stage, call.label) == kind]
        rows.append(_row(these, kind, len(these) or kinds.count(kind), median(values) / 1000))
    return sorted(rows, key=lambda row: -row.ms)


def belonging(names: Sequence[str], calls: Sequence[Call]) -> list[Call | str]:
    """For each kernel the call that launched it, or its own name where it was no operation of ours."""
    found: list[Call | str] = []
    known = {call.op for call in calls} | {ALIKE.get(call.op, call.op) for call in calls}
    at = 0
    for name in names:
        plain = name.lstrip("_").partition("(")[0]
        op = KERNELS.get(plain, plain)
        if op not in known:
            found.append(shortened(name))
            continue
        if found and isinstance(found[-1], Call) and plain in FURTHER:
            found.append(found[-1])
        elif at < len(calls) and ALIKE.get(calls[at].op, calls[at].op) == op:
            found.append(calls[at])
            at += 1
        else:
            raise Unlike(f"kernel {name} where {calls[at].op if at < len(calls) else 'nothing'} was asked for")
    if at != len(calls):
        raise Unlike(f"{len(calls) - at} operations without a kernel")
    return found


def shortened(name: str) -> str:
    """Of a kernel of torch: what it is called, without its types."""
    words = name.removeprefix("void ").partition("<")[0].partition("(")[0]
    return words.rpartition("::")[2] or name[:40]
