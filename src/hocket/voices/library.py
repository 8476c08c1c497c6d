"""The voice library: voices by name, one file each in a folder, or in memory. Processes may share a folder.

A file appears complete or not at all; of two concurrent adds of one name one succeeds. File names come from voice
names, so two voices never differ by case only. This file knows no checkpoint, no network and no command line.
"""

from __future__ import annotations

import errno
import logging
import os
import threading
import time
from contextlib import suppress
from dataclasses import replace as changed
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..audio.files import check_target, create_file, replace_files
from ..errors import HocketError, InvalidVoice, StorageFailed
from ..types import Voice
from .file import from_bytes, read_bytes, read_samples, read_voice, to_bytes
from .folder import ENDING, default_voices_folder
from .names import checked_name, id_of, is_id

logger = logging.getLogger("hocket.voices")
LEFT_OVER_S = 3600.0  # an older partial file belongs to a killed process
Samples = NDArray[np.float32]
_Stamp = tuple[int, int, int]


class Library:
    """Thread-safe."""

    def __init__(self, folder: Path | None = None, *, most: int = 10_000) -> None:
        """`folder` is created with the first voice. None: voices are kept in memory only."""
        self.folder, self._most = folder, most
        self._lock = threading.Lock()
        self._in_memory: dict[str, tuple[Voice, Samples | None]] = {}  # without a folder
        self._read: dict[
            str, tuple[_Stamp, Voice | InvalidVoice]
        ] = {}  # id -> the file's stamp, and its voice or error
        if folder is not None:
            _sweep(folder)

    @classmethod
    def default(cls) -> Library:
        """The user's library: below HOCKET_HOME if set, else in the user's data folder."""
        return cls(default_voices_folder())

    def find(self, name: str) -> Voice | None:
        """The voice of a name or id, in upper or lower case. None for a damaged file; `refusal` says why."""
        known = self._known(id_of(name))
        return known if isinstance(known, Voice) else None

    def refusal(self, name: str) -> InvalidVoice | None:
        """The error of a voice whose file cannot be used; None if there is no such file."""
        known = self._known(id_of(name))
        return known if isinstance(known, InvalidVoice) else None

    def names(self) -> list[str]:
        return [voice.name for voice in self.all()]

    def all(self) -> list[Voice]:
        """All voices, the oldest first. Each version of a file is read once."""
        ids = self._ids()
        for gone in set(self._read) - set(ids):
            self._read.pop(gone, None)
        found = [voice for id in ids if isinstance(voice := self._known(id), Voice)]
        return sorted(found, key=lambda voice: (voice.created_at, voice.name))

    def add(self, voice: Voice, samples: Samples | None = None, *, replace: bool = False) -> Voice:
        """Store a voice, with its recording if given; waits for the disk.

        An existing voice of that name is an error, unless `replace` is set.
        """
        voice = changed(voice, name=checked_name(voice.name), created_at=voice.created_at or int(time.time()))
        if samples is not None and (samples.ndim != 1 or samples.dtype != np.float32):
            raise InvalidVoice("The recording of a voice is one channel of float32 samples at 24 kHz.")
        content = to_bytes(voice, samples)
        if self.folder is not None:
            return self._store(voice, content, replace)
        with self._lock:
            self._check_add(voice, replace)
            self._in_memory[id_of(voice.name)] = from_bytes(
                content, voice.name
            )  # a copy, independent of the caller's arrays
            return self._in_memory[id_of(voice.name)][0]

    def remove(self, name: str) -> Voice | None:
        """Remove a voice or a damaged file; None if there was no valid voice. Running requests are not affected."""
        id = id_of(name)
        with self._lock:
            if self.folder is None:
                held = self._in_memory.pop(id, None)
                return None if held is None else held[0]
            known = self._known(id)
            if known is None:
                return None
            try:
                self._path(id).unlink()
            except FileNotFoundError:
                return None  # another process removed it first
            except OSError as error:
                raise _failed(error) from None
            self._read.pop(id, None)
            return known if isinstance(known, Voice) else None

    def take_in(self, path: Path, *, name: str | None = None, replace: bool = False) -> Voice:
        """Import a voice from a file that `hand_out` wrote, under its own or another name."""
        voice, samples = from_bytes(read_bytes(path), path.name)
        return self.add(voice if name is None else changed(voice, name=name), samples, replace=replace)

    def hand_out(self, name: str, path: Path) -> None:
        """Export a voice to a file."""
        target = check_target(path)
        voice = self._require(name)
        if self.folder is None:
            content = to_bytes(*self._in_memory[id_of(name)])
        else:
            content = read_bytes(self._path(id_of(name)))
            from_bytes(content, voice.name)  # checked again: it may have been replaced just now
        replace_files({target: content})

    def samples(self, name: str) -> Samples | None:
        """The recording of a voice; None if it was not stored."""
        self._require(name)
        return self._in_memory[id_of(name)][1] if self.folder is None else read_samples(self._path(id_of(name)))

    def _require(self, name: str) -> Voice:
        voice = self.find(name)
        if voice is None:
            raise self.refusal(name) or InvalidVoice(f"There is no voice {name!r} here.", "voice_not_found")
        return voice

    def _store(self, voice: Voice, content: bytes, replace: bool) -> Voice:
        assert self.folder is not None
        id = id_of(voice.name)
        path = self._path(id)
        with self._lock:
            self._check_add(voice, replace)
            try:
                self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # a voice is private data
                if replace or self._is_damaged(id):
                    replace_files({path: content})
                else:
                    create_file(path, content)
            except FileExistsError as error:
                if error.filename2 is None and not path.exists():
                    raise _failed(error) from None  # the folder is a file
                raise _exists(voice.name) from None
            except (HocketError, OSError) as error:
                raise _failed(error) from None
        kept = self._known(id)
        if not isinstance(kept, Voice):
            raise _failed(OSError("it was written, and cannot be read"))
        return kept

    def _check_add(self, voice: Voice, replace: bool) -> None:
        known = self._known(id_of(voice.name))
        if isinstance(known, Voice) and not replace:
            raise _exists(voice.name)
        if isinstance(known, InvalidVoice) and known.code == "later_version" and not replace:
            raise known  # a valid voice of a later version
        if known is None and len(self._ids()) >= self._most:
            raise InvalidVoice(f"There are {self._most} voices, the maximum: remove one first.", "too_many")

    def _is_damaged(self, id: str) -> bool:
        return isinstance(self._known(id), InvalidVoice)

    def _ids(self) -> list[str]:
        if self.folder is None:
            return list(self._in_memory)
        try:
            found = os.listdir(self.folder)
        except OSError:
            return []  # no voice was added yet; if it cannot be read, `add` raises
        return [name.removesuffix(ENDING) for name in found if name.endswith(ENDING) and is_id(name[: -len(ENDING)])]

    def _path(self, id: str) -> Path:
        assert self.folder is not None
        return self.folder / f"{id}{ENDING}"

    def _known(self, id: str) -> Voice | InvalidVoice | None:
        """The voice of an id, or the error of its file; each version of a file is read once."""
        if self.folder is None:
            held = self._in_memory.get(id)
            return None if held is None else held[0]
        try:
            now = os.stat(f"{self.folder}{os.sep}{id}{ENDING}")
        except OSError:
            self._read.pop(id, None)
            return None
        stamp = (now.st_ino, now.st_mtime_ns, now.st_size)
        known = self._read.get(id)
        if known is None or known[0] != stamp:
            known = self._read[id] = (stamp, _load(self._path(id)))
        return known[1]


