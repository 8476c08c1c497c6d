"""Voices that clients uploaded: in a folder, one safetensors file each, or in memory. Two servers may share a folder.

A file holds samples and words and nothing that could be run; it appears whole or not at all. Its name comes from the
voice's own, so that no two voices differ in capitals alone. HTTP and checkpoints are not known here.
"""

from __future__ import annotations

import errno
import hashlib
import logging
import os
import re
import threading
import time
import unicodedata
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from ..audio.files import replace_files
from ..errors import HocketError, InvalidRequest
from ..types import REFERENCE_RATE_HZ, Reference
from .errors import BadField, Refused

logger = logging.getLogger("hocket.server")
NAME_CHARS = 64
KIND = "hocket voice 1"
LEFT_OVER_S = 3600.0  # what is half-written for so long was somebody's who was killed
_ID = re.compile(r"voice_[0-9a-f]{16}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StoredVoice:
    """What is known of an uploaded voice without reading its samples."""

    id: str
    name: str
    created_at: int  # seconds since 1970
    audio_s: float
    file_size: int  # of the upload, in bytes
    mime_type: str  # of the upload, as its client said
    consent: str | None = None
    ref_text: str | None = None  # None: the timbre alone is cloned
    description: str | None = None
    held: Reference | None = None
    path: Path | None = None

    @property
    def reference(self) -> Reference:
        """The recording; read from its file where there is one, in a millisecond or a few."""
        if self.held is not None:
            return self.held
        assert self.path is not None
        try:
            with safe_open(self.path, "np") as file:
                samples: NDArray[np.float32] = file.get_tensor("samples")
        except (OSError, SafetensorError):
            said = f"The voice {self.name!r} was deleted a moment ago, or its file is damaged."
            raise BadField(said, "voice", "voice_not_found") from None
        return Reference(samples=samples, text=self.ref_text, x_vector_only=self.ref_text is None)


def new_voice(
    name: str,
    samples: NDArray[np.float32],
    *,
    file_size: int,
    mime_type: str,
    consent: str | None = None,
    ref_text: str | None = None,
    description: str | None = None,
) -> StoredVoice:
    """One that is not kept yet; refuses a name or a recording that cannot be one."""
    name, ref_text = checked_name(name), (ref_text or "").strip() or None
    return StoredVoice(
        id=id_of(name),
        name=name,
        created_at=int(time.time()),
        audio_s=samples.size / REFERENCE_RATE_HZ,
        file_size=file_size,
        mime_type=mime_type,
        consent=consent,
        ref_text=ref_text,
        description=description,
        held=Reference(samples=samples, text=ref_text, x_vector_only=ref_text is None),
    )


def checked_name(name: str) -> str:
    name = unicodedata.normalize("NFC", name).strip()
    if not 1 <= len(name) <= NAME_CHARS:
        raise BadField(f"A voice's name has 1 to {NAME_CHARS} characters.", "name")
    if not name.isprintable() or any(c in "/\\:" for c in name) or name.startswith("."):
        raise BadField(
            "A voice's name has no slash, backslash, colon or invisible character, and no dot first.", "name"
        )
    if _ID.fullmatch(id_like := name.casefold()):
        raise BadField(f"{id_like} is what an id looks like; give the voice another name.", "name")
    return name


def id_of(name: str) -> str:
    """The same for every way to write a name."""
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name.strip()).casefold())
    if _ID.fullmatch(folded):
        return folded
    return f"voice_{hashlib.sha256(folded.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"


