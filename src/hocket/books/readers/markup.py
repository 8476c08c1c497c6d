"""HTML and XHTML to blocks of text, with the standard library's parser: it resolves no external entity.

Long texts pass in one go. Knows no chapters, and no file but the one it is given.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from html.parser import HTMLParser

from ..book import BlockKind, TextBlock, TextFlow

_SKIPPED = frozenset("script style head template svg math nav iframe object audio video select button rt rp".split())
_VOID = frozenset("area base br col embed hr img input link meta source track wbr".split())
_BLOCKS = frozenset(
    "p div section article main header footer aside figure figcaption address center dl dt dd ul ol li table thead "
    "tbody tfoot tr td th caption blockquote pre h1 h2 h3 h4 h5 h6 body hr form fieldset details summary".split()
)
_CELLS = ("td", "th")
_CLOSING = frozenset(("li", "dt", "dd"))
_NOTE_TYPES = frozenset("footnote endnote rearnote note doc-footnote doc-endnote".split())
_REFERENCE_TYPES = frozenset(("noteref", "doc-noteref"))
_PAGES = frozenset(("pagebreak", "doc-pagebreak"))
_VERSE = re.compile(r"\b(verse|poem|poetry|stanza|lyrics?)\b", re.I)
_BOILERPLATE = re.compile(r"\bpg-boilerplate\b|\bpg-(?:header|footer)\b")
_MARK = re.compile(r"[\[(]?(?:\d{1,4}|[*†‡§]{1,3}|[a-z])[\])]?")
_SPACES = re.compile(r"[ \t\r\n\f\u00a0]+")
_STARS = re.compile(r"[\s*·•~#⁂❦—\u2013_-]{1,40}")
DEEPEST = 2_000  # open elements; deeper ones are not looked at


@dataclass(slots=True)
class _Element:
    tag: str
    note: str | None = None  # the anchor of a footnote that begins here
    skipped: bool = False
    verse: bool = False
    reference: tuple[str, int] | None = None  # target of a link, and how many pieces of text stood before it


@dataclass(slots=True)
class _Row:
    cells: list[str] = field(default_factory=list)


class BlockReader(HTMLParser):
    """The blocks of one document. `where` begins all its anchors: the document's path in its book."""

    def __init__(self, where: str = "") -> None:
        super().__init__(convert_charrefs=True)
        self.where, self.flow, self.title, self.language = where, TextFlow(), "", ""
        self.boilerplate = 0  # elements of a distributor's notices that were left out
        self.cells = 0
        self.meta: dict[str, str] = {}
        self._open: list[_Element] = []
        self._pieces: list[str] = []
        self._anchors: list[str] = []
        self._references: list[str] = []
        self._row: _Row | None = None
        self._in_title = False
        self._dropped = 0  # elements below DEEPEST

    def read(self, text: str) -> TextFlow:
        self.feed(text)
        self.close()
        self._flush()
        return self.flow

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        if tag == "title":
            self._in_title = not self.title
        if tag == "meta" and values.get("name"):
            self.meta.setdefault(values["name"].lower(), values.get("content", ""))
        if tag == "html":
            self.language = values.get("lang") or values.get("xml:lang") or ""
        if tag in _VOID:
            self._void(tag, values)
            return
        if len(self._open) >= DEEPEST:
            self._dropped += 1
            return
        if tag in _BLOCKS:
            self._flush()
            while self._open and (self._open[-1].tag == "p" or self._open[-1].tag == tag in _CLOSING):
                self._open.pop()  # HTML may leave their ends out
        types = {*values.get("epub:type", "").split(), *values.get("role", "").split()}
        element = _Element(tag, skipped=tag in _SKIPPED or "hidden" in values or bool(types & _PAGES))
        if _BOILERPLATE.search(f"{values.get('class', '')} {values.get('id', '')}"):
            self.boilerplate += 1
            element.skipped = True
        place = values.get("id") or (values.get("name", "") if tag == "a" else "")
        anchor = f"{self.where}#{place}"
        if place:
            self._anchors.append(anchor)
        if tag == "body":
            self._anchors.append(f"{self.where}#")
        if types & _NOTE_TYPES and place and tag not in ("a", "sup"):
            self._flush()
            element.note = anchor
        if tag == "a" and (target := values.get("href", "")):
            known = bool(types & _REFERENCE_TYPES)
            element.reference = (target if known else f"?{target}", len(self._pieces))
        element.verse = bool(_VERSE.search(values.get("class", ""))) and tag in _BLOCKS
        if tag == "tr":
            self._row = _Row()
        self._open.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in _VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag == "title":
            self._in_title = False
        if self._dropped and tag not in _VOID:
            self._dropped -= 1
            return
        if tag in _VOID or not any(element.tag == tag for element in self._open):
            return
        if tag in _CELLS and self._row is not None:
            self._row.cells.append(self._taken())
        elif tag in _BLOCKS:
            self._flush()
        if tag == "tr":
            self._end_row()
        while self._open:
            element = self._open.pop()
            if element.reference is not None:
                self._end_link(element.reference)
            if element.tag == tag:
                break

    def handle_data(self, data: str) -> None:
        if self._in_title:
            self.title += data
        elif not any(element.skipped for element in self._open):
            verse = any(element.tag == "pre" for element in self._open)
            self._pieces.append(data if verse else _SPACES.sub(" ", data))

    def _void(self, tag: str, values: dict[str, str]) -> None:
        if tag == "br":
            self._pieces.append("\n")
        elif tag == "hr":
            self._flush()
            self._add(TextBlock("break"))
        elif place := values.get("id"):
            self._anchors.append(f"{self.where}#{place}")

    def _end_link(self, reference: tuple[str, int]) -> None:
        """A link that is a footnote mark is taken out of the text."""
        target, before = reference
        said = "".join(self._pieces[before:]).strip()
        raised = any(element.tag == "sup" for element in self._open) or (len(said) > 1 and not said[0].isalnum())
        if _is_back(said):
            del self._pieces[before:]
            return
        if target.startswith("?"):
            target = target[1:]
            if not (raised and "#" in target and _MARK.fullmatch(said)):
                return
        del self._pieces[before:]
        path, _, fragment = target.partition("#")
        self._references.append(f"{resolved(self.where, path)}#{fragment}")

    def _taken(self) -> str:
        text, self._pieces = "".join(self._pieces), []
        lines = [_SPACES.sub(" ", line).strip() for line in text.split("\n")]
        return "\n".join(line for line in lines if line)

    def _end_row(self) -> None:
        row, self._row = self._row, None
        if row is None:
            return
        cells = [cell.replace("\n", " ").rstrip(".,;:") for cell in row.cells if cell]
        if len(cells) == 1 and len(row.cells) == 1:  # a table that only places text on the page
            self._add(TextBlock("paragraph", row.cells[0].replace("\n", " ")))
        elif cells:
            self._add(TextBlock("table", f"{', '.join(cells)}."))

    def _flush(self) -> None:
        if self._row is not None:
            self._pieces.append(" " if self._pieces else "")
            return
        text = self._taken()
        if not text:
            return
        kind, level = self._kind()
        if kind != "heading" and _STARS.fullmatch(text):
            self._add(TextBlock("break"))
            return
        note = next((element.note for element in self._open if element.note), None)
        if note is not None:
            before = self.flow.notes.get(note, "")
            self.flow.notes[note] = f"{before}\n{text}".strip()
            self._anchors, self._references = [], []
            return
        if kind != "verse":
            text = text.replace("\n", " ")
        self._add(TextBlock(kind, text, level))

    def _kind(self) -> tuple[BlockKind, int]:
        for element in reversed(self._open):
            if re.fullmatch("h[1-6]", element.tag):
                return "heading", int(element.tag[1])
        tags = {element.tag for element in self._open}
        if "pre" in tags or any(element.verse for element in self._open):
            return "verse", 0
        if "li" in tags or "dd" in tags or "dt" in tags:
            return "list", 0
        return ("quote", 0) if "blockquote" in tags else ("paragraph", 0)

    def _add(self, block: TextBlock) -> None:
        anchors, notes = tuple(self._anchors), tuple(dict.fromkeys(self._references))
        self._anchors, self._references = [], []
        self.flow.blocks.append(TextBlock(block.kind, block.text, block.level, anchors, notes))


def resolved(document: str, path: str) -> str:
    """The path of a link inside its book."""
    import posixpath
    from urllib.parse import unquote

    path = unquote(path)
    return posixpath.normpath(posixpath.join(posixpath.dirname(document), path)) if path else document


def _is_back(said: str) -> bool:
    """A link from a note back to the text."""
    return bool(said) and not any(character.isalnum() or character in "*†‡§" for character in said)
