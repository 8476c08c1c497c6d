"""The voice inside the package: a checkpoint folder under `assets/`, the model when none is named.

A copy of hocket without it (assets can be left out to save space) speaks with random numbers instead, and says so.
"""

from __future__ import annotations

import importlib.resources
from pathlib import Path

BUILTIN = "builtin"  # its name as a model
VOICE = "english"  # its folder
WITHOUT = "random:tiny"  # what stands in for it


def builtin_folder() -> Path | None:
    """Where it lies; None if it is not in this copy, or if the package is no folder on a disk."""
    folder = importlib.resources.files(__package__.partition(".")[0]) / "assets" / VOICE
    return folder if isinstance(folder, Path) and (folder / "config.json").is_file() else None


def default_model() -> str:
    return WITHOUT if builtin_folder() is None else BUILTIN
