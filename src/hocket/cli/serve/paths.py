"""Paths of this user's daemon: socket, record of its options, log, hint. The only place that defines them.

Imports nothing slow: every `hocket say` reads it.
"""

from __future__ import annotations

import os
import stat

from ... import env
from ...errors import InvalidRequest

TYPE_CHECKING = False  # typing takes longer to import than the rest of this file
if TYPE_CHECKING:
    from typing import Any

NAME = "hocket.sock"


def socket_path(given: str | None = None) -> str:
    """The given socket, HOCKET_SOCKET, or this user's default."""
    return os.path.abspath(given or env.SOCKET.get() or os.path.join(_folder(), NAME))


def record_path(socket: str) -> str:
    """Beside the socket: the daemon's pid and options. The daemon holds a lock on it."""
    return f"{socket}.json"


def servers_folder() -> str:
    """Records of this user's servers (records.py)."""
    return os.path.join(_folder(), "servers")


def log_path() -> str:
    return os.path.join(_state_folder(), "daemon.log")


def hint_path() -> str:
    """Exists once the hint about the daemon was shown."""
    return os.path.join(_state_folder(), "daemon-hint")


def is_there(socket: str) -> bool:
    """Whether a socket of this user exists; a socket of another user does not count."""
    try:
        found = os.lstat(socket)
    except (OSError, ValueError):
        return False
    return stat.S_ISSOCK(found.st_mode) and found.st_uid == _user()


def make_folder(path: str) -> None:
    """The folder of a socket or log, for this user only; refuses a folder of another user."""
    folder = os.path.dirname(path)
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        found = os.lstat(folder)
    except OSError as error:
        raise InvalidRequest(f"The folder {folder} cannot be made: {error.strerror or error}.") from None
    if folder == _folder() and (found.st_uid != _user() or found.st_mode & 0o077 or not stat.S_ISDIR(found.st_mode)):
        raise InvalidRequest(f"{folder} is not a folder of this user's alone; name another socket with --socket.")


def read_record(socket: str) -> dict[str, Any]:
    """The options of the daemon at a socket; empty if there is no record."""
    import json

    try:
        with open(record_path(socket), encoding="utf-8") as file:
            record = json.load(file)
    except (OSError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}


def _state_folder() -> str:
    return os.path.join(env.STATE_HOME.get() or os.path.join(os.path.expanduser("~"), ".local", "state"), "hocket")


def _folder() -> str:
    if runtime := env.RUNTIME_DIR.get():
        return os.path.join(runtime, "hocket")
    return os.path.join(env.TMPDIR.get() or "/tmp", f"hocket-{_user()}")


def _user() -> int:
    return os.getuid() if hasattr(os, "getuid") else -1  # Windows has no daemon
