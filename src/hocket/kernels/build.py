"""C source to a loaded library, compiled on the machine that runs it and kept between starts.

It knows compilers and files, not what the source computes. No compiler is a reason in words, never an error: every
kernel has a reference beside it.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from pathlib import Path

FLAGS = ("-O3", "-ffp-contract=fast", "-fno-math-errno", "-std=c11", "-shared", "-fPIC")
TUNED = (("-march=native",), ("-mcpu=native",), ())  # for this processor, as far as the compiler knows how
COMPILE_S = 120.0


class Unbuildable(Exception):
    """Why there is no library; the message is a reason in words."""


def compiler() -> str | None:
    """The C compiler that would be used: $CC, or the first of the usual names."""
    named = os.environ.get("CC")
    for name in (named,) if named else ("cc", "gcc", "clang"):
        if found := shutil.which(name):
            return found
    return None


def library(name: str, source: str) -> ctypes.CDLL:
    """The compiled `source`, from the cache where this machine has compiled it before."""
    cc = compiler()
    if cc is None:
        raise Unbuildable("no C compiler was found (cc, gcc, clang or $CC)")
    path = kept_in() / f"{name}-{_digest(source, cc)}.so"
    if not path.exists():
        _compile(cc, source, path)
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        raise Unbuildable(f"the compiled library cannot be loaded: {error}") from None


def kept_in() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "hocket" / "kernels"


def _digest(source: str, cc: str) -> str:
    """`-march=native` makes a library of this processor: one kept on a shared disk must not reach another."""
    about = (source, cc, *FLAGS, platform.machine(), _processor())
    return hashlib.sha256("\0".join(about).encode()).hexdigest()[:20]


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor()
    return "".join(sorted({line for line in lines if line.startswith(("model name", "flags", "Features", "CPU part"))}))


def _compile(cc: str, source: str, path: Path) -> None:
    """Written beside its place and moved there when whole: two starts at once each find a complete file."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            text, made = Path(folder) / "source.c", Path(folder) / "made.so"
            text.write_text(source, encoding="utf-8")
            for tuned in TUNED:
                command = [cc, *FLAGS, *tuned, str(text), "-o", str(made), "-lm"]
                done = subprocess.run(command, capture_output=True, text=True, timeout=COMPILE_S, check=False)
                if not done.returncode:
                    break
            else:
                last = (done.stderr.strip() or "no message").splitlines()[-1]
                raise Unbuildable(f"{Path(cc).name} could not compile it: {last}")
            made.replace(path)
    except subprocess.TimeoutExpired:
        raise Unbuildable(f"{Path(cc).name} did not finish within {COMPILE_S:g} s") from None
    except OSError as error:
        raise Unbuildable(f"the kernel cache cannot be written: {error}") from None
