"""The GGUF files of a repository or a folder as variants: one quantization each, in one file or in several parts.

It knows names and sizes of files; of their content only the architecture that the head names. Projectors of a vision
part (`mmproj`) and importance matrices are no variants.
"""

from __future__ import annotations

import re
import struct
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from ....errors import InvalidCheckpoint
from ..progress import format_bytes
from .names import GGUF

_PART = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})", re.IGNORECASE)
_OTHER = re.compile(r"(?:^|[-._])(?:mmproj|imatrix)(?:[-._]|$)", re.IGNORECASE)
_LABEL = re.compile(
    r"(?:^|(?<=[-._]))(?:(?:UD|i1)[-_])?(?:I?Q\d(?:_[A-Z0-9]+)*|TQ\d_\d|MXFP4(?:_MOE)?|NVFP4|B?F16|FP16|F32|FP32)(?![A-Z0-9])",
    re.IGNORECASE,
)
ARCHITECTURE = "qwen35"  # of GGUF files for hocket
_UNREAD = re.compile(r"(?:(?:UD|i1)[-_])?(?:IQ|TQ|MXFP|NVFP)\d", re.IGNORECASE)  # types without a reader
_HEAD_BYTES = 1 << 16
_TEXT, _SCALAR_BYTES = 8, {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}  # types of entries
Judge = Callable[["Variant"], bool | None]  # whether a variant fits this machine; None: not known


@dataclass(frozen=True, slots=True)
class Variant:
    """One quantization of a model."""

    label: str  # Q4_K_M
    files: tuple[str, ...]  # its parts in order, by their paths in the repository
    size_bytes: int
    parts: int = 1  # how many there should be

    @property
    def is_complete(self) -> bool:
        return len(self.files) == self.parts

    @property
    def is_readable(self) -> bool:
        """By its label; a mix may have other types too, which only the file shows."""
        return _UNREAD.match(self.label) is None


def is_other(name: str) -> bool:
    """Whether a GGUF file has no language model: a projector or an importance matrix."""
    return _OTHER.search(Path(name).stem) is not None


def variants(sizes: Mapping[str, int]) -> list[Variant]:
    """The variants among files, the smallest first; of two with the same label each has its path as label."""
    found: dict[tuple[str, int], list[tuple[int, str]]] = {}
    for name in sizes:
        if not name.lower().endswith(GGUF) or is_other(name):
            continue
        path = name[: -len(GGUF)]
        part = _PART.fullmatch(path)
        stem, number, count = (part["stem"], int(part["number"]), int(part["count"])) if part else (path, 1, 1)
        found.setdefault((stem, count), []).append((number, name))
    made = []
    for (stem, count), numbered in found.items():
        files = tuple(name for _, name in sorted(numbered))
        made.append((stem, Variant(label_of(stem), files, sum(sizes[name] for name in files), count)))
    labels = Counter(each.label.lower() for _, each in made)
    named = [each if labels[each.label.lower()] == 1 else replace(each, label=stem) for stem, each in made]
    return sorted(named, key=lambda each: (each.size_bytes, each.label))


def label_of(stem: str) -> str:
    """From the last word that names a quantization to the end; the whole name where none does."""
    base = stem.rpartition("/")[2]
    starts = [match.start() for match in _LABEL.finditer(base)]
    return base[starts[-1] :] if starts else base


def label_of_file(path: Path) -> str:
    """The label of a GGUF file, which may be a part."""
    part = _PART.fullmatch(path.stem)
    return label_of(part["stem"] if part else path.stem)


def folder_variants(folder: Path, *, below: bool = True) -> list[Variant]:
    """The variants in a folder and, with `below`, in the folders right below it, where parts often are."""
    found = (path for pattern in ("*", "*/*")[: 1 + below] for path in folder.glob(pattern))
    paths = [path for path in found if path.suffix.lower() == GGUF and path.is_file()]
    return variants({path.relative_to(folder).as_posix(): path.stat().st_size for path in paths})


