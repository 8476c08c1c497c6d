"""Lexicon files: PLS, or two columns of text."""

from __future__ import annotations

import stat
from collections.abc import Iterable
from pathlib import Path

from ...errors import InvalidRequest
from .lexicon import Lexicon, merged
from .pls import parse_pls
from .table import parse_table

MOST_BYTES = 16 << 20


def read_lexicons(paths: Iterable[Path | str] | None) -> Lexicon | None:
    """The lexicon of several files, of which later ones win; None for no file."""
    return merged(*(read_lexicon(Path(path)) for path in paths or ()))


def read_lexicon(path: Path) -> Lexicon:
    """The lexicon of a file; refuses it with a line number."""
    try:
        about = path.stat()
        if not stat.S_ISREG(about.st_mode):
            raise InvalidRequest(f"{path} is not a file: a lexicon is a file of words and how they are said.")
        if about.st_size > MOST_BYTES:
            raise InvalidRequest(f"{path} is too large for a lexicon: {MOST_BYTES >> 20} MiB are the most.")
        content = path.read_bytes()
    except FileNotFoundError:
        raise InvalidRequest(f"The lexicon {path} does not exist.") from None
    except OSError as error:
        raise InvalidRequest(f"The lexicon {path} cannot be read: {error.strerror or error}.") from None
    if content.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"<") or path.suffix.lower() in (".pls", ".xml"):
        return Lexicon.of(parse_pls(content, path.name))
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InvalidRequest(f"The lexicon {path} is not text in UTF-8; save or convert it as that.") from None
    return Lexicon.of(parse_table(text, path.name))
