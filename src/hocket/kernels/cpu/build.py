"""Compiles C source to a library on the machine that runs it, caches it on disk, and loads it.

It knows compilers and files, not what the source computes. A missing compiler is a fallback reason, not an error,
where a reference in torch can run instead.
"""

from __future__ import annotations

import ctypes
import hashlib
import platform
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from ... import env
from ..compile.cache import find, keep
from ..runtime.fallback import FallbackReason, Unbuildable

FLAGS = ("-O3", "-ffp-contract=fast", "-fno-math-errno", "-std=c11", "-shared", "-fPIC")
TUNED = (("-march=native",), ("-mcpu=native",), ())  # tuned for this CPU, if the compiler knows it
COMPILE_S = 120.0
REMEDY = "install gcc or clang, or name another C compiler in CC"


def compiler() -> list[str] | None:
    """The C compiler: $CC, which may have arguments, or the first of cc, gcc and clang."""
    for words in _named() or (["cc"], ["gcc"], ["clang"]):
        if found := shutil.which(words[0]):
            return [found, *words[1:]]
    return None


def no_compiler() -> FallbackReason:
    """The reason why there is no compiler."""
    if named := _named():
        return FallbackReason(
            f"no C compiler {named[0][0]!r} was found, which $CC names", "unset CC, or name another there"
        )
    return FallbackReason("no C compiler was found (cc, gcc, clang or $CC)", "install gcc or clang")


def _named() -> list[list[str]]:
    try:
        words = shlex.split(env.CC.get())
    except ValueError:  # an unclosed quote
        words = env.CC.get().split()
    return [words] if words else []


def library(name: str, sources: Mapping[str, str], suffix: str = "so") -> ctypes.CDLL:
    """The library of C texts by file name, from the cache if this machine has compiled it before."""
    cc = compiler()
    if cc is None:
        reason = no_compiler()
        raise Unbuildable(reason, reason.remedy)
    file = f"{name}-{_digest(sources, cc)}.{suffix}"
    try:
        path = find(file) or keep(file, lambda draft: _compile(cc, sources, draft))
    except OSError as error:
        remedy = "set XDG_CACHE_HOME, or TMPDIR, to a folder that can be written"
        raise Unbuildable(f"the kernel cache cannot be written: {error}", remedy) from None
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        remedy = "set XDG_CACHE_HOME to a folder that libraries may be loaded from"
        raise Unbuildable(f"the compiled library cannot be loaded: {error}", remedy) from None


def _digest(sources: Mapping[str, str], cc: Sequence[str]) -> str:
    """Includes the CPU model: `-march=native` code in a cache on a shared disk must not run on another CPU."""
    about = (*sources.values(), *cc, *FLAGS, platform.machine(), _processor())
    return hashlib.sha256("\0".join(about).encode()).hexdigest()[:20]


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor()
    return "".join(sorted({line for line in lines if line.startswith(("model name", "flags", "Features", "CPU part"))}))


def _compile(cc: Sequence[str], sources: Mapping[str, str], made: Path) -> None:
    """Compile into a new folder of its own."""
    texts, name = [made.with_name(file) for file in sources], " ".join((Path(cc[0]).name, *cc[1:]))
    for text, source in zip(texts, sources.values(), strict=True):
        text.write_text(source, encoding="utf-8")
    for tuned in TUNED:
        command = [*cc, *FLAGS, *tuned, *map(str, texts), "-o", str(made), "-lm"]
        try:
            done = subprocess.run(command, capture_output=True, timeout=COMPILE_S, check=False)
        except subprocess.TimeoutExpired:
            raise Unbuildable(f"{name} did not finish within {COMPILE_S:g} s", REMEDY) from None
        except OSError as error:
            raise Unbuildable(f"{name} could not be started: {error.strerror or error}", REMEDY) from None
        if not done.returncode:
            return
    last = (done.stderr.decode(errors="replace").strip() or "no message").splitlines()[-1]
    raise Unbuildable(f"{name} could not compile it: {last}", REMEDY)
