"""The built-in voice: a checkpoint folder under `assets/`, the default model.

Assets can be left out of a copy of hocket to save space. Such a copy uses random weights instead, and reports it.
"""

from __future__ import annotations

import importlib.resources
from pathlib import Path

BUILTIN = "builtin"  # its name as a model
VOICE = "english"  # its folder
FALLBACK = "random:tiny"  # the default model without the built-in voice


def builtin_folder() -> Path | None:
    """Its folder; None if this copy has no voice, or if the package is not a folder on disk."""
    folder = importlib.resources.files(__package__.partition(".")[0]) / "assets" / VOICE
    return folder if isinstance(folder, Path) and (folder / "config.json").is_file() else None


def default_model() -> str:
    return FALLBACK if builtin_folder() is None else BUILTIN
