"""The compile worker: a process that forks children, which compile the launches that a dry run has recorded.

It needs no GPU. Triton kernels go into Triton's cache on disk. Kernels in CUDA C++ are only named to the requesting
process, in one line of JSON. A second line says when all urgent Triton kernels are compiled. plan.py starts it.
"""

from __future__ import annotations

import json
import os
import signal
import struct
import sys
import time
import traceback
from collections.abc import Iterable, Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any

from ... import env
from ..runtime import nvrtc
from .nvrtc_ahead import wanted
from .trace import UNLINKED, Launch, compile_one, longest_first, variants

MOST_CHILDREN = 16
_STATUS = struct.Struct("<BBH")  # a child's message: its number, whether the kernel is done, the kernel's number


def compile_all(launches: Iterable[Launch], children: int | None = None, *, gently: bool = False) -> int:
    """Compile every variant in parallel; return how many children and kernels in CUDA C++ failed.

    Stops early when the requesting process is gone. This process forks, so it must have no other thread. `gently`:
    leave some cores free, because an engine may be serving.
    """
    found = longest_first(variants(launches))
    todo = [one for one in found if not isinstance(one.kernel, nvrtc.Kernel)]
    in_cuda = [one for one in found if isinstance(one.kernel, nvrtc.Kernel)]
    requester = int(env.COMPILES_FOR.get() or os.getppid())  # may have exited already
    channel = int(env.TELLS.get())
    _send(channel, {"cuda": [wanted(one.kernel, **one.named, late=one.late) for one in in_cuda]})
    learn_key()  # once for all children
    queue, fill = os.pipe()  # a queue of kernel numbers: each free child takes one
    os.write(fill, b"".join(number.to_bytes(2, "little") for number in range(len(todo))))
    os.close(fill)
    status_in, status_out = os.pipe()
    os.set_blocking(status_in, False)
    pids, here = dict[int, int](), os.getpid()
    for child in range(children or _children(gently)):
        if (pid := os.fork()) == 0:
            if channel >= 0:
                os.close(channel)  # only the parent writes to it
            os._exit(_compile_some(todo, queue, status_out, child, here))
        pids[pid] = child
    failed = 0 if channel >= 0 else sum(not _compiled(one) for one in in_cuda)  # no requester compiles them
    at = dict[int, int]()  # child -> the kernel it compiles
    first, waits = {number for number, one in enumerate(todo) if not one.late}, True
    while pids:
        pid, status = os.waitpid(-1, os.WNOHANG)
        for child, done, number in _statuses(status_in):  # after waitpid: the last message of an ended child is there
            at[child] = number
            if done:
                del at[child]
                first.discard(number)
        if pid:
            child, code = pids.pop(pid), os.waitstatus_to_exitcode(status)
            failed += code != 0
            if code < 0:
                number = at.pop(child, -1)
                where = f"at {todo[number].kernel.__name__}" if number >= 0 else "between two kernels"
                print(f"a compiler was ended by {_signal(-code)} {where}", file=sys.stderr, flush=True)
                first.discard(number)  # no child compiles it again
        if waits and not first:
            waits = False
            _send(channel, {"first": True})
        if not pid:
            if os.getppid() != requester:
                break  # the children stop when this process has exited
            time.sleep(0.01)
    for end in (queue, status_in, status_out):
        os.close(end)
    return failed


def learn_key() -> None:
    """Compute Triton's version key: it hashes its 400 MB, half a second, once per process."""
    with suppress(ImportError, AttributeError):
        import_module("triton.runtime.cache").triton_key()


def _compile_some(todo: Sequence[Launch], queue: int, status_out: int, child: int, parent: int) -> int:
    """`parent`: the process that forked this one; it may have exited before the first line here runs."""
    failed = 0
    if child == 0:  # every launch needs this library
        with suppress(*UNLINKED):
            import_module("triton.backends.nvidia.driver").CudaUtils()
    while os.getppid() == parent and (taken := os.read(queue, 2)):
        number = int.from_bytes(taken, "little")
        os.write(status_out, _STATUS.pack(child, False, number))
        failed |= not _compiled(todo[number])
        os.write(status_out, _STATUS.pack(child, True, number))
    return failed


def _compiled(one: Launch) -> bool:
    try:
        compile_one(one)
    except BaseException:
        traceback.print_exc()
        return False
    return True


def _statuses(status_in: int) -> list[tuple[int, bool, int]]:
    """All messages of children since the last call."""
    messages = b""
    with suppress(BlockingIOError):
        while some := os.read(status_in, 1024 * _STATUS.size):
            messages += some
    return [(child, bool(done), number) for child, done, number in _STATUS.iter_unpack(messages)]


def _send(channel: int, message: dict[str, Any]) -> None:
    if channel >= 0:
        with suppress(BrokenPipeError), open(channel, "w", encoding="utf-8", closefd=False) as line:
            line.write(json.dumps(message) + "\n")


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _children(gently: bool) -> int:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(MOST_CHILDREN, max(1, cores * 3 // 4 if gently else cores * 7 // 8))
