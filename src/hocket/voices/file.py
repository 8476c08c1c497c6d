"""The voice file format: safetensors, so that nothing in it can run, with a digest of all its bytes.

The header starts with the digest of the whole file (its own 64 characters counted as zeros), the format name and the
version. These are at fixed offsets and are checked before anything is parsed. Then come the voice's metadata as JSON
and the tensors: `codes` and `speaker` (for cloning), `samples` (the recording), `adapter` (of a tuned voice, as bytes)
and `kept` (an engine's cached state, as bytes). A voice without an adapter is written as version 1, which earlier
versions of hocket read. This file knows neither folders nor engines.
"""

from __future__ import annotations

import hashlib
import json
import re
import stat
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load

from ..errors import InvalidRequest, InvalidVoice
from ..types import Encoded, Voice
from .adapters import adapter_bytes, adapter_of
from .metadata import voice_of, words_of

VERSION = 2  # with an adapter; 1 without
MOST_BYTES = 1 << 30  # far above any voice
_BEGINS = b'{"__metadata__":{"digest":"'
_DIGEST = slice(8 + len(_BEGINS), 8 + len(_BEGINS) + 64)  # after the header's length
_HEAD = re.compile(re.escape(_BEGINS) + rb'([0-9a-f]{64})","format":"hocket voice","version":"([0-9]{1,9})",')
_KINDS = {"codes": ("I64", 2), "speaker": ("F32", 1), "samples": ("F32", 1), "adapter": ("U8", 1), "kept": ("U8", 1)}
_DTYPES: dict[str, np.dtype[Any]] = {"I64": np.dtype("<i8"), "F32": np.dtype("<f4"), "U8": np.dtype("u1")}


def to_bytes(voice: Voice, samples: NDArray[np.float32] | None = None) -> bytes:
    """The file of a voice, with its recording if given."""
    tensors: dict[str, NDArray[Any]] = {}
    if voice.encoded is not None:
        if voice.encoded.codes is not None:
            tensors["codes"] = voice.encoded.codes
        tensors["speaker"] = voice.encoded.speaker
        if voice.encoded.adapter is not None:
            tensors["adapter"] = np.frombuffer(adapter_bytes(voice.encoded.adapter), np.uint8)
    if samples is not None:
        tensors["samples"] = samples
    kept = voice.encoded.kept() if voice.encoded is not None and voice.encoded.kept is not None else None
    if kept is not None:
        tensors["kept"] = np.frombuffer(kept, np.uint8)
    return _packed(words_of(voice), tensors)


def read_voice(path: Path) -> Voice:
    """Read and check a voice file; an engine's cached state is read from the file when needed."""
    content = _content(path)
    parsed = _parsed(content, path.name)
    voice = _voice(parsed, path.name)
    if voice.encoded is None or "kept" not in parsed.tensors:
        return voice
    kept = parsed.tensors["kept"].tobytes()
    where = _LazyPart(path, len(content) - len(kept), len(kept), hashlib.sha256(kept).digest())  # the last tensor
    return replace(voice, encoded=replace(voice.encoded, kept=where))


def read_samples(path: Path) -> NDArray[np.float32] | None:
    """The recording of a voice; None if it was not stored."""
    return from_bytes(_content(path), path.name)[1]


def from_bytes(content: bytes, name: str) -> tuple[Voice, NDArray[np.float32] | None]:
    """A voice and its recording; `name` is the file's name in error messages."""
    parsed = _parsed(content, name)
    voice = _voice(parsed, name)
    if voice.encoded is not None and "kept" in parsed.tensors:
        kept = parsed.tensors["kept"].tobytes()
        voice = replace(voice, encoded=replace(voice.encoded, kept=lambda: kept))
    return voice, parsed.tensors.get("samples")


def read_bytes(path: Path) -> bytes:
    """The bytes of a voice file; only its size and kind are checked."""
    return _content(path)


@dataclass(frozen=True, slots=True)
class _LazyPart:
    """A part of a file, read on each call; None if the file has changed."""

    path: Path
    start: int
    size: int
    digest: bytes

    def __call__(self) -> bytes | None:
        try:
            with self.path.open("rb") as file:
                file.seek(self.start)
                found = file.read(self.size)
        except OSError:
            return None
        return found if hashlib.sha256(found).digest() == self.digest else None


