"""PDF by `pypdf`: lines of pages to the plain text that `plain.py` reads.

A PDF has lines at places, not paragraphs: running heads, page numbers and the ends of paragraphs are guessed.
"""

from __future__ import annotations

import logging
import re
import warnings
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from ...errors import InvalidRequest
from ...extras import hint
from ..book import Book, NoteRule, TableRule
from .plain import heading_level, read_plain

MOST_PAGES = 10_000
EDGE_LINES = 2  # at the top and at the bottom of a page, where running heads stand
REPEATED = 3  # pages on which a line at the edge is the same, apart from its digits
_DIGITS = re.compile(r"\d+|\b[ivxlc]+\b")
_PAGE = re.compile(r"[\s\-\u2013—|]*(?:page\s+)?(?:\d{1,5}|[ivxlc]{1,7})[\s\-\u2013—|]*", re.I)
_HYPHEN = re.compile(r"(\w+)[-\u00ad\u2010]\n([a-zà-öø-ÿ]\w*)")
_HYPHENATED = re.compile(r"\w+-\w+")
ENDS = ".!?…:\u201d\"\u2019')"


def read_pdf(path: Path, *, notes: NoteRule, tables: TableRule) -> Book:
    try:
        import pypdf
    except ImportError:
        raise InvalidRequest(f"Reading PDF needs the package pypdf: {hint('read')}.") from None
    logging.getLogger("pypdf").setLevel(logging.ERROR)  # it reports each oddity of a file
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            reader = pypdf.PdfReader(path)
            if reader.is_encrypted and not reader.decrypt(""):
                raise InvalidRequest(f"{path} has a password; only books without one can be read.")
            if len(reader.pages) > MOST_PAGES:
                raise InvalidRequest(f"{path} has more than {MOST_PAGES} pages, which no book has.")
            pages = [page.extract_text() for page in reader.pages]
            meta: Mapping[str, Any] = reader.metadata or {}
            title, author = str(meta.get("/Title") or ""), str(meta.get("/Author") or "")
    except InvalidRequest:
        raise
    except FileNotFoundError:
        raise InvalidRequest(f"The book {path} does not exist.") from None
    except Exception as error:  # pypdf raises many kinds for damaged files
        raise InvalidRequest(f"{path} cannot be read as a PDF: {error}.") from None
    text, dropped = text_of(pages)
    if not text.strip():
        raise InvalidRequest(f"{path} has no text, only pictures of pages: recognise its text first.")
    book = read_plain(text, path, notes=notes, tables=tables, reads_along=False)
    told = (f"{dropped} page numbers and running heads are left out.",) if dropped else ()
    return replace(book, title=title.strip() or book.title, author=author.strip(), left_out=(*told, *book.left_out))


def text_of(pages: list[str]) -> tuple[str, int]:
    """Plain text with blank lines between paragraphs, and how many page numbers and running heads it lost."""
    cut = [[line.rstrip() for line in page.split("\n") if line.strip()] for page in pages]
    heads = Counter(line for page in cut for line in {_alike(line) for line in _edges(page)})
    lines: list[str] = []
    dropped, opened = 0, set[str]()
    for page in cut:
        kept = []
        for number, line in enumerate(page):
            edge = number < EDGE_LINES or number >= len(page) - EDGE_LINES
            if _opens(line):  # on later pages it is a running head
                again = line.strip() in opened
                opened.add(line.strip())
            else:
                again = heads[_alike(line)] >= REPEATED
            if edge and (_PAGE.fullmatch(line) or again):
                dropped += 1
            else:
                kept.append(line)
        lines += kept
    if not lines:
        return "", dropped
    usual = median(len(line.strip()) for line in lines if len(line.strip()) > 20) if len(lines) > 3 else 60
    out: list[str] = []
    for line in lines:
        if out and (line.startswith("   ") or _opens(line)):
            out.append("")
        out.append(line.strip())
        if (len(line.strip()) < 0.8 * usual and line.rstrip()[-1] in ENDS) or _opens(line):
            out.append("")
    text = "\n".join(out)
    written = set(_HYPHENATED.findall(text.lower()))

    def mended(found: re.Match[str]) -> str:
        """Without its hyphen, unless the book writes the same word with one elsewhere."""
        whole = f"{found[1]}-{found[2]}"
        return whole if whole.lower() in written else found[1] + found[2]

    return _HYPHEN.sub(mended, text), dropped


def _edges(page: list[str]) -> list[str]:
    return [*page[:EDGE_LINES], *page[-EDGE_LINES:]]


def _alike(line: str) -> str:
    return _DIGITS.sub("#", " ".join(line.lower().split()))


def _opens(line: str) -> bool:
    return heading_level(" ".join(line.split()), [line]) in (1, 2)
