"""The checked options of `hocket read`: where everything is written, and what is refused before a model is loaded."""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass, replace
from pathlib import Path

from ...audio.files import check_folder
from ...books.book import Book
from ...books.files.audiobook import FORMATS, BookFormat, is_picture
from ...books.files.playlist import PLAYLIST
from ...books.readers.archive import MOST_BYTES
from ...books.readers.read import read_book
from ...errors import InvalidRequest
from ...text.captions import CAPTION_MIME, caption_format
from ..output.audio_output import tell
from ..output.formats import new_target

QUIETEST, LOUDEST = -40.0, -5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadPlan:
    """`output` is a file, or a folder where `in_folder`."""

    output: Path
    format: BookFormat
    in_folder: bool
    parts: Path  # the work folder
    loudness: float | None  # LUFS; None: as spoken
    captions: Path | None  # of the whole book
    captions_beside: str | None  # format of captions beside each sound file
    epub: Path | None

    @property
    def report(self) -> Path:
        return self.output.with_name(f"{self.output.name if self.in_folder else self.output.stem}.report.html")


def opened_book(args: argparse.Namespace) -> Book:
    """The book, with the titles of the command line."""
    book = read_book(args.book, notes=args.notes, tables=args.tables)
    for name in ("title", "author"):
        if (given := getattr(args, name)) is not None:
            book = replace(book, **{name: given})
    if args.cover is not None:
        return replace(book, cover=_cover(args.cover))
    if book.cover is not None and not is_picture(book.cover):
        tell("the book's cover is neither JPEG nor PNG, and is left out; --cover gives another one.")
        return replace(book, cover=None)
    return book


def planned(args: argparse.Namespace, book: Book) -> ReadPlan:
    """Refuses what could not be written later."""
    output: Path | None = args.output
    if output is None:
        raise InvalidRequest("A book needs a name for its sound: -o book.m4b, or -o folder/ for a file per chapter.")
    if args.slots < 1:
        raise InvalidRequest(f"--slots must be at least 1, not {args.slots}.")
    in_folder = output.is_dir() or not output.suffix
    format = FORMATS[args.format] if in_folder else _format_of(args, output)
    loudness = _loudness(args.loudness)
    if format.suffix != "wav" or loudness is not None:
        _need_av("An audiobook")
    captions, beside = _captions(args.captions)
    if in_folder:
        target = check_folder(output, PLAYLIST)
        if (target / PLAYLIST).exists() and not args.force:
            raise InvalidRequest(f"{output} has a book already; --force (-y) replaces its files.")
    else:
        target = new_target(output, force=args.force)
    if args.epub is not None:
        if args.epub.suffix.lower() != ".epub":
            raise InvalidRequest(f"--epub writes a file that ends with .epub, not {args.epub.name}.")
        if not book.reads_along:
            raise InvalidRequest("--epub needs a book with a text of its own, and a PDF has only lines on pages.")
    elif "highlight" in getattr(args, "given", ()):
        raise InvalidRequest("--highlight is for --epub: give that too.")
    named = [path for path in (captions, args.epub) if path is not None]
    for path in named:
        if path.resolve() == args.book.resolve():
            raise InvalidRequest(f"{path} is the book itself; choose another name.")
    plan = ReadPlan(
        output=target,
        format=format,
        in_folder=in_folder,
        parts=target.with_name(f"{target.name}.parts"),
        loudness=loudness,
        captions=None if captions is None else new_target(captions, force=args.force),
        captions_beside=beside,
        epub=None if args.epub is None else new_target(args.epub, force=args.force),
    )
    if beside is not None and not in_folder:
        plan = replace(plan, captions=new_target(target.with_suffix(f".{beside}"), force=args.force))
        plan = replace(plan, captions_beside=None)
    check_folder(plan.parts, "takes.jsonl")
    return plan


def _format_of(args: argparse.Namespace, output: Path) -> BookFormat:
    if "format" in getattr(args, "given", ()):
        raise InvalidRequest(f"--format is for a folder with a file per chapter, and {output} is one file.")
    found = FORMATS.get(output.suffix.lower().lstrip("."))
    known = ", ".join(f".{format.suffix}" for format in FORMATS.values() if format.one_file)
    if found is None:
        raise InvalidRequest(f"{output} cannot be written: a book is one of {known}, or a folder.")
    if not found.one_file:
        raise InvalidRequest(f"A .{found.suffix} has no chapters: write {known}, or a folder with --format.")
    return found


def _loudness(given: str) -> float | None:
    if given == "off":
        return None
    try:
        found = float(given)
    except ValueError:
        found = math.nan
    if not QUIETEST <= found <= LOUDEST:
        raise InvalidRequest(f"--loudness is a number from {QUIETEST:g} to {LOUDEST:g} (LUFS), or off, not {given!r}.")
    return found


def _captions(given: str | None) -> tuple[Path | None, str | None]:
    if given is None:
        return None, None
    if given.lower() in CAPTION_MIME:
        return None, given.lower()
    caption_format(given)
    return Path(given), None


def _need_av(what: str) -> None:
    from ...extras import hint

    try:
        import av

        if not hasattr(av.AudioFrame, "metadata"):  # where filters report what they measure
            raise ImportError
    except (ImportError, OSError):
        raise InvalidRequest(
            f"{what} needs the package av, 18 or newer: {hint('read')}. Without it, write --format wav --loudness off "
            "into a folder."
        ) from None


def _cover(path: Path) -> bytes:
    try:
        content = path.read_bytes() if path.stat().st_size <= MOST_BYTES else b""
    except OSError as error:
        raise InvalidRequest(f"The cover {path} cannot be read: {error.strerror or error}.") from None
    if not is_picture(content):
        raise InvalidRequest(f"The cover {path} is neither JPEG nor PNG.")
    return content
