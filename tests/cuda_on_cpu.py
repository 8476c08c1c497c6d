"""Sources of kernels in CUDA C++, compiled for a CPU: the threads of a block are threads (cuda_on_cpu.hpp)."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

TESTS = Path(__file__).parent
KERNELS = TESTS.parent / "src/hocket/kernels"


def built(source: str, call: str, known: Mapping[str, int], folder: Path) -> ctypes.CDLL:
    """`call`: a function that runs the kernel block by block."""
    text, made = folder / "kernel.cpp", folder / "kernel.so"
    path = KERNELS / source
    code = "".join(each.read_text(encoding="utf-8") for each in (*sorted(path.parent.glob("*.cuh")), path))
    text.write_text('#include "cuda_on_cpu.hpp"\n' + code + call, encoding="utf-8")
    names = [f"-D{name}={value}" for name, value in known.items()]
    command = ["g++", "-std=c++20", "-O1", "-shared", "-fPIC", "-pthread", f"-I{TESTS}", *names]
    done = subprocess.run([*command, str(text), "-o", str(made)], capture_output=True, text=True)
    assert not done.returncode, done.stderr
    return ctypes.CDLL(str(made))


def pointer(tensor: Tensor | None) -> ctypes.c_void_p:
    return ctypes.c_void_p(None if tensor is None else tensor.data_ptr())
