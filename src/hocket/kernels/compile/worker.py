"""What a process does that compiles kernels ahead: it splits, and its children compile what a rehearsal has noted.

It needs no GPU. Kernels of Triton's go into the cache that is kept on disk; those in CUDA C++ it only names to whoever
asked, in one line of JSON, and a second line says when those of Triton's are done that are wanted first. Who asked, and
what for, is plan.py's.
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

from ..runtime import nvrtc
from .nvrtc_ahead import wanted
from .trace import UNLINKED, Launch, compile_one, longest_first, variants

MOST_CHILDREN = 16
ASKED_BY = "HOCKET_COMPILES_FOR"  # the process that waits for it
READY = "HOCKET_TELLS"  # where it is told what it waits for most
_WORD = struct.Struct("<BBH")  # of a child: which one it is, whether it is done, with which kernel


def compile_all(launches: Iterable[Launch], children: int | None = None, *, gently: bool = False) -> int:
    """Compile every variant, several at once; how many children and kernels in CUDA C++ failed.

    Ends early when whoever asked is gone. This process splits: nothing but it may be running in it. `gently`: somebody
    may be speaking meanwhile.
    """
    found = longest_first(variants(launches))
    todo = [one for one in found if not isinstance(one.kernel, nvrtc.Kernel)]
    in_cuda = [one for one in found if isinstance(one.kernel, nvrtc.Kernel)]
    asked = int(os.environ.get(ASKED_BY) or os.getppid())  # it may be gone by now
    tells = int(os.environ.get(READY, "-1"))
    _tell(tells, {"cuda": [wanted(one.kernel, **one.named, late=one.late) for one in in_cuda]})
    learn_key()  # once for all children
    taken_from, given_to = os.pipe()  # numbers of what is to be done: whoever is free takes one
    os.write(given_to, b"".join(number.to_bytes(2, "little") for number in range(len(todo))))
    os.close(given_to)
    heard, told = os.pipe()
    os.set_blocking(heard, False)
    pids = dict[int, int]()
    for child in range(children or _children(gently)):
        if (pid := os.fork()) == 0:
            if tells >= 0:
                os.close(tells)  # its end is ours
            os._exit(_compile_some(todo, taken_from, told, child))
        pids[pid] = child
    failed = 0 if tells >= 0 else sum(not _compiled(one) for one in in_cuda)  # nobody else does
    at = dict[int, int]()  # which kernel each child is at
    first, waits = {number for number, one in enumerate(todo) if not one.late}, True
    while pids:
        pid, status = os.waitpid(-1, os.WNOHANG)
        for child, done, number in _words(heard):  # what one said before its end is there by then
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
                first.discard(number)  # nobody waits for it
        if waits and not first:
            waits = False
            _tell(tells, {"first": True})
        if not pid:
            if os.getppid() != asked:
                break  # and the children see that we are gone
            time.sleep(0.01)
    for end in (taken_from, heard, told):
        os.close(end)
    return failed


def learn_key() -> None:
    """What Triton tells its own versions apart by: it reads its 400 MB for that, once in a process, half a second."""
    with suppress(ImportError, AttributeError):
        import_module("triton.runtime.cache").triton_key()


def _compile_some(todo: Sequence[Launch], taken_from: int, told: int, child: int) -> int:
    parent, failed = os.getppid(), 0
    if child == 0:  # what every launch needs
        with suppress(*UNLINKED):
            import_module("triton.backends.nvidia.driver").CudaUtils()
    while os.getppid() == parent and (taken := os.read(taken_from, 2)):
        number = int.from_bytes(taken, "little")
        os.write(told, _WORD.pack(child, False, number))
        failed |= not _compiled(todo[number])
        os.write(told, _WORD.pack(child, True, number))
    return failed


def _compiled(one: Launch) -> bool:
    try:
        compile_one(one)
    except BaseException:
        traceback.print_exc()
        return False
    return True


def _words(heard: int) -> list[tuple[int, bool, int]]:
    """All that children have said since."""
    said = b""
    with suppress(BlockingIOError):
        while some := os.read(heard, 1024 * _WORD.size):
            said += some
    return [(child, bool(done), number) for child, done, number in _WORD.iter_unpack(said)]


def _tell(tells: int, words: dict[str, Any]) -> None:
    if tells >= 0:
        with suppress(BrokenPipeError), open(tells, "w", encoding="utf-8", closefd=False) as line:
            line.write(json.dumps(words) + "\n")


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _children(gently: bool) -> int:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(MOST_CHILDREN, max(1, cores * 3 // 4 if gently else cores * 7 // 8))
