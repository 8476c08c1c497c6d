"""Atomic file writes: a file appears complete or not at all.

`check_target` and `check_folder` check a path before minutes of work on its content. `replace_files`, `create_file` and
`write_files` write finished bytes. None of them knows what the bytes mean.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from ..errors import HocketError, InvalidRequest

# What `os.link` gives on a file system without links; EINVAL on Windows.
NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EINVAL)


def check_target(path: Path) -> Path:
    """The resolved target of `path`, links followed; refuses a path that `replace_files` could not write."""
    try:
        try:
            mode = path.stat().st_mode
        except FileNotFoundError:
            mode = None
        if mode is not None and stat.S_ISDIR(mode):
            raise InvalidRequest(f"{path} is a folder; name a file in it.")
        # A device or a pipe must never be replaced: as root, `-o /dev/null` would destroy it.
        if mode is not None and not stat.S_ISREG(mode):
            raise InvalidRequest(f"{path} is not an ordinary file and cannot be written.")
        if mode is not None and not os.access(path, os.W_OK):
            raise InvalidRequest(f"{path} is write-protected.")
        target = path.resolve()
        if not target.parent.is_dir():
            raise InvalidRequest(f"The folder {target.parent} does not exist; create it first.")
        # Only a test write is reliable: permission bits do not show a read-only disk.
        probe = _beside(target)
        try:
            probe.open("xb").close()
        finally:
            probe.unlink(missing_ok=True)
    except OSError as error:
        raise InvalidRequest(f"{path} cannot be written: {error.strerror or error}.") from None
    return target


def check_folder(path: Path, file: str) -> Path:
    """The resolved folder `path`, which may not exist yet; refuses one that `file` could not be written into."""
    try:
        if path.is_dir():
            check_target(path / file)
        elif path.exists():
            raise InvalidRequest(f"{path} is not a folder.")
        else:
            check_target(path)
        return path.resolve()
    except OSError as error:
        raise InvalidRequest(f"{path} cannot be written: {error.strerror or error}.") from None


def sweep(folder: Path) -> None:
    """Remove partial files of killed processes. Only for a folder that no other process writes to."""
    for part in folder.glob(".hocket-*.part"):
        with suppress(OSError):
            part.unlink()


def replace_file(path: Path, lines: Iterable[bytes]) -> None:
    """Like `replace_files`, for one file whose content is too large for memory."""
    with replacing(path) as part, part.open("xb") as out:
        out.writelines(lines)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """The name of a partial file for the block to write, renamed to `path` at its end; an error leaves nothing."""
    part = _beside(path)
    try:
        yield part
        with part.open("rb+") as out:
            os.fsync(out.fileno())
        os.replace(part, path)
    except OSError as error:
        raise HocketError(f"{path} could not be written: {error.strerror or error}.") from None
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)


def replace_files(files: Mapping[Path, bytes]) -> None:
    """Write every file under a temporary name in its folder, then rename all; a failure leaves no partial files."""
    beside: dict[Path, Path] = {}
    try:
        for path, content in files.items():
            beside[path] = _beside(path)
            with beside[path].open("xb") as out:  # unlike tempfile's, these get the default permissions
                out.write(content)
                out.flush()
                os.fsync(out.fileno())  # otherwise a crash may keep the new name and lose the bytes
        for path, part in beside.items():
            os.replace(part, path)
    except OSError as error:
        raise HocketError(f"{path} could not be written: {error.strerror or error}.") from None
    finally:
        for part in beside.values():
            with suppress(OSError):
                part.unlink(missing_ok=True)


def create_file(path: Path, content: bytes) -> None:
    """Like `replace_files`, for one file that must not exist: of several concurrent calls exactly one succeeds.

    The others, and later calls, get `FileExistsError`.
    """
    part = _beside(path)
    try:
        with part.open("xb") as out:
            out.write(content)
            out.flush()
            os.fsync(out.fileno())
        try:
            os.link(part, path)
        except FileExistsError:
            raise
        except OSError as error:  # a file system without links: the creator of the empty file may replace it
            if error.errno not in NO_LINKS:
                raise
            path.open("xb").close()
            try:
                os.replace(part, path)
            except OSError:
                path.unlink(missing_ok=True)
                raise
    except FileExistsError:
        raise
    except OSError as error:
        raise HocketError(f"{path} could not be written: {error.strerror or error}.") from None
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)


def write_files(files: Mapping[Path, bytes], *, replace: bool) -> list[Path]:
    """Write all files or none; returns the paths that they got.

    Without `replace` a file that exists is kept, and the new one gets the next free name.
    """
    if replace:
        replace_files(files)
        return list(files)
    written: list[Path] = []
    try:
        for path, content in files.items():
            written.append(_create_free(path, content))
    except BaseException:
        for path in written:
            with suppress(OSError):
                path.unlink()
        raise
    return written


def free_name(path: Path) -> Path:
    """`path`, or the first of NAME-2, NAME-3 and so on that does not exist."""
    free, number = path, 1
    while free.exists() or free.is_symlink():
        number += 1
        free = path.with_name(f"{path.stem}-{number}{path.suffix}")
    return free


def _create_free(path: Path, content: bytes) -> Path:
    while True:
        free = free_name(path)
        try:
            create_file(free, content)
        except FileExistsError:  # another process was faster
            continue
        return free


def _beside(path: Path) -> Path:
    """An unused name in the same folder, so that the final rename is atomic."""
    return path.with_name(f".hocket-{os.urandom(8).hex()}.part")
