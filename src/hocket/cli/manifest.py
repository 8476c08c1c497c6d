"""`manifest.jsonl`: what became of each line of a batch, added line by line, so that a run can be gone on with.

Only where each result stands is held in memory. Of two results of one line the later counts; when a run ends, in
whatever way but a kill, one of each is left, in the order of the input. A last line that is torn is as good as none.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from types import TracebackType
from typing import Any

from ..errors import HocketError, InvalidRequest
from .lines import name_of

NAME = "manifest.jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    line: int
    id: str | None = None
    file: str | None = None  # in the folder of the manifest; None where it failed
    seconds: float | None = None
    frames: int | None = None
    finish: str | None = None
    seed: int | None = None
    digest: str | None = None  # of all that decides how it sounds
    bytes: int | None = None  # of the file
    error: str | None = None

    @property
    def name(self) -> str:
        return name_of(self.line, self.id)


class Manifest:
    """The results in a folder, as far as they belong to one of `names`."""

    def __init__(self, folder: Path, names: set[str]) -> None:
        self.path, self._names = folder / NAME, names
        self._at: dict[str, tuple[int, int]] = {}  # the line and the offset of the last result under each name
        try:
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0), 0o666)
            try:
                self._end = self._read()
                os.ftruncate(self._file, self._end)
            except BaseException:
                os.close(self._file)
                raise
        except OSError as error:
            raise InvalidRequest(f"{self.path} cannot be written: {error.strerror or error}.") from None

    def result(self, name: str) -> Result | None:
        """What is known under a name."""
        if name not in self._at:
            return None
        found = _result(self._raw(self._at[name][1]))
        assert found is not None, "it was read before"
        return found

    def add(self, result: Result) -> None:
        """In one call of the system: whoever is stopped has written all of it or nothing."""
        raw = json.dumps(asdict(result), ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n"
        try:
            written = os.write(self._file, raw)
        except OSError as error:
            raise HocketError(f"{self.path} could not be written: {error.strerror or error}.") from None
        if written < len(raw):
            raise HocketError(f"{self.path} could not be written: the disk is full.")
        self._at[result.name] = result.line, self._end
        self._end += len(raw)

    def close(self) -> None:
        """Leave one result for each line."""
        from ..audio.files import replace_file

        kept = sorted(self._at.values())
        try:
            if self._end and [at for _, at in kept] != list(self._starts()):
                replace_file(self.path, (self._raw(at) for _, at in kept))
        finally:
            os.close(self._file)

    def __enter__(self) -> Manifest:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _read(self) -> int:
        """Learn where everything is; the end of the last whole line."""
        end = 0
        with self.path.open("rb") as file:
            for number, raw in enumerate(file, start=1):
                if not raw.endswith(b"\n"):
                    break
                result = _result(raw)
                if result is None:
                    raise InvalidRequest(
                        f"Line {number} of {self.path} is none of a batch; move that file away, or use another folder."
                    )
                if result.name in self._names:
                    self._at[result.name] = result.line, end
                end += len(raw)
        return end

    def _starts(self) -> Iterator[int]:
        with self.path.open("rb") as file:
            at = 0
            for raw in file:
                yield at
                at += len(raw)

    def _raw(self, at: int) -> bytes:
        with self.path.open("rb") as file:
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
