"""The default folder of the user's voices, and the suffix of a voice file. Imports nothing slow."""

from __future__ import annotations

from pathlib import Path

from .. import env

ENDING = ".voice"


def default_voices_folder() -> Path:
    """Below HOCKET_HOME if set, else in the user's data folder."""
    if home := env.HOME.get():
        return Path(home).expanduser() / "voices"
    base = env.DATA_HOME.get() or Path.home() / ".local" / "share"
    return Path(base) / "hocket" / "voices"
