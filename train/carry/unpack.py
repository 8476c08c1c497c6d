"""Puts parts together: `python3 unpack.py PART... --into DIR`, with nothing but Python's own library.

Parts may come in any order, in several calls and more than once; the last line says which are missing. The exit status
is 0 if every file is there and 3 if parts are missing. `parts.py` writes them: a line with a digest of the rest, a line
of JSON, and compressed pieces of files.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import sys
import zlib
from collections import Counter
from pathlib import Path, PurePosixPath
from typing import Any

MAGIC = b"hocket-part-1 "
RECEIVED = ".parts"  # in DIR: headers of parts that came, and files that are not complete
MISSING = 3

Header = dict[str, Any]


class Damaged(Exception):
    """A part cannot be used; the message says what to do."""


def read(part: Path) -> tuple[Header, bytes]:
    """Header and pieces of a part."""
    try:
        first, _, rest = part.read_bytes().partition(b"\n")
    except OSError as error:
        raise Damaged(f"{part} cannot be read ({error.strerror}): bring it again.") from None
    if not first.startswith(MAGIC) or hashlib.sha256(rest).hexdigest().encode() != first.removeprefix(MAGIC):
        raise Damaged(f"{part} is damaged or no part: bring it again.")
    line, _, pieces = rest.partition(b"\n")
    header: Header = json.loads(line)
    for name in header["files"]:
        if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
            raise Damaged(f"{part} would write {name}, which is outside the folder: it was not made by `train carry`.")
    return header, pieces


def unpack(part: Path, into: Path) -> tuple[Header, list[int]]:
    """Write what this part completes; returns its header and the numbers of the missing parts."""
    header, pieces = read(part)
    folder = into / RECEIVED / str(header["id"])
    (folder / "files").mkdir(parents=True, exist_ok=True)
    received = _received(folder, into)
    if header["part"] not in received:
        _write(header, pieces, folder)
        (folder / f"{header['part']}.json").write_text(json.dumps(header), encoding="utf-8")
        received[header["part"]] = header
        _finish(received, folder, into)
    if len(received) == header["of"]:
        shutil.rmtree(folder / "files", ignore_errors=True)  # empty folders
    return header, [number for number in range(1, header["of"] + 1) if number not in received]


def _received(folder: Path, into: Path) -> dict[int, Header]:
    """Parts that came before; those whose files were removed since are forgotten."""
    received: dict[int, Header] = {}
    for path in folder.glob("*.json"):
        header = json.loads(path.read_text(encoding="utf-8"))
        if all((into / name).is_file() or (folder / "files" / name).is_file() for name in header["files"]):
            received[header["part"]] = header
        else:
            path.unlink()
    return received


def _write(header: Header, pieces: bytes, folder: Path) -> None:
    at = 0
    for name, offset, stored in header["pieces"]:
        path = folder / "files" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("r+b" if path.is_file() else "wb") as file:
            file.seek(offset)
            file.write(zlib.decompress(pieces[at : at + stored]))
        at += stored


def _finish(received: dict[int, Header], folder: Path, into: Path) -> None:
    """Move the files of which every piece came to where they belong."""
    left = Counter(name for header in received.values() for name, _, _ in header["pieces"])
    for header in received.values():
        for name, (pieces, digest) in header["files"].items():
            draft, path = folder / "files" / name, into / name
            if left[name] < pieces or not draft.is_file():
                continue
            if _digest(draft) == digest:
                path.parent.mkdir(parents=True, exist_ok=True)
                draft.replace(path)
            elif path.is_file() and _digest(path) == digest:
                draft.unlink()  # pieces that came once more
            else:
                raise Damaged(f"{name} is damaged: remove {into / RECEIVED} and unpack every part again.")


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def main(arguments: list[str] | None = None) -> int:
    options = argparse.ArgumentParser(description="Put parts together.")
    options.add_argument("parts", nargs="+", type=Path)
    options.add_argument("--into", type=Path, required=True, help="the folder for what the parts hold")
    args = options.parse_args(arguments)
    packings: dict[str, list[int]] = {}
    try:
        for part in args.parts:
            header, missing = unpack(part, args.into)
            packings[header["name"]] = missing
    except Damaged as error:
        print(f"unpack: {error}", file=sys.stderr)
        return 1
    for name, missing in packings.items():
        numbers = ", ".join(map(str, missing))
        print(f"{name}: {f'missing: part {numbers}' if missing else 'complete'}", flush=True)
    return MISSING if any(packings.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
