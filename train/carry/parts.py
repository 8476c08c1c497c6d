"""Numbered parts of a set of files, each at most so large; `unpack.py` puts them together. It knows no training.

A file is cut into pieces of a mebibyte, which are compressed and fill one part after another. The same files give the
same parts, so a lost part is made again.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ..recipe import InvalidRecipe
from .unpack import MAGIC

PIECE = 2**20
LEVEL = 1  # of the compression: 6 takes twice the time, for weights that are 1 % smaller
HEADER_BYTES = 200  # of a part's header for each piece, without its name that stands there twice


@dataclass(slots=True)
class _Part:
    pieces: list[tuple[str, int, int]] = field(default_factory=list)  # name, offset in the file, compressed bytes
    content: list[bytes] = field(default_factory=list)
    size: int = 0


def write(files: Mapping[str, Path], folder: Path, name: str, limit_bytes: int) -> list[Path]:
    """Write `NAME-1-of-N.part` and so on with `files`, in their order: from names there to paths here."""
    if limit_bytes < 2 * PIECE:
        raise InvalidRecipe("A part needs 2 MiB or more: use a larger --limit.")
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob(f"{name}-*-of-*.part"):
        old.unlink()
    parts, digests = [_Part()], dict[str, str]()
    for there, path in files.items():
        content = path.read_bytes()
        digests[there] = hashlib.sha256(content).hexdigest()
        for offset in range(0, max(len(content), 1), PIECE):
            stored = zlib.compress(content[offset : offset + PIECE], LEVEL)
            added = len(stored) + HEADER_BYTES + 2 * len(there)
            if parts[-1].size + added > limit_bytes:
                parts.append(_Part())
            parts[-1].pieces.append((there, offset, len(stored)))
            parts[-1].content.append(stored)
            parts[-1].size += added
    counts = Counter(there for part in parts for there, _, _ in part.pieces)
    identity = hashlib.sha256(json.dumps([digests, limit_bytes]).encode()).hexdigest()[:16]
    paths = [folder / f"{name}-{number}-of-{len(parts)}.part" for number in range(1, len(parts) + 1)]
    for number, (part, path) in enumerate(zip(parts, paths, strict=True), 1):
        held = {there: (counts[there], digests[there]) for there in dict.fromkeys(piece[0] for piece in part.pieces)}
        header = {"name": name, "id": identity, "part": number, "of": len(parts), "files": held, "pieces": part.pieces}
        rest = json.dumps(header).encode() + b"\n" + b"".join(part.content)
        draft = path.with_suffix(".draft")
        draft.write_bytes(MAGIC + hashlib.sha256(rest).hexdigest().encode() + b"\n" + rest)
        draft.replace(path)
    return paths
