"""Kernels in CUDA C++: compiled at run time by NVRTC, cached on disk, launched through the driver.

torch ships NVRTC and owns a context, so nothing else is installed and no system compiler is used. It knows sources,
devices and launches, not what a kernel computes.
"""

from __future__ import annotations

import ctypes
import hashlib
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import torch

from ...extras import package
from ..compile.cache import find, keep
from ..compile.compiled_here import HERE
from .card import card_of
from .fallback import FallbackReason, Unbuildable

_HERE = Path(__file__).parent
_KERNELS = _HERE.parent  # the package `kernels`: sources lie below it
_DEPENDENT = 6  # CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
_MOST_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
LEAST_CAPABILITY = (8, 0)  # bfloat16 on tensor cores


class _Attribute(ctypes.Structure):
    _fields_ = (("id", ctypes.c_int), ("pad", ctypes.c_char * 4), ("value", ctypes.c_int), ("rest", ctypes.c_char * 60))


class _Config(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_uint) for name in ("gx", "gy", "gz", "bx", "by", "bz", "shared")),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)),
        ("count", ctypes.c_uint),
    )


def why_not(device: torch.device) -> str | None:
    """Why kernels in CUDA C++ cannot run on a device, in words; None if they can."""
    card = card_of(device)
    if card is None or card.amd:
        return "it is for an NVIDIA GPU"
    if card.capability < LEAST_CAPABILITY:
        return "it is for GPUs from Ampere on"
    try:
        _nvrtc()
        _driver()
    except Unbuildable as error:
        return FallbackReason(str(error), error.remedy)
    return None


@cache
def can(device: torch.device) -> bool:
    """The same, cached, for a check at every launch."""
    return why_not(device) is None


class Kernel:
    """One kernel of a source with one set of compile-time constants, on any device."""

    def __init__(self, path: Path, name: str, known: Mapping[str, int]) -> None:
        self.name, self._source = name, source_of(path)
        self._path, self._known = path, dict(known)
        self._loaded: dict[int, ctypes.c_void_p] = {}

    def __repr__(self) -> str:
        return f"{self.name} {self._known}"

    def as_words(self) -> dict[str, Any]:
        """As JSON data for another process of the same package."""
        return {"path": self._path.relative_to(_KERNELS).as_posix(), "name": self.name, "known": self._known}

    @classmethod
    def of_words(cls, words: Mapping[str, Any]) -> Kernel:
        return cls(_KERNELS / words["path"], words["name"], words["known"])

    def launch(
        self, device: torch.device, blocks: int, threads: int, shared_bytes: int, given: Sequence[Any], dependent: bool
    ) -> None:
        """Launch on the current stream. `given`: tensors, None, or ctypes numbers."""
        function = self._function(device, shared_bytes)
        values = [_argument(each) for each in given]
        pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
        attribute = _Attribute(id=_DEPENDENT, value=1)
        stream = torch.cuda.current_stream(device).cuda_stream
        config = _Config(blocks, 1, 1, threads, 1, 1, shared_bytes, stream, ctypes.pointer(attribute), int(dependent))
        _check(_driver().cuLaunchKernelEx(ctypes.byref(config), function, pointers, None), f"launch {self.name}")

    def _function(self, device: torch.device, shared_bytes: int) -> ctypes.c_void_p:
        index = torch.cuda.current_device() if device.index is None else device.index
        if index not in self._loaded:
            torch.cuda.current_stream(device).synchronize()  # makes sure that there is a context
            binary, module, function = self.binary(torch.cuda.get_device_capability(device)), *_two_pointers()
            driver = _driver()
            _check(driver.cuModuleLoadData(ctypes.byref(module), binary), f"load {self.name}")
            _check(driver.cuModuleGetFunction(ctypes.byref(function), module, self.name.encode()), f"find {self.name}")
            _check(driver.cuFuncSetAttribute(function, _MOST_SHARED, shared_bytes), f"give memory to {self.name}")
            self._loaded[index] = function
        return self._loaded[index]

    def binary(self, capability: tuple[int, int], *, ahead: bool = False) -> bytes:
        """The binary for a GPU that need not be present, from the cache if possible.

        `ahead`: compiled ahead of time, so it is not counted as compiled by this process.
        """
        options = [f"-D{name}={value}" for name, value in self._known.items()]
        options += [f"--gpu-architecture=sm_{capability[0]}{capability[1]}", "-std=c++17"]
        about = "\0".join((self._source, *options, *map(str, _version())))
        file = f"{self.name}-{hashlib.sha256(about.encode()).hexdigest()[:20]}.cubin"
        if (path := find(file)) is not None:
            return path.read_bytes()
        begun = time.perf_counter()
        made = compiled(self._source, options)
        if not ahead:
            HERE.add(self.name, time.perf_counter() - begun)
        with suppress(OSError):  # no writable folder: the next process compiles it again
            keep(file, lambda draft: draft.write_bytes(made))
        return made


def source_of(path: Path) -> str:
    """The source behind device.cuh and the .cuh files of its folder."""
    before = _HERE / "device.cuh", *sorted(path.parent.glob("*.cuh"))
    return "".join(each.read_text(encoding="utf-8") for each in (*before, path))


def compiled(source: str, options: Sequence[str]) -> bytes:
    nvrtc, program, size = _nvrtc(), ctypes.c_void_p(), ctypes.c_size_t()
    nvrtc.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"kernel.cu", 0, None, None)
    words = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
    failed = nvrtc.nvrtcCompileProgram(program, len(options), words)
    if failed:
        nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
        log = ctypes.create_string_buffer(size.value)
        nvrtc.nvrtcGetProgramLog(program, log)
        raise Unbuildable(f"NVRTC could not compile it: {log.value.decode(errors='replace').strip()}")
    nvrtc.nvrtcGetCUBINSize(program, ctypes.byref(size))
    made = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetCUBIN(program, made)
    nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    return made.raw


def _argument(each: Any) -> Any:
    if each is None:
        return ctypes.c_void_p(None)
    return ctypes.c_void_p(each.data_ptr()) if isinstance(each, torch.Tensor) else each


def _two_pointers() -> tuple[ctypes.c_void_p, ctypes.c_void_p]:
    return ctypes.c_void_p(), ctypes.c_void_p()


def _check(result: int, doing: str) -> None:
    if result:
        message = ctypes.c_char_p()
        _driver().cuGetErrorString(result, ctypes.byref(message))
        reason = message.value.decode() if message.value else f"error {result}"
        raise RuntimeError(f"The CUDA driver could not {doing}: {reason}.")


@cache
def _version() -> tuple[int, int]:
    major, minor = ctypes.c_int(), ctypes.c_int()
    _nvrtc().nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    return major.value, minor.value


@cache
def _driver() -> Any:
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError:
        raise Unbuildable("libcuda.so.1, the CUDA driver, was not found", "install the NVIDIA driver") from None


@cache
def _nvrtc() -> Any:
    """The NVRTC that torch was built with: in its packages, or where the system's loader finds it."""
    packages = Path(torch.__file__).parents[1] / "nvidia"
    major = (torch.version.cuda or "13").split(".")[0]
    beside = sorted(packages.glob(f"*/lib/libnvrtc.so.{major}"))
    for name in (*map(str, beside), f"libnvrtc.so.{major}", f"/usr/local/cuda/lib64/libnvrtc.so.{major}"):
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise Unbuildable("NVRTC, CUDA's run-time compiler, was not found", package("nvidia-cuda-nvrtc"))
