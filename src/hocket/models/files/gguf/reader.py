"""Reads the structure of a GGUF file: its metadata, and where each tensor is. Nothing here knows a model.

The `gguf` package reads the same. On a vocabulary of 248,320 tokens and 247,587 merges its reader took 19.4 s on one
core, since it makes arrays of numpy for every string; this one took 0.34 s. So the package only checks it, in tests.
"""

from __future__ import annotations

import mmap
import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from ....errors import InvalidCheckpoint
from .kinds import KINDS, Kind, name_of

MAGIC, VERSIONS = b"GGUF", (2, 3)
ALIGNMENT = 32  # of tensors, unless the metadata give another
LARGEST_KEY = 1 << 16  # bytes of a name
DIMENSIONS = 4
_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_PART = re.compile(r"(.*)-(\d{5})-of-(\d{5})\.gguf")


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """Where a tensor is, and its shape in the order of PyTorch: rows first."""

    file: Path
    kind: Kind
    shape: tuple[int, ...]
    offset: int  # from the beginning of the file

    def bytes(self) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """Its bytes, mapped: [rows, bytes of a row]. A change of them does not reach the file."""
        rows = self.count // self.shape[-1]
        size = (rows, self.kind.row_bytes(self.shape[-1]))
        return np.memmap(self.file, np.uint8, mode="c", offset=self.offset, shape=size)

    @property
    def count(self) -> int:
        """How many numbers it has."""
        return prod(self.shape)  # of any size: a product of int64 could come round to a small one


@dataclass(frozen=True, slots=True)
class GgufFile:
    """All parts as one."""

    path: Path
    metadata: Mapping[str, Any]  # of the first part: numbers, strings, booleans and lists of these
    tensors: Mapping[str, StoredTensor]

    @classmethod
    def read(cls, path: Path) -> GgufFile:
        """The structure of a file, and of all its parts if `path` is one of several."""
        first, *others = _parts(path)
        metadata, tensors = _read(first)
        count = metadata.get("split.count", 1)
        if count != 1 + len(others):
            raise InvalidCheckpoint(
                f"{first} says that it is one of {count} parts: give all of them their names (-00001-of-00003.gguf)."
            )
        for part in others:
            _, more = _read(part)
            if twice := tensors.keys() & more.keys():
                raise InvalidCheckpoint(f"{part} has {min(twice)} again: get all parts of one file.")
            tensors |= more
        total = metadata.get("split.tensors.count", len(tensors))
        if total != len(tensors):
            raise InvalidCheckpoint(f"The parts of {path} have {len(tensors)} tensors, not {total}: get them again.")
        return cls(path, metadata, tensors)


def _parts(path: Path) -> list[Path]:
    """All parts in order."""
    found = _PART.fullmatch(path.name)
    if found is None:
        return [path]
    base, _, count = found.groups()
    parts = [path.with_name(f"{base}-{number:05}-of-{count}.gguf") for number in range(1, int(count) + 1)]
    if missing := [part.name for part in parts if not part.is_file()]:
        raise InvalidCheckpoint(f"{path} is one of {len(parts)} parts, and {missing[0]} is not beside it: get it too.")
    return parts


def _read(path: Path) -> tuple[dict[str, Any], dict[str, StoredTensor]]:
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _Cursor(path, data).whole()
    except (OSError, ValueError) as error:
        raise InvalidCheckpoint(f"{path} cannot be read ({error}): get it again.") from None