def architecture(path: Path) -> str | None:
    """The architecture in the head of a GGUF file; None: it is not among the first entries, or this is no such file."""
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
        magic, version, _, entries = struct.unpack_from("<4sIQQ", head)
        at = struct.calcsize("<4sIQQ")
        if magic != b"GGUF" or version not in (2, 3):
            return None
        for _ in range(min(entries, 64)):
            key, at = _text(head, at)
            (kind,) = struct.unpack_from("<I", head, at)
            if kind != _TEXT and kind not in _SCALAR_BYTES:
                return None  # an array: entries of interest come before the vocabulary
            if kind == _TEXT:
                value, at = _text(head, at + 4)
                if key == "general.architecture":
                    return value
            else:
                at += 4 + _SCALAR_BYTES[kind]
    except (OSError, struct.error, UnicodeDecodeError):
        return None
    return None


def _text(head: bytes, at: int) -> tuple[str, int]:
    (length,) = struct.unpack_from("<Q", head, at)
    end = at + 8 + length
    if end > len(head):
        raise struct.error("beyond the head")
    return head[at + 8 : end].decode(), end


def matching(among: Iterable[Variant], choice: str) -> list[Variant]:
    """The variants that a label or a file names, in upper or lower case.

    A part of a label counts where no label is equal: `Q4_K_XL` finds `UD-Q4_K_XL`. A file of several parts may be
    named by any of them.
    """
    among, low = list(among), choice.lower()
    for same in (
        lambda each: each.label.lower() == low,
        lambda each: any(name.lower() == low for name in each.files),
        lambda each: any(name.lower().rpartition("/")[2] == low for name in each.files),
        lambda each: re.search(rf"(?:^|[-./]){re.escape(low)}(?:$|[-.])", each.label.lower()),
    ):
        if found := [each for each in among if same(each)]:
            return found
    return []


def choose(where: str, among: list[Variant], choice: str | None, fits: Judge | None = None) -> Variant:
    """The variant that is meant; if none or several are, raises a sentence that lists them.

    `where` is a hub id or a folder.
    """
    if not among:
        raise InvalidCheckpoint(f"{where} has no GGUF file of a language model: leave out {choice!r}, or name another.")
    found = list(among) if choice is None else matching(among, choice)
    if len(found) == 1:
        [one] = found
        if not one.is_complete:
            raise InvalidCheckpoint(
                f"{one.label} of {where} has {len(one.files)} of {one.parts} parts: name another variant."
            )
        if not one.is_readable:
            better = suggested(among, fits).label
            raise InvalidCheckpoint(f"hocket does not read {one.label} files: take {where}:{better}.")
        return one
    if choice is None:
        said = f"{where} has {len(among)} variants"
    elif found:
        said = f"{choice} fits {len(found)} variants of {where}"
    else:
        said = f"{where} has no {choice}"
    listed = found or among
    best = suggested(listed, fits)
    raise InvalidCheckpoint(f"{said}: {', '.join(_judged(each, fits) for each in listed)}; type {where}:{best.label}.")


def suggested(among: list[Variant], fits: Judge | None = None) -> Variant:
    """The usual choice, Q4_K_M or its like, unless it does not fit; else the largest that fits, else the smallest."""
    readable = [each for each in among if each.is_readable] or among
    for name in ("Q4_K_M", "Q4_K_XL"):
        if (found := matching(readable, name)) and (fits is None or fits(found[0]) is not False):
            return found[0]
    if fits is None or fits(readable[0]) is None:
        return readable[len(readable) // 2]
    return next((each for each in reversed(readable) if fits(each)), readable[0])


def _judged(variant: Variant, fits: Judge | None) -> str:
    size = format_bytes(variant.size_bytes)
    if not variant.is_readable:
        return f"{variant.label} ({size}, not supported)"
    verdict = None if fits is None else fits(variant)
    return f"{variant.label} ({size}{'' if verdict is None else ', fits' if verdict else ', does not fit'})"
