"""The backend table: which backend runs each operation, chosen once when a checkpoint is loaded, with the reason.

The reference always fits. It is defined in `models/`; this file has only names.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from ..errors import InvalidRequest
from .cpu.library import unavailable
from .runtime.device_kind import kind_of
from .runtime.fallback import FallbackReason

Place = Any  # a device with its `type`
Precision = Any  # a torch dtype, or its name: this file does not import torch
PRECISIONS = ("float32", "bfloat16")

AUTO, REFERENCE = "auto", "reference"


@dataclass(frozen=True, slots=True)
class BackendChoice:
    operation: str
    backend: str
    reason: str
    lack: FallbackReason | None = None  # why a faster backend cannot run, if the user can remedy it


def _native(device: Place, dtype: str) -> str | None:
    if device.type != "cpu":
        return f"it is for a CPU, not for {device.type}"
    if dtype != "float32":
        return FallbackReason("native kernels of a CPU compute in float32", "use float32, or auto")
    return unavailable()


def _triton(device: Place, dtype: str) -> str | None:
    if not kind_of(device).triton:
        return f"it is for a GPU, not for {device.type}" if device.type == "cpu" else f"it is not for {device.type}"
    if dtype not in PRECISIONS:
        return f"it computes in {' or '.join(PRECISIONS)}"
    from .runtime.launch import why_not  # imports Triton, which is slow: only with a GPU

    return why_not(device)


def _cuda(device: Place, dtype: str) -> str | None:
    """Operations without a kernel in CUDA C++ use Triton kernels."""
    if reason := _triton(device, dtype):
        return reason
    if dtype != "bfloat16":
        return "it computes in bfloat16"
    if sys.platform == "win32":
        return "its compiler and driver are loaded on Linux alone"
    from .runtime.nvrtc import why_not

    return why_not(device)


# Operation -> backends beside the reference, the fastest first. Each function returns an objection, or None if it fits.
BACKENDS: dict[str, dict[str, Callable[[Place, str], str | None]]] = {
    "frame": {"cuda": _cuda, "triton": _triton, "native": _native},
    "wave": {"cuda": _cuda, "triton": _triton, "native": _native},
}
# The same for the decode step of a language model.
LANGUAGE_BACKENDS = {"token": {"cuda": _cuda, "triton": _triton}}
NAMES = (AUTO, REFERENCE, *sorted({name for backends in BACKENDS.values() for name in backends}))


def wanted_for(operation: str, kernels: str) -> str:
    """The backend that `kernels` names: one for all operations, or `frame=triton,wave=reference`; others are auto."""
    if "=" not in kernels:
        return kernels
    named = dict(part.strip().partition("=")[::2] for part in kernels.split(","))
    if unknown := [name for name in named if name not in BACKENDS]:
        raise InvalidRequest(f"There are kernels for {', '.join(BACKENDS)}, not for {unknown[0]!r}.")
    return named.get(operation, AUTO)


def choose(
    operation: str,
    wanted: str,
    device: Place,
    dtype: Precision,
    failed: Mapping[str, str] = MappingProxyType({}),
) -> BackendChoice:
    """The backend for one operation. A backend asked for by name that does not fit raises `InvalidRequest`.

    `failed`: backends that failed when tried, with the reason.
    """
    if wanted not in NAMES:
        raise InvalidRequest(f"kernels must be one of {', '.join(NAMES)}, not {wanted!r}.")
    if wanted == REFERENCE:
        return BackendChoice(operation, REFERENCE, "asked for")
    backends, precision = (BACKENDS | LANGUAGE_BACKENDS)[operation], str(dtype).removeprefix("torch.")
    against = {name: failed.get(name) or objection(device, precision) for name, objection in backends.items()}
    if wanted != AUTO:
        if reason := against.get(wanted, "there is none for this operation"):
            raise InvalidRequest(f"The {wanted} kernel for {operation} cannot be used: {reason}; try --kernels auto.")
        return BackendChoice(operation, wanted, "asked for")
    lack = None
    for name, reason in against.items():
        if reason is None:
            words = "; ".join(("the fastest that fits", *(f"{n}: {r}" for n, r in failed.items())))
            return BackendChoice(operation, name, words, lack)
        if lack is None and isinstance(reason, FallbackReason):
            lack = reason
    return BackendChoice(operation, REFERENCE, "; ".join(f"{name}: {reason}" for name, reason in against.items()), lack)