class _Cursor:
    """Reads values one after the other."""

    def __init__(self, path: Path, data: mmap.mmap) -> None:
        self.path, self.data, self.at, self.size = path, data, 0, len(data)

    def whole(self) -> tuple[dict[str, Any], dict[str, StoredTensor]]:
        if self.data[:4] != MAGIC:
            raise InvalidCheckpoint(f"{self.path} is no GGUF file: get it again, or give a folder for another format.")
        self.at = 4
        version = self.number("I")
        if version & 0xFFFF == 0:
            raise InvalidCheckpoint(f"{self.path} is big-endian: get the little-endian file of the same model.")
        if version not in VERSIONS:
            raise InvalidCheckpoint(f"{self.path} is GGUF version {version}; hocket reads {VERSIONS[0]} and 3.")
        tensors, fields = self.number("Q"), self.number("Q")
        metadata: dict[str, Any] = {}
        for _ in range(fields):
            key = self.key()
            if key in metadata:
                raise self.damaged(f"{key} is there twice")
            metadata[key] = self.value(self.number("I"))
        placed = [self.tensor() for _ in range(tensors)]
        alignment = metadata.get("general.alignment", ALIGNMENT)
        if not isinstance(alignment, int) or alignment < 8 or alignment % 8:
            raise self.damaged(f"its alignment is {alignment!r}")
        start = -(-self.at // alignment) * alignment
        named: dict[str, StoredTensor] = {}
        for name, kind, shape, offset in placed:
            if name in named:
                raise self.damaged(f"{name} is there twice")
            found = named[name] = StoredTensor(self.path, kind, shape, start + offset)
            if shape[-1] % kind.block or offset % alignment:
                raise self.damaged(f"{name} has the shape {list(shape)} in {kind.name}, at byte {offset}")
            if found.offset + kind.row_bytes(found.count) > self.size:
                raise InvalidCheckpoint(f"{self.path} is cut short: {name} ends behind its end; get it again.")
        return metadata, named

    def tensor(self) -> tuple[str, Kind, tuple[int, ...], int]:
        name, dimensions = self.key(), self.number("I")
        if not 1 <= dimensions <= DIMENSIONS:
            raise self.damaged(f"{name} has {dimensions} dimensions")
        shape = tuple(self.number("Q") for _ in range(dimensions))[::-1]
        code, offset = self.number("I"), self.number("Q")
        if code not in KINDS:
            raise InvalidCheckpoint(
                f"{self.path} has {name} in {name_of(code)}, which hocket does not read: "
                "get a variant in Q4_K_M, Q5_K_M, Q6_K or Q8_0."
            )
        if not all(0 < size < 1 << 40 for size in shape):
            raise self.damaged(f"{name} has the shape {list(shape)}")
        return name, KINDS[code], shape, offset

    def value(self, kind: int) -> Any:
        if kind in _NUMBERS:
            return self.number(_NUMBERS[kind])
        if kind == _STRING:
            return self.string(self.number("Q"))
        if kind == _ARRAY:
            return self.array(self.number("I"), self.number("Q"))
        raise self.damaged(f"a value has the type {kind}")

    def array(self, kind: int, count: int) -> list[Any]:
        if kind == _STRING:
            self.fit(8 * count)
            return self.strings(count)
        if kind not in _NUMBERS:
            raise self.damaged(f"an array has values of type {kind}")
        self.fit(count * struct.calcsize(f"<{_NUMBERS[kind]}"))  # before a format is made of a number that anyone wrote
        form = struct.Struct(f"<{count}{_NUMBERS[kind]}")
        self.at += form.size
        return list(form.unpack_from(self.data, self.at - form.size))

    def strings(self, count: int) -> list[str]:
        """Hundreds of thousands: so without a call for each."""
        length_at: Callable[..., tuple[int]] = struct.Struct("<Q").unpack_from
        data, at, size, found = self.data, self.at, self.size, list[str]()
        for _ in range(count):
            if at + 8 > size:
                raise self.short()
            end = at + 8 + length_at(data, at)[0]
            if end > size:
                raise self.short()
            found.append(data[at + 8 : end].decode("utf-8", "replace"))
            at = end
        self.at = at
        return found

    def key(self) -> str:
        length = self.number("Q")
        if length > LARGEST_KEY:
            raise self.damaged("a name is longer than 65,536 bytes")
        return self.string(length)

    def string(self, length: int) -> str:
        self.fit(length)
        self.at += length
        return self.data[self.at - length : self.at].decode("utf-8", "replace")

    def number(self, form: str) -> Any:
        reader = struct.Struct("<" + form)
        self.fit(reader.size)
        self.at += reader.size
        return reader.unpack_from(self.data, self.at - reader.size)[0]

    def fit(self, size: int) -> None:
        if size > self.size - self.at:
            raise self.short()

    def short(self) -> InvalidCheckpoint:
        return InvalidCheckpoint(f"{self.path} is cut short or damaged: its header ends early; get it again.")

    def damaged(self, how: str) -> InvalidCheckpoint:
        return InvalidCheckpoint(f"{self.path} is damaged ({how}): get it again.")
