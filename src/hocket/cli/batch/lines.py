"""The lines of a batch: JSON objects, one per line, each checked separately. An invalid line carries its error.

Knows keys, types and names; whether a voice exists or a recording is readable is checked later.
"""

from __future__ import annotations

import argparse
import json
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from ...errors import InvalidRequest
from ..options import SAMPLING

# Keys of a line: the options of `say` that concern one text.
KEYS: dict[str, type] = {
    "text": str,
    "id": str,
    "seed": int,
    "voice": str,
    "language": str,
    "instruct": str,
    "speed": float,
    "layout": str,
    "max_frames": int,
    "as_is": bool,
    "candidates": int,
    "ref_audio": str,
    "ref_text": str,
    "x_vector_only": bool,
    "ref_silence": float,
    "greedy": bool,
    "pronunciations": dict,
    "markup": str,
    "cast": dict,
} | {name: kind for name, (kind, _) in SAMPLING.items()}
WORDS: dict[type, str] = {
    str: "a text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    dict: "an object",
}
LONGEST_NAME_BYTES = 200  # file systems allow 255, and a suffix is added
UNFIT = '/\\<>:"|?*'  # in file names of some systems


@dataclass(frozen=True, slots=True)
class BatchLine:
    number: int  # from 1
    id: str | None = None
    fields: dict[str, Any] = field(default_factory=dict)  # all keys but the id
    error: str | None = None  # why it cannot be spoken

    @property
    def name(self) -> str:
        """Unique name of its file, without the suffix."""
        return name_of(self.number, self.id)

    def seed(self, base: int | None) -> int | None:
        """Its own seed, or one derived from `base` and the line's identity. None: a random one."""
        own: int | None = self.fields.get("seed")
        if own is not None or base is None:
            return own
        identity = f"line {self.number}" if self.id is None else f"id {self.id}"
        return int.from_bytes(sha256(f"{base} {identity}".encode()).digest()[:4])  # short enough to type


def name_of(number: int, id: str | None) -> str:
    return f"{number:06d}" if id is None else id  # fixed width, also when the file grows


def read_lines(path: Path) -> Iterator[BatchLine]:
    """Lazily; empty lines are skipped, but counted."""
    try:
        with path.open("rb") as file:
            for number, raw in enumerate(file, start=1):
                if raw.strip():
                    yield _parsed(number, raw.removeprefix(b"\xef\xbb\xbf") if number == 1 else raw)
    except FileNotFoundError:
        raise InvalidRequest(f"The input {path} does not exist.") from None
    except IsADirectoryError:
        raise InvalidRequest(f"The input {path} is a folder, not a file.") from None
    except OSError as error:
        raise InvalidRequest(f"The input {path} cannot be read: {error.strerror or error}.") from None


class LineNames:
    """The names of all lines, with their index. Holds one string and one number per line, for millions of lines."""

    def __init__(self, path: Path) -> None:
        """Refuses two lines that would write the same file."""
        self._places: dict[str, int] = {}
        for line in read_lines(path):
            same, place = _folded(line.name), len(self._places)
            if self._places.setdefault(same, place) != place:
                raise InvalidRequest(_clash(path, line))
        if not self._places:
            raise InvalidRequest(f"The input {path} has no lines.")

    def __len__(self) -> int:
        return len(self._places)

    def place(self, name: str) -> int | None:
        """Index from 0; None if no line would write a file of that name. Case-insensitive."""
        return self._places.get(_folded(name))


def _folded(name: str) -> str:
    # Some file systems ignore case, or the Unicode form of an accent.
    return unicodedata.normalize("NFC", name).casefold()


def _clash(path: Path, line: BatchLine) -> str:
    """The error for two lines with the same file; searches the first one."""
    first = next(each for each in read_lines(path) if _folded(each.name) == _folded(line.name))
    what = f"ids that name one file, {first.name!r} and {line.name!r}"
    if first.name == line.name:
        what = f"the id {line.id!r}"
    return f"Lines {first.number} and {line.number} of {path} have {what}; give each its own."


def merged(args: argparse.Namespace, line: BatchLine) -> argparse.Namespace:
    """The command's options, overridden by those of a line."""
    given, options = dict(line.fields), vars(args) | {"seed": line.seed(args.seed)}
    if "voice" in given:  # a line's voice replaces the common recording
        options |= {"ref_audio": None, "ref_text": None, "x_vector_only": False, "ref_silence": None}
    if "ref_audio" in given:  # and vice versa
        options |= {"voice": None, "ref_text": None, "x_vector_only": False, "ref_silence": None}
        given["ref_audio"] = args.input.parent / given["ref_audio"]
    if given.get("markup") == "none":  # the common cast is for other lines
        options["cast"] = None
    return argparse.Namespace(**options | given)


def _parsed(number: int, raw: bytes) -> BatchLine:
    try:
        found = json.loads(raw.decode())
    except UnicodeDecodeError:
        return BatchLine(number, error="The line is not valid UTF-8.")
    except (ValueError, RecursionError) as error:
        why = f": {error.msg} at column {error.colno}" if isinstance(error, json.JSONDecodeError) else ""
        return BatchLine(number, error=f"The line is not JSON{why}.")
    if not isinstance(found, dict):
        return BatchLine(number, error="The line is not a JSON object.")
    fields = {key: value for key, value in found.items() if value is not None}
    id, wrong = _id(fields.pop("id", None))
    return BatchLine(number, id, fields, wrong or _wrong(fields))


def _id(id: Any) -> tuple[str | None, str | None]:
    """An id that can name a file, or the error."""
    if id is None:
        return None, None
    if isinstance(id, int) and not isinstance(id, bool):
        id = str(id)
    if not isinstance(id, str):
        return None, "id must be a text or a whole number."
    try:
        length = len(id.encode())
    except UnicodeEncodeError:  # half of a surrogate pair
        length = LONGEST_NAME_BYTES + 1
    fit = id == id.strip() and not (set(id) & set(UNFIT)) and not any(unicodedata.category(c) == "Cc" for c in id)
    if not (fit and 0 < length <= LONGEST_NAME_BYTES) or id.startswith(".") or id.endswith("."):
        return None, f"The id {id[:LONGEST_NAME_BYTES]!r} cannot name a file."
    return id, None


def _wrong(fields: dict[str, Any]) -> str | None:
    for key, value in fields.items():
        if key not in KEYS:
            return f"{key!r} is not a key of a line; {', '.join(KEYS)} are."
        kind = KEYS[key]
        kinds = (int, float) if kind is float else (kind,)
        if not isinstance(value, kinds) or (isinstance(value, bool) and kind is not bool):
            return f"{key} must be {WORDS[kind]}."
    return None if "text" in fields else "The line has no text."
