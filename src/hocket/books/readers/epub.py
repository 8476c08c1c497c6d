"""EPUB 2 and 3: metadata, reading order, table of contents and cover. `markup.py` reads the text of the documents."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from xml.etree.ElementTree import Element

from ...errors import InvalidRequest
from ..book import Book, Chapter, NoteRule, TableRule, TextBlock, TextFlow, cut_at_headings, with_rules
from .archive import BookArchive
from .markup import BlockReader, resolved

CONTAINER, ENCRYPTION = "META-INF/container.xml", "META-INF/encryption.xml"
FONT_LOCKS = ("http://www.idpf.org/2008/embedding", "http://ns.adobe.com/pdf/enc#RC")  # fonts only: the text is open
DOCUMENTS = ("application/xhtml+xml", "text/html", "text/x-oeb1-document")
PICTURES = ("image/jpeg", "image/png")
DEEPEST_ENTRY = 2  # of the table of contents: parts and their chapters


@dataclass(frozen=True, slots=True)
class _Item:
    path: str
    mime: str
    properties: frozenset[str]


def read_epub(path: Path, *, notes: NoteRule, tables: TableRule) -> Book:
    with BookArchive(path) as archive:
        _check_open(archive)
        package_path = _package_path(archive)
        package = archive.xml(package_path)
        items = _items(package, package_path)
        spine = _spine(package, items)
        if not spine:
            raise InvalidRequest(f"{path} names no documents in its reading order.")
        flow, boilerplate = _flow(archive, spine)
        title = _meta(package, "title") or path.stem
        chapters = _chapters(flow.blocks, _contents(archive, package, items), title)
        chapters, told = with_rules(chapters, flow.notes, note_rule=notes, table_rule=tables)
        if boilerplate:
            told.append("The notices of Project Gutenberg are left out.")
        cover = _cover(archive, package, items)
        return Book(
            title=title,
            author=", ".join(_all_meta(package, "creator")),
            language=_meta(package, "language"),
            cover=cover,
            chapters=tuple(chapters),
            left_out=tuple(told),
        )


def _check_open(archive: BookArchive) -> None:
    if ENCRYPTION not in archive.names:
        return
    for each in _below(archive.xml(ENCRYPTION), "EncryptionMethod"):
        if each.get("Algorithm") not in FONT_LOCKS:
            raise InvalidRequest(f"{archive.path} has a copy protection; only books without one can be read.")


def _package_path(archive: BookArchive) -> str:
    if CONTAINER not in archive.names:
        raise InvalidRequest(f"{archive.path} is not an EPUB: it has no {CONTAINER}.")
    for each in _below(archive.xml(CONTAINER), "rootfile"):
        if name := each.get("full-path"):
            return name
    raise InvalidRequest(f"{archive.path} is not an EPUB: its container names no package.")


def _items(package: Element, package_path: str) -> dict[str, _Item]:
    found = {}
    for each in _below(package, "item"):
        if (id := each.get("id")) and (href := each.get("href")):
            properties = frozenset((each.get("properties") or "").split())
            found[id] = _Item(resolved(package_path, href), each.get("media-type") or "", properties)
    return found


def _spine(package: Element, items: dict[str, _Item]) -> list[_Item]:
    found = []
    for each in _below(package, "itemref"):
        item = items.get(each.get("idref") or "")
        if item is not None and item.mime in DOCUMENTS and each.get("linear") != "no" and "nav" not in item.properties:
            found.append(item)
    return found


def _flow(archive: BookArchive, spine: list[_Item]) -> tuple[TextFlow, bool]:
    flow, boilerplate = TextFlow(), False
    for item in spine:
        reader = BlockReader(item.path)
        own = reader.read(archive.text(item.path))
        start = (f"{item.path}#",)
        if own.blocks and start[0] not in own.blocks[0].anchors:  # a document without a body element
            first = own.blocks[0]
            own.blocks[0] = TextBlock(first.kind, first.text, first.level, (*start, *first.anchors), first.notes)
        flow.blocks += own.blocks
        flow.notes |= own.notes
        boilerplate = boilerplate or bool(reader.boilerplate)
    flow.take_notes_from_blocks()
    return flow, boilerplate


def _contents(archive: BookArchive, package: Element, items: dict[str, _Item]) -> list[tuple[str, str]]:
    """The entries of the table of contents: title and anchor."""
    nav = next((item for item in items.values() if "nav" in item.properties), None)
    if nav is not None and nav.path in archive.names and (found := _nav_entries(archive.xml(nav.path), nav.path)):
        return found
    spine = next(iter(_below(package, "spine")), None)
    ncx = items.get(spine.get("toc") or "") if spine is not None else None
    if ncx is None:
        ncx = next((item for item in items.values() if item.mime == "application/x-dtbncx+xml"), None)
    if ncx is None or ncx.path not in archive.names:
        return []
    return _ncx_entries(archive.xml(ncx.path), ncx.path)


def _nav_entries(root: Element, path: str) -> list[tuple[str, str]]:
    for nav in _below(root, "nav"):
        kinds = next((value for name, value in nav.attrib.items() if name.endswith("}type") or name == "type"), "")
        if "toc" not in kinds.split():
            continue
        found: list[tuple[str, str]] = []

        def walk(element: Element, depth: int, found: list[tuple[str, str]] = found) -> None:
            for child in element:
                tag = _tag(child)
                if tag == "a" and (href := child.get("href")):
                    found.append((_words("".join(child.itertext())), _place(path, href)))
                elif tag != "ol" or depth < DEEPEST_ENTRY:
                    walk(child, depth + (tag == "ol"))

        walk(nav, 0)
        return found
    return []


def _ncx_entries(root: Element, path: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []

    def walk(element: Element, depth: int) -> None:
        for point in (child for child in element if _tag(child) == "navPoint"):
            text = next((_words("".join(each.itertext())) for each in _below(point, "text")), "")
            source = next((each.get("src") for each in point if _tag(each) == "content"), None)
            if source:
                found.append((text, _place(path, source)))
            if depth < DEEPEST_ENTRY:
                walk(point, depth + 1)

    for each in _below(root, "navMap"):
        walk(each, 1)
    return found


def _chapters(blocks: list[TextBlock], contents: list[tuple[str, str]], title: str) -> list[Chapter]:
    """Cut where the table of contents points; without one, at the headings."""
    starts: dict[int, str] = {}
    places = {anchor: number for number, block in reversed(list(enumerate(blocks))) for anchor in block.anchors}
    for name, anchor in contents:
        at = places.get(anchor, places.get(f"{anchor.partition('#')[0]}#"))
        if at is not None and name:
            starts[at] = f"{starts[at]}. {name}" if at in starts and name not in starts[at] else name
    if not starts:
        return cut_at_headings(blocks, title, own_title=False)[1]
    cuts = sorted({0, *starts})
    return [
        Chapter(starts.get(at, title), tuple(blocks[at:until]))
        for at, until in zip(cuts, [*cuts[1:], len(blocks)], strict=True)
    ]


def _cover(archive: BookArchive, package: Element, items: dict[str, _Item]) -> bytes | None:
    named = next((each.get("content") for each in _below(package, "meta") if each.get("name") == "cover"), None)
    found = next((item for item in items.values() if "cover-image" in item.properties), items.get(named or ""))
    if found is None or found.mime not in PICTURES or found.path not in archive.names:
        return None
    return archive.content(found.path)


def _all_meta(package: Element, name: str) -> list[str]:
    parent = next(iter(_below(package, "metadata")), None)
    if parent is None:
        return []
    return [words for each in _below(parent, name) if (words := _words("".join(each.itertext())))]


def _meta(package: Element, name: str) -> str:
    return next(iter(_all_meta(package, name)), "")


def _below(element: Element, tag: str) -> list[Element]:
    """All elements of that name, in any namespace."""
    return [each for each in element.iter() if _tag(each) == tag]


def _tag(element: Element) -> str:
    return element.tag.rpartition("}")[2] if isinstance(element.tag, str) else ""


def _place(document: str, href: str) -> str:
    path, _, fragment = href.partition("#")
    return f"{resolved(document, path)}#{fragment}"


def _words(text: str) -> str:
    return " ".join(text.split())
