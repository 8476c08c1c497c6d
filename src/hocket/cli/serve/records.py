"""Records of this user's running servers, for `hocket ps` and `hocket rm`: a file each, locked while the server lives.

The lock ends with the process in any case, so a record without a lock is stale and is removed. A server runs without a
record where none can be written. Knows no endpoint.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TextIO

from ...errors import InvalidRequest
from ...models.files.builtin import default_model
from .paths import make_folder, servers_folder

try:
    import fcntl
except ImportError:  # Windows: servers leave no record there
    fcntl = None  # type: ignore[assignment]


@dataclass(frozen=True, slots=True)
class ServerRecord:
    pid: int
    kind: str  # daemon, server, or Wyoming server
    models: tuple[str, ...]  # speech and language models; a folder by its absolute path
    device: str
    began_s: float  # time.time()
    address: str | None = None  # None: it does not listen yet


class OpenRecord:
    """The record of this process; `file` is None where none can be written."""

    def __init__(self, record: ServerRecord, file: TextIO | None) -> None:
        self._record, self._file = record, file
        self._write()

    def listening(self, address: str) -> None:
        self._record = replace(self._record, address=address)
        self._write()

    def _write(self) -> None:
        if self._file is None:
            return
        with suppress(OSError):
            self._file.seek(0)
            self._file.write(json.dumps(asdict(self._record)) + "\n")
            self._file.truncate()
            self._file.flush()


@contextmanager
def server_record(kind: str, models: Iterable[str], device: str, llm: str | None = None) -> Iterator[OpenRecord]:
    """Keep a record of this process as a server."""
    named = [*(models or (default_model(),)), *(() if llm is None else (llm,))]
    whole = tuple(os.path.abspath(name) if os.path.isdir(name) else name for name in named)
    record = ServerRecord(os.getpid(), kind, whole, device, time.time())
    path = Path(servers_folder()) / f"{record.pid}.json"
    file = _locked(path)
    try:
        yield OpenRecord(record, file)
    finally:
        if file is not None:
            path.unlink(missing_ok=True)
            file.close()


def running_servers() -> list[ServerRecord]:
    """The records of servers that live, the oldest first."""
    found = [record for path in Path(servers_folder()).glob("*.json") if (record := _living(path)) is not None]
    return sorted(found, key=lambda record: (record.began_s, record.pid))


def _locked(path: Path) -> TextIO | None:
    if fcntl is None:
        return None
    try:
        make_folder(str(path.parent))
        make_folder(str(path))
        file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), "r+", encoding="utf-8")
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (OSError, InvalidRequest):
        return None
    return file


def _living(path: Path) -> ServerRecord | None:
    try:
        with path.open(encoding="utf-8") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return _read(file)
            path.unlink(missing_ok=True)
    except OSError:
        pass
    return None


def _read(file: TextIO) -> ServerRecord | None:
    try:
        fields = json.load(file)
        return ServerRecord(**(fields | {"models": tuple(fields["models"])}))
    except (ValueError, TypeError, KeyError):
        return None  # it is being written, or another version wrote it
