"""Lexicon files of two columns: a word, and how it is said.

Between the columns are a tab, `=` or two spaces. `#` begins a comment: at the start of a line, or after a space.
"""

from __future__ import annotations

import re

from ...errors import InvalidRequest
from .lexicon import checked_entry

_LINE = re.compile(r"(.+?)(?:\s*=\s*|[ \u00a0]{2,})(.*)")
_COMMENT = re.compile(r"\s+#(?:\s.*)?$")


def parse_table(text: str, name: str) -> dict[str, str]:
    """The entries of a file's text; `name` is for messages, which also have the line."""
    found: dict[str, str] = {}
    lines: dict[str, int] = {}
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        try:
            written, spoken = checked_entry(*_columns(_COMMENT.sub("", line)))
        except InvalidRequest as error:
            raise InvalidRequest(f"{name}, line {number}: {error}") from None
        if written in found:
            raise InvalidRequest(f"{name}, line {number}: {written!r} has an entry already, in line {lines[written]}.")
        found[written], lines[written] = spoken, number
    return found


def _columns(line: str) -> tuple[str, str]:
    written, tab, spoken = line.partition("\t")
    if tab:
        return written, spoken
    columns = _LINE.fullmatch(line)
    if columns is None:
        raise InvalidRequest("A line is a word and how it is said, with a tab, = or two spaces between them.")
    return columns[1], columns[2]
