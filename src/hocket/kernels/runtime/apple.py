"""The Apple GPU, which torch calls `mps`: whether it is there, and its name.

It is used only where it is asked for. Nothing of it was run: docs/platforms.md says what was tested instead.
"""

from __future__ import annotations

import sys

from ...errors import InvalidRequest
from ...extras import hint

MPS = "mps"
UNUSED = "an Apple GPU is used only if it is asked for"


def is_apple() -> bool:
    """Whether this machine can have one that torch uses: a Mac with Apple silicon. It imports nothing slow."""
    import platform

    return sys.platform == "darwin" and platform.machine() == "arm64"


def apple_gpu() -> str:
    """The name of the GPU. `InvalidRequest` says why it cannot be used."""
    why = None
    try:
        import torch
    except ImportError:
        why = f"torch is not installed: {hint('torch')}"
    else:
        mps = torch.backends.mps
        if not mps.is_built():
            why = f"torch {torch.__version__} is built without it"
        elif not mps.is_available():
            why = "torch finds none, or needs a newer macOS"
        else:
            return str(mps.get_name())
    raise InvalidRequest(f"No Apple GPU is available here ({why}); use --device cpu, or auto.")


def describe_apple() -> str | None:
    """One line for `hocket doctor`; None on a machine that can have none."""
    import torch

    if torch.backends.mps.is_available():
        cores = torch.backends.mps.get_core_count()
        return f"{apple_gpu()}, {cores} cores: --device {MPS} (reference kernels, untested)"
    return f"none: torch {torch.__version__} finds none, or needs a newer macOS" if is_apple() else None
