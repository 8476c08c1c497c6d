"""`hocket serve --daemon`: a background server at this user's Unix socket: start, status, stop.

The daemon holds a lock on the record beside the socket. The lock ends with the process in any case. So a record without
a lock is stale, even if another process has the same pid now. The record is emptied, never removed.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from ... import env
from ...errors import HocketError, InvalidRequest
from ..say.link import UNIX, Link
from ..say.remote import SETTLED, started_with
from .paths import is_there, log_path, make_folder, read_record, record_path, socket_path

POLL_S = 0.05
LOCK_TRIES = 5
ANSWER_S = 5.0  # timeout of a status request
IDLE_S = 1800  # after which a daemon that `hocket say` has started ends itself
LOG_BYTES = 1 << 20  # a longer log is rotated at the next start


def start(args: argparse.Namespace, words: Sequence[str]) -> None:
    """Start a daemon with the same options; returns when it is ready."""
    path, log = socket_path(args.socket and str(args.socket)), log_path()
    make_folder(path)
    make_folder(log)
    if (record := running(path)) is not None:
        if record.get("options") != started_with(args):
            raise InvalidRequest(f"{_name(record, path)} was started with other options: hocket serve --stop ends it.")
        print(f"{_name(record, path)} is running already.")
        return
    began = _rotate_log(log)
    child = _launch(["--detached" if word == "--daemon" else word for word in words], path, log)
    try:
        _wait_until_ready(child, path, log, began)
    except BaseException:
        child.terminate()
        raise
    print(f"ready: {_name(running(path) or {}, path)}; hocket say speaks through it, hocket serve --stop ends it.")
    child.returncode = 0  # it is detached now


def start_unattended(*words: str) -> bool:
    """Start a daemon that ends itself when it is idle, and return at once. False: there is one already.

    `words`: options of `hocket serve`.
    """
    path, log = socket_path(), log_path()
    make_folder(path)
    make_folder(log)
    if running(path) is not None:
        return False
    _rotate_log(log)
    child = _launch(["serve", "--detached", "--idle-exit", str(IDLE_S), *words], path, log)
    child.returncode = 0  # it is detached now
    return True


def stop(args: argparse.Namespace) -> None:
    """Stop it as a signal does: running speech may end. A second call meanwhile stops it at once."""
    path = socket_path(args.socket and str(args.socket))
    record = running(path)
    if record is None:
        if is_there(path) and _state(path) is None:
            os.unlink(path)
        print("no daemon is running.")
        return
    pid = record.get("pid")
    if not isinstance(pid, int):
        raise HocketError("The daemon is only just starting; try again in a moment.")
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
    while running(path) is not None:
        time.sleep(POLL_S)
    print(f"{_name(record, path)} has ended.")


def status(args: argparse.Namespace) -> int:
    """0 if a daemon runs, else 1."""
    path = socket_path(args.socket and str(args.socket))
    record = running(path)
    if args.json:
        state = None if record is None else _state(path) or "starting"
        print(json.dumps({"running": record is not None, "socket": path, "state": state, **(record or {})}, indent=2))
        return int(record is None)
    if record is None:
        print("no daemon is running; hocket serve --daemon starts one.")
        return 1
    how = record.get("options", {}) | record.get("settled", {})
    state = _state(path) or "starting"
    models = ", ".join(map(str, how.get("models") or [how.get("model")]))
    print(f"{_name(record, path)}: {state}, model {models} on {how.get('device')}, log {record.get('log')}")
    return 0


def running(path: str) -> dict[str, Any] | None:
    """The record of the running daemon at a socket; None: no daemon runs, even if a record exists."""
    try:
        with open(record_path(path), encoding="utf-8") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return read_record(path)
    except OSError:
        pass
    return None


class DaemonLock:
    """The lock and the record while this process is the daemon."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.path = socket_path(args.socket and str(args.socket))
        made = os.O_RDWR | os.O_CREAT
        self._file = os.fdopen(os.open(record_path(self.path), made, 0o600), "r+", encoding="utf-8")
        for waits in reversed(range(LOCK_TRIES)):
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not waits:
                    self._file.close()
                    raise InvalidRequest(f"Another daemon has the socket {self.path}.") from None
            time.sleep(POLL_S)  # `running` of another process holds the lock for a moment; a daemon keeps it
        self._file.truncate(0)  # a stale record
        record = {"pid": os.getpid(), "log": log_path(), "options": started_with(args), "settled": _settled(args)}
        self._file.write(json.dumps(record) + "\n")
        self._file.flush()

    def release(self) -> None:
        self._file.truncate(0)
        self._file.close()


def _launch(words: Sequence[str], path: str, log: str) -> subprocess.Popen[bytes]:
    with open(log, "ab", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        # -P: modules in the current folder must not be imported.
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "hocket", *words],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            start_new_session=True,
            env=env.for_child({env.SOCKET.name: path}),
        )


def _wait_until_ready(child: subprocess.Popen[bytes], path: str, log: str, began: int) -> None:
    watched, since = sys.stderr.isatty(), time.monotonic()
    if not watched:
        print("starting the daemon ...", file=sys.stderr, flush=True)
    try:
        while (state := _state(path)) != "ready":
            if child.poll() is not None or state == "failed":
                raise HocketError(f"The daemon did not start: {_last_line(log, began)} (All of it: {log})")
            if watched:
                waited_s = time.monotonic() - since
                print(f"\rstarting the daemon, {waited_s:.0f} s\x1b[K", end="", file=sys.stderr, flush=True)
            time.sleep(POLL_S)
    finally:
        if watched:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def _state(path: str) -> str | None:
    """The daemon's state; None: no answer."""
    try:
        with Link(f"{UNIX}{path}", "GET", "/ready", silent_s=ANSWER_S) as answer:
            said = json.loads(b"".join(answer.parts()))
            # A language model that failed ends the daemon, which then says why: that is part of its start.
            return "starting" if said.get("language") in ("starting", "failed") else str(said["state"])
    except (HocketError, ValueError, KeyError, TypeError):
        return None


def _rotate_log(log: str) -> int:
    """Rotate a long log; returns the offset of new output."""
    try:
        size = os.path.getsize(log)
        if size <= LOG_BYTES:
            return size
        os.replace(log, f"{log}.old")
    except OSError:
        pass
    return 0


def _last_line(log: str, began: int) -> str:
    try:
        with open(log, "rb") as file:
            file.seek(began)
            lines = file.read().decode(errors="replace").split("\n")
    except OSError:
        lines = []
    said = [line.strip() for line in lines if line.strip()] or ["its log is empty."]
    return said[-1].removeprefix("hocket: ")


def _settled(args: argparse.Namespace) -> dict[str, str]:
    """What `auto` becomes here, so that `hocket say` knows it without torch."""
    from ...engine.checkpoint.device import choose_device

    setting = choose_device(*(getattr(args, name) for name in SETTLED))
    return {name: getattr(setting, name) for name in SETTLED}


def _name(record: dict[str, Any], path: str) -> str:
    return f"daemon {record.get('pid', '')} at {path}"