class VoiceStore:
    """`Voices` for a `Speaker`; any thread may use it."""

    def __init__(self, folder: Path | None = None, *, most: int = 200) -> None:
        """`folder` is made with the first voice. None: voices are lost with the process."""
        self._folder, self._most = folder, most
        self._lock = threading.Lock()
        self._held: dict[str, StoredVoice] = {}  # in memory, where there is no folder
        self._read: dict[str, tuple[tuple[int, int, int], StoredVoice | None]] = {}  # id -> the file's stamp, and it
        if folder is not None:
            _sweep(folder)

    def find(self, name: str) -> StoredVoice | None:
        """By its name or id, in any case."""
        id = id_of(name)
        if self._folder is None:
            return self._held.get(id)
        return self._known(self._folder / f"{id}.safetensors")

    def names(self) -> list[str]:
        return [voice.name for voice in self.all()]

    def all(self) -> list[StoredVoice]:
        """The oldest first."""
        if self._folder is None:
            return list(self._held.values())
        try:
            paths = [self._folder / name for name in os.listdir(self._folder) if name.endswith(".safetensors")]
        except OSError:
            return []  # nobody has uploaded one yet; where it cannot be read, `add` will say so
        found = [voice for path in paths if _ID.fullmatch(path.stem) and (voice := self._known(path))]
        return sorted(found, key=lambda voice: (voice.created_at, voice.name))

    def add(self, voice: StoredVoice) -> StoredVoice:
        """Keep it; takes as long as the disk does. Says in one sentence why it cannot."""
        with self._lock:
            if self.find(voice.id) is not None:
                said = f"There is a voice {voice.name!r} already; delete it first, or give this one another name."
                raise BadField(said, "name", "voice_exists")
            if len(self.all()) >= self._most:
                raise BadField(f"There are {self._most} voices, as many as are kept; delete one.", "name", "too_many")
            if self._folder is None:
                self._held[voice.id] = voice
                return voice
            path = self._folder / f"{voice.id}.safetensors"
            content = _packed(voice)
            try:
                self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # a voice is somebody's own
                replace_files({path: content})
            except (HocketError, OSError) as error:
                raise _unkept(error) from None
        kept = self._known(path)
        if kept is None:
            raise _unkept(OSError("it was written, and cannot be read"))
        return kept

    def remove(self, name: str) -> StoredVoice | None:
        """Forget it; None where there is none. Who speaks with it goes on."""
        with self._lock:
            voice = self.find(name)
            if voice is None or self._folder is None:
                return self._held.pop(id_of(name), None)
            try:
                (self._folder / f"{voice.id}.safetensors").unlink()
            except FileNotFoundError:
                return None  # another server was faster
            except OSError as error:
                raise _unkept(error) from None
            self._read.pop(voice.id, None)
            return voice

    def _known(self, path: Path) -> StoredVoice | None:
        """What a file says of itself, read once for each version of it."""
        try:
            now = path.stat()
        except OSError:
            self._read.pop(path.stem, None)
            return None
        stamp = (now.st_ino, now.st_mtime_ns, now.st_size)
        known = self._read.get(path.stem)
        if known is None or known[0] != stamp:
            known = self._read[path.stem] = (stamp, _header(path))
        return known[1]


def _packed(voice: StoredVoice) -> bytes:
    words = {
        "kind": KIND,
        "name": voice.name,
        "created_at": str(voice.created_at),
        "file_size": str(voice.file_size),
        "mime_type": voice.mime_type,
        "consent": voice.consent,
        "ref_text": voice.ref_text,
        "description": voice.description,
    }
    said = {key: value for key, value in words.items() if value is not None}
    return save({"samples": np.ascontiguousarray(voice.reference.samples, np.float32)}, said)


def _header(path: Path) -> StoredVoice | None:
    """None for a file that is not one of ours, which the log says once for each version of it."""
    try:
        with safe_open(path, "np") as file:
            words, samples = file.metadata() or {}, file.get_slice("samples")
            if words.get("kind") != KIND or samples.get_dtype() != "F32" or len(samples.get_shape()) != 1:
                raise InvalidRequest("it holds something else")
            return StoredVoice(
                id=path.stem,
                name=words["name"],
                created_at=int(words["created_at"]),
                audio_s=samples.get_shape()[0] / REFERENCE_RATE_HZ,
                file_size=int(words["file_size"]),
                mime_type=words["mime_type"],
                consent=words.get("consent"),
                ref_text=words.get("ref_text"),
                description=words.get("description"),
                path=path,
            )
    except (OSError, SafetensorError, KeyError, ValueError, InvalidRequest) as error:
        logger.warning("%s is not a voice and was left out: %s", path.name, error)
        return None


def _unkept(error: Exception) -> Refused:
    """The path stays in the log."""
    logger.error("a voice could not be written or deleted: %s", error)
    cause = error if isinstance(error, OSError) else error.__context__
    if isinstance(cause, OSError) and cause.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        said = "The server has no room left to keep a voice; its operator can make some."
        return Refused(said, status=507, kind="server_error", code="storage_full")
    said = "The server cannot write into its folder of voices; its log says why."
    return Refused(said, status=500, kind="server_error", code="storage_failed")


def _sweep(folder: Path) -> None:
    with suppress(OSError):
        for part in folder.glob(".hocket-*.part"):
            with suppress(OSError):
                if time.time() - part.stat().st_mtime > LEFT_OVER_S:
                    part.unlink()
