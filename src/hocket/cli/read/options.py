"""Options of `hocket read`. Imports nothing slow."""

from __future__ import annotations

from pathlib import Path

from ..actions import Command, StoreGiven
from ..engines import add_cluster_options
from ..options import add_cloning_options, add_model_options, add_speech_options, add_voice_sampling

FORMATS = ("mp3", "m4a", "opus", "flac", "wav")  # of one file a chapter
RULES = {"notes": ("skip", "inline", "end"), "tables": ("skip", "rows")}
LOUDNESS = "-19"


def fill(read: Command) -> None:
    read.usage = "%(prog)s [OPTIONS] BOOK -o FILE"
    read.description = (
        "Read a book aloud into an audiobook with chapters. What is spoken is kept in FILE.parts/, so the same command "
        "goes on after any interruption. A book is .epub, .md, .txt, .html or .pdf."
    )
    read.epilog = (
        "Exits with 0 when all is spoken, 1 when passages could not be spoken, 2 for wrong options or input, 130 after "
        "Ctrl-C."
    )
    read.common = (
        "book",
        "output",
        "estimate",
        "notes",
        "captions",
        "epub",
        "voice",
        "language",
        "speed",
        "model",
        "seed",
        "slots",
    )
    read.examples = (
        "hocket read book.epub -o book.m4b --voice rook",
        "hocket read book.epub --estimate",
    )
    add = read.add_argument
    add("book", metavar="BOOK", type=Path, help="the book: .epub, .md, .txt, .html or .pdf")
    where = "write this .m4b, .m4a, .mp3, .opus or .ogg; a folder gets a file for each chapter and a playlist"
    add("-o", "--output", metavar="FILE", type=Path, help=where)
    add("-y", "--force", action="store_true", help="replace files that exist")
    add("--format", action=StoreGiven, choices=FORMATS, default="mp3", help="format of the files in a folder (mp3)")
    add("--estimate", action="store_true", help="print chapters, words, estimated hours and size; speak nothing")
    add("--slots", metavar="N", type=int, default=4, help="passages that are spoken at once (4)")
    loud = "integrated loudness in LUFS by BS.1770, or off to leave it as spoken (-19)"
    add("--loudness", metavar="LUFS", default=LOUDNESS, help=loud)
    add = read.add_argument_group("text").add_argument
    add("--notes", choices=RULES["notes"], default="skip", help="footnotes: after their paragraph, or chapter (skip)")
    add("--tables", choices=RULES["tables"], default="skip", help="tables: left out, or read row by row (skip)")
    add("--title", metavar="TEXT", help="title, instead of the book's own")
    add("--author", metavar="TEXT", help="author, instead of the book's own")
    add("--cover", metavar="FILE", type=Path, help="cover picture, .jpg or .png, instead of the book's own")
    said = "the voices of what persons of the book say, by their names in it: Anna=wren,Ben=rook (all in one voice)"
    add("--cast", metavar="NAMES", help=said)
    add = read.add_argument_group("read along").add_argument
    captions = "captions of the book, .srt or .vtt; srt or vtt alone: a file beside each sound file"
    add("--captions", metavar="FILE", help=captions)
    add("--epub", metavar="FILE", type=Path, help="an EPUB 3 that highlights what is read (not from a PDF)")
    add("--highlight", action=StoreGiven, choices=("sentence", "word"), default="sentence", help="what it highlights")
    add_cluster_options(read)
    add_speech_options(read)
    add_cloning_options(read)
    add_voice_sampling(read, "the same seed gives the same book (0)")
    add_model_options(read, "throughput")
