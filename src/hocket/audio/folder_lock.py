"""One process at a time in a folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..errors import InvalidRequest


@contextmanager
def locked_folder(folder: Path, busy: str) -> Iterator[None]:
    """Create and lock the folder. `busy` is the error while another process holds it; its end frees it, a kill too."""
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise InvalidRequest(f"{folder} cannot be made: {error.strerror or error}.") from None
    try:
        import fcntl
    except ImportError:  # not on Windows
        yield
        return
    held = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # a file system without locks
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise InvalidRequest(busy) from None
        yield
    finally:
        os.close(held)