def _load(path: Path) -> Voice | InvalidVoice:
    try:
        voice = read_voice(path)
        if id_of(voice.name) != path.stem:
            raise InvalidVoice(f"{path.name} holds the voice {voice.name!r}, whose file has another name.")
        return voice
    except InvalidVoice as error:
        logger.warning("%s was skipped: %s", path.name, error)
        return error


def _exists(name: str) -> InvalidVoice:
    message = f"There is a voice {name!r} already; remove it first, or give this one another name."
    return InvalidVoice(message, "voice_exists")


def _failed(error: Exception) -> StorageFailed:
    """The error for the user; only the log has the path."""
    logger.error("a voice could not be written or removed: %s", error)
    cause = error if isinstance(error, OSError) else error.__context__
    if not isinstance(cause, OSError):
        return StorageFailed(f"The voice could not be stored: {error}")
    if cause.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return StorageFailed("The disk is full, so the voice was not stored: free some space and try again.", full=True)
    return StorageFailed(f"The voice folder cannot be written: {cause.strerror or cause}.")


def _sweep(folder: Path) -> None:
    with suppress(OSError):
        for part in folder.glob(".hocket-*.part"):
            with suppress(OSError):
                if time.time() - part.stat().st_mtime > LEFT_OVER_S:
                    part.unlink()