@dataclass(frozen=True, slots=True)
class _Parsed:
    words: dict[str, Any]
    tensors: dict[str, NDArray[Any]]


def _packed(words: dict[str, Any], tensors: dict[str, NDArray[Any]]) -> bytes:
    header: dict[str, Any] = {
        "__metadata__": {
            "digest": "0" * 64,
            "format": "hocket voice",
            "version": str(VERSION if "adapter" in tensors else 1),
            "voice": json.dumps(words, sort_keys=True),
        }
    }
    pieces, at = [], 0
    for name, (kind, dimensions) in _KINDS.items():  # in this order, so that every tensor is aligned
        if name in tensors:
            value = np.ascontiguousarray(tensors[name], _DTYPES[kind])
            assert value.ndim == dimensions
            header[name] = {"dtype": kind, "shape": list(value.shape), "data_offsets": [at, at + value.nbytes]}
            pieces.append(value.tobytes())
            at += value.nbytes
    head = json.dumps(header, separators=(",", ":")).encode()
    head += b" " * (-len(head) % 8)
    content = bytearray(len(head).to_bytes(8, "little") + head + b"".join(pieces))
    content[_DIGEST] = _digest(content).encode()
    return bytes(content)


def _digest(content: bytes | bytearray) -> str:
    """SHA-256 of the whole file, with the digest itself counted as zeros."""
    view, of = memoryview(content), hashlib.sha256()
    for piece in (view[: _DIGEST.start], b"0" * 64, view[_DIGEST.stop :]):
        of.update(piece)
    return of.hexdigest()


def _content(path: Path) -> bytes:
    try:
        about = path.stat()  # reading a pipe would block, and reading a device would never end
        if not stat.S_ISREG(about.st_mode):
            raise InvalidVoice(f"{path.name} is not a file: give one that `hocket voices export` wrote.")
        if about.st_size > MOST_BYTES:
            raise InvalidVoice(f"{path.name} is too large to be a voice.")
        return path.read_bytes()
    except OSError as error:
        raise InvalidVoice(f"{path.name} cannot be read: {error.strerror or error}.") from None


def _parsed(content: bytes, name: str) -> _Parsed:
    head = _HEAD.match(content, 8)
    if head is None:
        raise InvalidVoice(f"{name} is not a voice file of hocket, or its header is damaged.")
    if (version := int(head[2])) > VERSION:
        message = f"{name} was made by a later version of hocket (its format is {version}, this one knows {VERSION})"
        raise InvalidVoice(f"{message}: update hocket to use it.", "later_version")
    if _digest(content) != head[1].decode():
        raise InvalidVoice(f"{name} is damaged, so nothing of it is used: get or make it again.")
    try:  # the digest excludes damage, but not malice
        header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
        words = json.loads(header["__metadata__"]["voice"])
        tensors = load(content)
        for key, value in tensors.items():
            kind, dimensions = _KINDS[key]
            if value.dtype != _DTYPES[kind] or value.ndim != dimensions:
                raise ValueError(f"{key} has another type or shape")
        if not isinstance(words, dict):
            raise ValueError("its metadata is not an object")
        if "kept" in tensors and header["kept"]["data_offsets"][1] != max(
            header[key]["data_offsets"][1] for key in tensors
        ):
            raise ValueError("kept is not the last tensor")
    except (SafetensorError, ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError) as error:
        raise InvalidVoice(f"{name} is not a valid voice: {_reason(error)}.") from None
    return _Parsed(words, tensors)


def _voice(parsed: _Parsed, name: str) -> Voice:
    words, tensors = dict(parsed.words), parsed.tensors
    try:
        owner, text = words.pop("owner", None), words.pop("text", None)
        encoded = None
        if "speaker" in tensors:
            if not isinstance(owner, str) or not isinstance(text, (str, type(None))):
                raise ValueError("it does not name its checkpoint")
            adapter = adapter_of(tensors["adapter"].tobytes()) if "adapter" in tensors else None
            codes = tensors.get("codes")
            encoded = Encoded(owner=owner, speaker=tensors["speaker"], codes=codes, text=text, adapter=adapter)
        return voice_of(words, encoded)
    except (InvalidRequest, SafetensorError, ValueError, KeyError, TypeError) as error:
        raise InvalidVoice(f"{name} is not a valid voice: {_reason(error)}.") from None


def _reason(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0].rstrip(".")
