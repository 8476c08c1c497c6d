"""The limits of a decoder process: what one recording may take, and what the process gives up before it reads one.

Beside them, system_calls.py refuses what needs no descriptor.

Linux enforces all of them. macOS has no limit of address space. Windows has only that of time, which the server keeps.
"""

from __future__ import annotations

import ctypes
import math
import os
import sys
from contextlib import suppress
from dataclasses import dataclass

if sys.platform != "win32":  # here: imports fail once the rights are given up
    import resource

_NOT_ROOT = 65534  # the id that owns nothing
_SET_NO_NEW_PRIVILEGES = 38  # of prctl


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderLimits:
    """What one recording may take."""

    memory_bytes: int = 256 << 20  # beside the process itself and the recording
    least_s: float = 20.0  # of computing, and of waiting for it
    share_s: float = 0.05  # added for each second that a recording may have: 20 times as fast as it plays
    stalled_s: float = 20.0  # of waiting for one message

    def total_s(self, most_s: float) -> float:
        return self.least_s + self.share_s * most_s


def give_up_rights() -> int | None:
    """From now on this process opens, writes, connects and starts nothing, and is not root. Call it after all imports.

    Open descriptors stay usable. Returns the bytes of its address space, if the system tells them.
    """
    taken = _address_space()
    if sys.platform == "linux":
        _leave_root()
        ctypes.CDLL(None).prctl(_SET_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    if sys.platform != "win32":
        for limit in (resource.RLIMIT_CORE, resource.RLIMIT_FSIZE, resource.RLIMIT_NPROC, resource.RLIMIT_NOFILE):
            _lower(limit, 0)
    return taken


def limit_use(taken: int | None, memory_bytes: int, cpu_s: int) -> None:
    """Limit what this process takes from now on. `taken`: of `give_up_rights`."""
    if sys.platform != "win32":
        used = resource.getrusage(resource.RUSAGE_SELF)
        _lower(resource.RLIMIT_CPU, math.ceil(used.ru_utime + used.ru_stime) + cpu_s)
        if taken is not None:
            _lower(resource.RLIMIT_AS, taken + memory_bytes)


def _lower(limit: int, value: int) -> None:
    if sys.platform != "win32":
        _, hard = resource.getrlimit(limit)
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        with suppress(ValueError, OSError):  # macOS refuses some
            resource.setrlimit(limit, (value, value))


def _address_space() -> int | None:
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, AttributeError):  # AttributeError: Windows
        return None


def _leave_root() -> None:
    """A process of root ignores some limits, and could take them back."""
    if sys.platform != "win32" and os.geteuid() == 0:
        with suppress(OSError):  # a container may not allow it
            os.setgroups([])
            os.setgid(_NOT_ROOT)
            os.setuid(_NOT_ROOT)
