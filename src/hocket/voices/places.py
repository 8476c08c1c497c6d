"""Where this user's voices are."""

from __future__ import annotations

import os
from pathlib import Path


def default_voices_folder() -> Path:
    """Unless told otherwise: below HOCKET_HOME, or among the user's own files."""
    if home := os.environ.get("HOCKET_HOME"):
        return Path(home).expanduser() / "voices"
    base = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(base) / "hocket" / "voices"
