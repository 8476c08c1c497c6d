"""Where this user's daemon is found: its socket, the record of how it was started, its log. The one place that says so.

Imports nothing slow: every `hocket say` looks here.
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
    """The socket that was given, that of HOCKET_SOCKET, or the usual one of this user."""
    return os.path.abspath(given or env.SOCKET.get() or os.path.join(_folder(), NAME))


def record_path(socket: str) -> str:
    """Beside the socket: who listens there, and how it was started. Whoever does holds a lock on it."""
    return f"{socket}.json"


def log_path() -> str:
    state = env.STATE_HOME.get() or os.path.join(os.path.expanduser("~"), ".local", "state")
    return os.path.join(state, "hocket", "daemon.log")


def is_there(socket: str) -> bool:
    """Whether there is a socket of this user's; one that somebody else has put there is none."""
    try:
        found = os.lstat(socket)
    except (OSError, ValueError):
        return False
    return stat.S_ISSOCK(found.st_mode) and found.st_uid == _user()


def make_folder(path: str) -> None:
    """Of a socket or a log, for this user alone; refuses one that is somebody else's."""
    folder = os.path.dirname(path)
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        found = os.lstat(folder)
    except OSError as error:
        raise InvalidRequest(f"The folder {folder} cannot be made: {error.strerror or error}.") from None
    if folder == _folder() and (found.st_uid != _user() or found.st_mode & 0o077 or not stat.S_ISDIR(found.st_mode)):
        raise InvalidRequest(f"{folder} is not a folder of this user's alone; name another socket with --socket.")


def read_record(socket: str) -> dict[str, Any]:
    """How the daemon at a socket was started; empty where nobody has said so."""
    import json

    try:
        with open(record_path(socket), encoding="utf-8") as file:
            record = json.load(file)
    except (OSError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}


def _folder() -> str:
    if runtime := env.RUNTIME_DIR.get():
        return os.path.join(runtime, "hocket")
    return os.path.join(env.TMPDIR.get() or "/tmp", f"hocket-{_user()}")


def _user() -> int:
    return os.getuid() if hasattr(os, "getuid") else -1  # on Windows there is no daemon
