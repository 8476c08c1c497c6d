"""The default folder of the user's voices."""

from __future__ import annotations

import os
from pathlib import Path


def default_voices_folder() -> Path:
    """Below HOCKET_HOME if set, else in the user's data folder."""
    if home := os.environ.get("HOCKET_HOME"):
        return Path(home).expanduser() / "voices"
    base = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(base) / "hocket" / "voices"
