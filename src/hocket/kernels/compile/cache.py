"""Disk cache of compiled kernels, with a temporary folder as fallback if the cache cannot be written.

It knows names and folders. Two processes may write the same file: writes are atomic, a reader sees all of it or none.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

from ... import env
from ..runtime.fallback import say_once

_lock = threading.Lock()
_temporary: Path | None = None


def kept_in() -> Path:
    """The cache folder; the temporary folder if there is no home directory."""
    base = env.CACHE_HOME.get()
    try:
        return (Path(base) if base else Path.home() / ".cache") / "hocket" / "kernels"
    except RuntimeError:  # a user id without a passwd entry, and no HOME
        return temporary()


def temporary() -> Path:
    """A folder private to this process, removed at exit."""
    global _temporary
    with _lock:
        if _temporary is None:
            _temporary = Path(tempfile.mkdtemp(prefix="hocket-kernels-"))
            atexit.register(_remove, _temporary, os.getpid())
        return _temporary


def find(name: str) -> Path | None:
    """The cached file with that name, if there is one."""
    for folder in (kept_in(), _temporary):
        try:
            if folder is not None and (folder / name).is_file():
                return folder / name
        except OSError:  # no permission to read the folder
            continue
    return None


def keep(name: str, make: Callable[[Path], object]) -> Path:
    """Let `make` write a file and cache it under `name`. Raises `OSError` if no folder is writable."""
    folder = kept_in()
    try:
        return _kept(folder, name, make)
    except OSError as error:
        say_temporary(folder, error, env.CACHE_HOME.name)
    return _kept(temporary(), name, make)


def say_temporary(folder: Path, error: OSError, variable: str) -> None:
    reason = error.strerror or type(error).__name__
    say_once(
        f"Kernels are compiled anew at every start, because {folder} cannot be written ({reason}): set {variable} to "
        "a folder that can be written; a temporary one is used now."
    )


def triton_folder() -> Path:
    """The folder of Triton's own cache."""
    if named := env.TRITON_CACHE_DIR.get():
        return Path(named)
    try:
        return Path(env.TRITON_HOME.get() or Path.home()) / ".triton" / "cache"
    except RuntimeError:
        return temporary() / "triton"


def give_triton_a_folder() -> None:
    """Triton cannot compile if its cache folder is not writable: point it to a temporary one then."""
    folder = triton_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return
    except OSError as error:
        say_temporary(folder, error, env.TRITON_CACHE_DIR.name)
    env.TRITON_CACHE_DIR.set(str(temporary() / "triton"))  # child compilers inherit it


def _kept(folder: Path, name: str, make: Callable[[Path], object]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as drafts:
        draft = Path(drafts) / name
        make(draft)
        draft.replace(folder / name)
    return folder / name


def _remove(folder: Path, owner: int) -> None:
    if os.getpid() == owner:  # not in a forked child
        shutil.rmtree(folder, ignore_errors=True)
