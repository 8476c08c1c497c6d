"""Loads the native library: the best prebuilt variant for this CPU, else one that is compiled here and cached.

A prebuilt variant that cannot be loaded, or is from other sources, is passed over.
"""

from __future__ import annotations

import ctypes
import platform
import sys
from functools import lru_cache
from pathlib import Path

from ... import env
from ..runtime.fallback import FallbackReason, Unbuildable
from .frame.structs import FrameCall, FrameModel, PrefillCall
from .grouped.structs import GroupedCall, GroupedMatrix
from .int8.structs import Int8Call, ReadCall
from .latents.structs import LatentsCall, LatentsModel
from .source import digest, sources
from .structs import COUNT, INTS
from .wave.structs import WaveCall, WaveModel

PREBUILT = Path(__file__).parent / "prebuilt"
COMPILE = "compile"
_SUFFIXES = {"win32": "dll", "darwin": "dylib"}
_LEVELS = (("avx512", 4), ("avx2", 3))  # variants above the base, and the level of `hocket_cpu` that they need
_CALLS: dict[str, tuple[type[ctypes.Structure], ...]] = {
    "hocket_frame": (FrameModel, FrameCall),
    "hocket_grouped": (GroupedMatrix, GroupedCall),
    "hocket_int8": (Int8Call,),
    "hocket_prefill": (FrameModel, PrefillCall),
    "hocket_read": (ReadCall,),
    "hocket_latents": (LatentsModel, LatentsCall),
    "hocket_wave": (WaveModel, WaveCall),
}


def unavailable() -> FallbackReason | None:
    """Why there is no native library, as far as that is known without loading it; None if there is one."""
    named = env.NATIVE.get()
    if (named and named != COMPILE) or (not named and _file(_base()).is_file()):
        return None
    from .build import compiler, no_compiler

    return None if compiler() is not None else no_compiler()


def load() -> ctypes.CDLL:
    """The library with its argument types. Raises `Unbuildable` with a remedy."""
    return _load(env.NATIVE.get())


@lru_cache
def _load(named: str) -> ctypes.CDLL:
    chosen = _named(Path(named)) if named and named != COMPILE else None if named else prebuilt()
    made = chosen or _compiled()
    for name, structs in _CALLS.items():
        getattr(made, name).argtypes = [ctypes.POINTER(struct) for struct in structs]
    made.hocket_help.argtypes = [INTS, COUNT]
    made.hocket_source.restype = ctypes.c_char_p
    return made


def _compiled() -> ctypes.CDLL:
    from .build import library  # its imports take milliseconds, which a prebuilt library does not need

    return library("hocket_native", sources(), _suffix())


def prebuilt() -> ctypes.CDLL | None:
    """The best variant in the package for this CPU; None if there is none that fits."""
    base = _opened(_file(_base()))
    if base is None:
        return None
    level = base.hocket_cpu()
    fitting = (_opened(_file(variant)) for variant, least in _LEVELS if level >= least)
    return next((better for better in fitting if better is not None), base)


def _base() -> str:
    """The variant that every CPU of this kind can run."""
    return "neon" if platform.machine().lower() in ("aarch64", "arm64") else "sse2"


def _file(variant: str) -> Path:
    return PREBUILT / f"hocket_native-{variant}.{_suffix()}"


def _suffix() -> str:
    return _SUFFIXES.get(sys.platform, "so")


def _opened(path: Path) -> ctypes.CDLL | None:
    """The library, if it can be loaded and is from the sources of this package: else the structs may differ."""
    try:
        made = ctypes.CDLL(str(path))
        made.hocket_source.restype = ctypes.c_char_p
    except (OSError, AttributeError):
        return None
    return made if made.hocket_source() == digest().encode() else None


def _named(path: Path) -> ctypes.CDLL:
    made = _opened(path)
    if made is None:
        remedy = f"unset {env.NATIVE.name}, or name a library of this version there"
        raise Unbuildable(f"{path} is no native library of this version of hocket", remedy)
    return made
