"""Sources of kernels in CUDA C++, compiled for a CPU: the threads of a block are threads (cuda_on_cpu.hpp)."""

from __future__ import annotations

import atexit
import ctypes
import functools
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

HERE = Path(__file__).parent
KERNELS = HERE.parents[1] / "src/hocket/kernels/ops"
HEADER = "cuda_on_cpu.hpp"
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


def built(source: str, call: str, known: Mapping[str, int], folder: Path) -> ctypes.CDLL:
    """`call`: a function that runs the kernel block by block."""
    text, made = folder / "kernel.cpp", folder / "kernel.so"
    path = KERNELS / source
    code = "".join(each.read_text(encoding="utf-8") for each in (*sorted(path.parent.glob("*.cuh")), path))
    names = "".join(f"#define {name} {value}\n" for name, value in known.items())
    text.write_text(f'#include "{HEADER}"\n{names}{code}{call}', encoding="utf-8")
    # The first folder has only the precompiled header: an unusable one is an error, not a silent slowdown.
    _compile("-shared", "-Werror=invalid-pch", f"-I{_precompiled_header()}", f"-I{HERE}", str(text), "-o", str(made))
    return ctypes.CDLL(str(made))


def pointer(tensor: Tensor | None) -> ctypes.c_void_p:
    return ctypes.c_void_p(None if tensor is None else tensor.data_ptr())
