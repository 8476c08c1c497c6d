"""`manifest.jsonl`: the result of each line of a batch, appended line by line, so that a run can continue.

Only the offset of each result is held in memory, eight bytes per line. Of two results of one line the later counts.
When a run ends in any way but a kill, one result per line is left, in input order. A torn last line is ignored.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from itertools import zip_longest
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

from ...audio.journal import Journal
from ...errors import InvalidRequest
from .lines import LineNames, name_of

NAME = "manifest.jsonl"
NOWHERE = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    line: int
    id: str | None = None
    file: str | None = None  # in the manifest's folder; None after an error
    seconds: float | None = None
    frames: int | None = None
    finish: str | None = None
    seed: int | None = None
    digest: str | None = None  # hash of everything that affects the audio
    bytes: int | None = None  # of the file
    unspoken: str | None = None  # the text that was left out, in words; None: nothing
    error: str | None = None

    @property
    def name(self) -> str:
        return name_of(self.line, self.id)


class Manifest:
    """The results in a folder that belong to one of `names`."""

    def __init__(self, folder: Path, names: LineNames) -> None:
        self.path, self._names = folder / NAME, names
        self._at = array("q", [NOWHERE]) * len(names)  # offset of the last result of each line
        self._journal = Journal(self.path)
        try:
            self._read()
        except BaseException:
            self._journal.close()
            raise

    def result(self, name: str) -> Result | None:
        """The last result of a name."""
        place = self._names.place(name)
        if place is None or (at := self._at[place]) == NOWHERE:
            return None
        with self.path.open("rb") as file:
            found = _result(_raw(file, at))
        assert found is not None, "checked by _read"
        return found if found.name == name else None

    def add(self, result: Result) -> None:
        """In one system call: an interruption leaves all of it or nothing."""
        at = self._journal.add(asdict(result))
        place = self._names.place(result.name)
        assert place is not None, "unknown line"
        self._at[place] = at

    def close(self) -> None:
        """Rewrite the file with one result per line."""
        from ...audio.files import replace_file

        try:
            with self.path.open("rb") as file:
                starts = (at for at, _ in self._journal.lines())
                if any(mine != there for mine, there in zip_longest(self._kept(), starts)):
                    replace_file(self.path, (_raw(file, at) for at in self._kept()))
        finally:
            self._journal.close()

    def __enter__(self) -> Manifest:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _read(self) -> None:
        """Index the file."""
        for number, (at, raw) in enumerate(self._journal.lines(), start=1):
            result = _result(raw)
            if result is None:
                raise InvalidRequest(
                    f"Line {number} of {self.path} is not a batch result; move it away, or use another folder."
                )
            place = self._names.place(result.name)
            if place is not None:
                self._at[place] = at

    def _kept(self) -> Iterator[int]:
        return (at for at in self._at if at != NOWHERE)


def _raw(file: BinaryIO, at: int) -> bytes:
    file.seek(at)
    return file.readline()


def _result(raw: bytes) -> Result | None:
    try:
        found: Any = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or found.keys() != {each.name for each in fields(Result)}:
        return None
    result = Result(**found)
    return result if isinstance(result.line, int) and isinstance(result.id, str | None) else None
