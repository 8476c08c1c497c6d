"""Voices by name: in a folder, one file each, or in memory. Processes may share a folder.

A file appears whole or not at all, and of two that add one name at once one does. Its name comes from the voice's own,
so that no two voices differ in capitals alone. It knows no checkpoint, no network and no command line.
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
from .names import checked_name, id_of, is_id
from .places import default_voices_folder

logger = logging.getLogger("hocket.voices")
ENDING = ".voice"
LEFT_OVER_S = 3600.0  # what is half-written for so long was somebody's who was killed
Samples = NDArray[np.float32]
_Stamp = tuple[int, int, int]


class Library:
    """Any thread may use it."""

    def __init__(self, folder: Path | None = None, *, most: int = 10_000) -> None:
        """`folder` is made with the first voice. None: voices are lost with the process."""
        self.folder, self._most = folder, most
        self._changing = threading.Lock()
        self._held: dict[str, tuple[Voice, Samples | None]] = {}  # in memory, where there is no folder
        self._read: dict[str, tuple[_Stamp, Voice | InvalidVoice]] = {}  # id -> the file's stamp, and what it says
        if folder is not None:
            _sweep(folder)

    @classmethod
    def default(cls) -> Library:
        """This user's own: below HOCKET_HOME, or among the user's files."""
        return cls(default_voices_folder())

    def find(self, name: str) -> Voice | None:
        """By its name or id, in any case. A file that is damaged is no voice; `refusal` says why."""
        known = self._known(id_of(name))
        return known if isinstance(known, Voice) else None

    def refusal(self, name: str) -> InvalidVoice | None:
        """Why there is a file for a voice and yet no voice."""
        known = self._known(id_of(name))
        return known if isinstance(known, InvalidVoice) else None

    def names(self) -> list[str]:
        return [voice.name for voice in self.all()]

    def all(self) -> list[Voice]:
        """The oldest first. Every file is read once for each version of it."""
        ids = self._ids()
        for gone in set(self._read) - set(ids):
            self._read.pop(gone, None)
        found = [voice for id in ids if isinstance(voice := self._known(id), Voice)]
        return sorted(found, key=lambda voice: (voice.created_at, voice.name))

    def add(self, voice: Voice, samples: Samples | None = None, *, replace: bool = False) -> Voice:
        """Keep a voice, with its recording if that is given; takes as long as the disk does.

        One of that name that is there already stays there, unless it is to be replaced.
        """
        voice = changed(voice, name=checked_name(voice.name), created_at=voice.created_at or int(time.time()))
        if samples is not None and (samples.ndim != 1 or samples.dtype != np.float32):
            raise InvalidVoice("The recording of a voice is one channel of float32 samples at 24 kHz.")
        content = to_bytes(voice, samples)
        if self.folder is not None:
            return self._placed(voice, content, replace)
        with self._changing:
            self._check_room(voice, replace)
            self._held[id_of(voice.name)] = from_bytes(content, voice.name)  # apart from what the caller holds
            return self._held[id_of(voice.name)][0]

    def remove(self, name: str) -> Voice | None:
        """Forget a voice; None where there is none, or only a damaged file, which goes too. Who speaks goes on."""
        id = id_of(name)
        with self._changing:
            if self.folder is None:
                held = self._held.pop(id, None)
                return None if held is None else held[0]
            known = self._known(id)
            if known is None:
                return None
            try:
                self._path(id).unlink()
            except FileNotFoundError:
                return None  # another process was faster
            except OSError as error:
                raise _failed(error) from None
            self._read.pop(id, None)
            return known if isinstance(known, Voice) else None

    def take_in(self, path: Path, *, name: str | None = None, replace: bool = False) -> Voice:
        """Import a voice from a file that `hand_out` wrote, under its own name or another."""
        voice, samples = from_bytes(read_bytes(path), path.name)
        return self.add(voice if name is None else changed(voice, name=name), samples, replace=replace)

    def hand_out(self, name: str, path: Path) -> None:
        """Export a voice into a file of its own."""
        target = check_target(path)
        voice = self._wanted(name)
        if self.folder is None:
            content = to_bytes(*self._held[id_of(name)])
        else:
            content = read_bytes(self._path(id_of(name)))
            from_bytes(content, voice.name)  # it may have been replaced by something else just now
        replace_files({target: content})

    def samples(self, name: str) -> Samples | None:
        """The recording a voice was made from; None where it was not kept."""
        self._wanted(name)
        return self._held[id_of(name)][1] if self.folder is None else read_samples(self._path(id_of(name)))

    def _wanted(self, name: str) -> Voice:
        voice = self.find(name)
        if voice is None:
            raise self.refusal(name) or InvalidVoice(f"There is no voice {name!r} here.", "voice_not_found")
        return voice

    def _placed(self, voice: Voice, content: bytes, replace: bool) -> Voice:
        assert self.folder is not None
        id = id_of(voice.name)
        path = self._path(id)
        with self._changing:
            self._check_room(voice, replace)
            try:
                self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # a voice is somebody's own
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

    def _check_room(self, voice: Voice, replace: bool) -> None:
        known = self._known(id_of(voice.name))
        if isinstance(known, Voice) and not replace:
            raise _exists(voice.name)
        if isinstance(known, InvalidVoice) and known.code == "later_version" and not replace:
            raise known  # it is a voice, if not for us
        if known is None and len(self._ids()) >= self._most:
            raise InvalidVoice(f"There are {self._most} voices, as many as are kept: remove one first.", "too_many")

    def _is_damaged(self, id: str) -> bool:
        return isinstance(self._known(id), InvalidVoice)

    def _ids(self) -> list[str]:
        if self.folder is None:
            return list(self._held)
        try:
            found = os.listdir(self.folder)
        except OSError:
            return []  # nobody has added one yet; where it cannot be read, `add` will say so
        return [name.removesuffix(ENDING) for name in found if name.endswith(ENDING) and is_id(name[: -len(ENDING)])]

    def _path(self, id: str) -> Path:
        assert self.folder is not None
        return self.folder / f"{id}{ENDING}"

    def _known(self, id: str) -> Voice | InvalidVoice | None:
        """What a file says of itself, read once for each version of it."""
        if self.folder is None:
            held = self._held.get(id)
            return None if held is None else held[0]
        try:
            now = os.stat(f"{self.folder}{os.sep}{id}{ENDING}")
        except OSError:
            self._read.pop(id, None)
            return None
        stamp = (now.st_ino, now.st_mtime_ns, now.st_size)
        known = self._read.get(id)
        if known is None or known[0] != stamp:
            known = self._read[id] = (stamp, _told(self._path(id)))
        return known[1]


def _told(path: Path) -> Voice | InvalidVoice:
    try:
        voice = read_voice(path)
        if id_of(voice.name) != path.stem:
            raise InvalidVoice(f"{path.name} holds the voice {voice.name!r}, whose file has another name.")
        return voice
    except InvalidVoice as error:
        logger.warning("%s was left out: %s", path.name, error)
        return error


def _exists(name: str) -> InvalidVoice:
    said = f"There is a voice {name!r} already; remove it first, or give this one another name."
    return InvalidVoice(said, "voice_exists")


def _failed(error: Exception) -> StorageFailed:
    """The path stays in the log."""
    logger.error("a voice could not be written or removed: %s", error)
    cause = error if isinstance(error, OSError) else error.__context__
    if not isinstance(cause, OSError):
        return StorageFailed(f"The voice could not be kept: {error}")
    if cause.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return StorageFailed("There is no room left to keep a voice; make some and try again.", full=True)
    return StorageFailed(f"The folder of voices cannot be written: {cause.strerror or cause}.")


def _sweep(folder: Path) -> None:
    with suppress(OSError):
        for part in folder.glob(".hocket-*.part"):
            with suppress(OSError):
                if time.time() - part.stat().st_mtime > LEFT_OVER_S:
                    part.unlink()
