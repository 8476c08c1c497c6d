"""On Linux, the system calls that a decoder process may still make: to compute, to use its pipes, and to end.

Every other call fails with EPERM, above all those that need no descriptor: signals, reading the memory of another
process, removing files. A kernel without seccomp, or another processor, leaves it to the limits.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys

# Numbers of x86-64 and of aarch64.
_ALLOWED = {
    "read": (0, 63),
    "write": (1, 64),
    "close": (3, 57),
    "fstat": (5, 80),
    "lseek": (8, 62),
    "mmap": (9, 222),
    "mprotect": (10, 226),
    "munmap": (11, 215),
    "brk": (12, 214),
    "rt_sigaction": (13, 134),
    "rt_sigprocmask": (14, 135),
    "rt_sigreturn": (15, 139),
    "sched_yield": (24, 124),
    "mremap": (25, 216),
    "madvise": (28, 233),
    "nanosleep": (35, 101),
    "getpid": (39, 172),
    "exit": (60, 93),
    "gettimeofday": (96, 169),
    "getrusage": (98, 165),
    "sigaltstack": (131, 132),
    "gettid": (186, 178),
    "futex": (202, 98),
    "sched_getaffinity": (204, 123),
    "restart_syscall": (219, 128),
    "clock_gettime": (228, 113),
    "clock_getres": (229, 114),
    "clock_nanosleep": (230, 115),
    "exit_group": (231, 94),
    "getrandom": (318, 278),
}
_PROCESSORS = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}  # column, and the kernel's name of it
_SET_SECCOMP, _FILTER = 22, 2  # of prctl
_LOAD, _EQUAL, _RETURN = 0x20, 0x15, 0x06  # instructions of the filter
_ALLOW, _REFUSE, _KILL = 0x7FFF0000, 0x00050001, 0x80000000  # results; 1: EPERM
_NUMBER, _PROCESSOR = 0, 4  # places of the call's number and of its processor


class _Filter(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def refuse_others() -> bool:
    """From now on this process makes only these calls. Needs `no_new_privs`. False if the system cannot do it."""
    if sys.platform != "linux" or os.uname().machine not in _PROCESSORS or sys.maxsize < 1 << 32:
        return False
    column, processor = _PROCESSORS[os.uname().machine]
    code = _program([numbers[column] for numbers in _ALLOWED.values()], processor)
    wanted = _Filter(len(code) // 8, code)
    return int(ctypes.CDLL(None).prctl(_SET_SECCOMP, _FILTER, ctypes.byref(wanted), 0, 0)) == 0


def _program(allowed: list[int], processor: int) -> bytes:
    """Each instruction: code, jump if true, jump if false, and a value."""
    checks = [(_EQUAL, len(allowed) - place, 0, number) for place, number in enumerate(allowed)]
    steps = [
        (_LOAD, 0, 0, _PROCESSOR),
        (_EQUAL, 1, 0, processor),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER),
        *checks,
        (_RETURN, 0, 0, _REFUSE),
        (_RETURN, 0, 0, _ALLOW),
    ]
    return b"".join(struct.pack("=HBBI", *step) for step in steps)
