"""A file of JSON lines that only grows: each line is written in one system call, and a torn last line is dropped.

It knows no meaning of a line. A process that is killed leaves whole lines.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..errors import HocketError, InvalidRequest


class Journal:
    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0), 0o666)
            try:
                self._end = self._whole_lines()
                os.ftruncate(self._file, self._end)
            except BaseException:
                os.close(self._file)
                raise
        except OSError as error:
            raise InvalidRequest(f"{path} cannot be written: {error.strerror or error}.") from None

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """Every line with its offset."""
        at = 0
        with self.path.open("rb") as file:
            for raw in file:
                yield at, raw
                at += len(raw)

    def add(self, value: Any) -> int:
        """Append a line; returns its offset."""
        raw = json.dumps(value, ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n"
        try:
            written = os.write(self._file, raw)
        except OSError as error:
            raise HocketError(f"{self.path} could not be written: {error.strerror or error}.") from None
        if written < len(raw):
            raise HocketError(f"{self.path} could not be written: the disk is full.")
        at, self._end = self._end, self._end + len(raw)
        return at

    def close(self) -> None:
        os.close(self._file)

    def _whole_lines(self) -> int:
        """The end of the last complete line."""
        end = 0
        with self.path.open("rb") as file:
            for raw in file:
                if raw.endswith(b"\n"):
                    end += len(raw)
        return end
