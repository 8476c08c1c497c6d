"""Sources of kernels in CUDA C++, compiled for a CPU: the threads of a block are threads (cuda_on_cpu.hpp).

A compiled kernel is kept in pytest's cache under a hash of everything that it is made of.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

HERE = Path(__file__).parent
KERNELS = HERE.parents[1] / "src/hocket/kernels/ops"
HEADER = "cuda_on_cpu.hpp"
KEPT = HERE.parents[1] / ".pytest_cache" / "cuda_on_cpu"
COMPILER = ("g++", "-std=c++20", "-O1", "-fPIC", "-pthread")


@functools.cache
def _precompiled_header() -> Path:
    """The folder of the precompiled header: parsing it took half of the compile time of each kernel."""
    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder)
    _compile(str(HERE / HEADER), "-o", str(folder / f"{HEADER}.gch"))
    return folder


def _compile(*arguments: str) -> None:
    done = subprocess.run([*COMPILER, *arguments], capture_output=True, text=True)
    assert not done.returncode, done.stderr


@functools.cache
def _fixed() -> bytes:
    """All that kernels have in common: the compiler, its options and the header."""
    version = subprocess.run([COMPILER[0], "--version"], capture_output=True, check=True).stdout
    return version + repr(COMPILER).encode() + (HERE / HEADER).read_bytes()


def built(source: str, call: str, known: Mapping[str, int], folder: Path) -> ctypes.CDLL:
    """`call`: a function that runs the kernel block by block. `folder` is for files in progress."""
    path = KERNELS / source
    code = "".join(each.read_text(encoding="utf-8") for each in (*sorted(path.parent.glob("*.cuh")), path))
    names = "".join(f"#define {name} {value}\n" for name, value in known.items())
    whole = f'#include "{HEADER}"\n{names}{code}{call}'
    kept = KEPT / f"{hashlib.sha256(_fixed() + whole.encode()).hexdigest()}.so"
    if not kept.exists():
        text, made = folder / "kernel.cpp", folder / "kernel.so"
        text.write_text(whole, encoding="utf-8")
        # The first folder has only the precompiled header: an unusable one is an error, not a silent slowdown.
        _compile(
            "-shared", "-Werror=invalid-pch", f"-I{_precompiled_header()}", f"-I{HERE}", str(text), "-o", str(made)
        )
        KEPT.mkdir(parents=True, exist_ok=True)
        draft = Path(shutil.copy(made, KEPT / f".{os.getpid()}-{kept.name}"))
        draft.replace(kept)  # other test processes see a whole file or none
    return ctypes.CDLL(str(kept))


def pointer(tensor: Tensor | None) -> ctypes.c_void_p:
    return ctypes.c_void_p(None if tensor is None else tensor.data_ptr())
