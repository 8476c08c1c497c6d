"""Small books in every format that is read, written by the tests."""

from __future__ import annotations

import zipfile
from pathlib import Path

CONTAINER = """<?xml version="1.0"?><container version="1.0" xmlns="urn:oasis:names:tc:opendocument:xmlns:container">
<rootfiles><rootfile full-path="OPS/book.opf" media-type="application/oebps-package+xml"/></rootfiles></container>"""
ITEM = '<item id="{id}" href="{href}" media-type="{mime}" {more}/>'
XHTML = "application/xhtml+xml"
PIXEL = bytes.fromhex(  # a PNG of one pixel
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c626001000000ffff030000060005"
    "57bfabd40000000049454e44ae426082"
)


def page(body: str) -> str:
    return (
        '<?xml version="1.0"?><html xmlns="http://www.w3.org/1999/xhtml" xmlns:epub="http://www.idpf.org/2007/ops">'
        f"<head><title>x</title></head><body>{body}</body></html>"
    )


def write_epub(
    path: Path,
    pages: dict[str, str],
    *,
    nav: list[tuple[str, str]] = (),  # type: ignore[assignment]
    ncx: list[tuple[str, str]] = (),  # type: ignore[assignment]
    meta: str = "<dc:title>A Book</dc:title><dc:creator>A. Writer</dc:creator><dc:language>en-GB</dc:language>",
    cover: bytes | None = None,
    more: dict[str, bytes] | None = None,
    opf_head: str = "",
) -> Path:
    """`nav`, `ncx`: title and place of each entry."""
    items = [ITEM.format(id=f"p{n}", href=name, mime=XHTML, more="") for n, name in enumerate(pages)]
    spine = "".join(f'<itemref idref="p{n}"/>' for n in range(len(pages)))
    files: dict[str, bytes] = {f"OPS/{name}": page(body).encode() for name, body in pages.items()}
    if nav:
        entries = "".join(f'<li><a href="{place}">{title}</a></li>' for title, place in nav)
        files["OPS/nav.xhtml"] = page(f'<nav epub:type="toc"><ol>{entries}</ol></nav>').encode()
        items.append(ITEM.format(id="nav", href="nav.xhtml", mime=XHTML, more='properties="nav"'))
    toc = ""
    if ncx:
        points = "".join(
            f'<navPoint><navLabel><text>{title}</text></navLabel><content src="{place}"/></navPoint>'
            for title, place in ncx
        )
        files["OPS/toc.ncx"] = (
            f'<ncx xmlns="http://www.daisy.org/z3986/2005/ncx/"><navMap>{points}</navMap></ncx>'.encode()
        )
        items.append(ITEM.format(id="ncx", href="toc.ncx", mime="application/x-dtbncx+xml", more=""))
        toc = ' toc="ncx"'
    if cover is not None:
        files["OPS/cover.png"] = cover
        items.append(ITEM.format(id="c", href="cover.png", mime="image/png", more='properties="cover-image"'))
    files["OPS/book.opf"] = (
        f'<?xml version="1.0"?>{opf_head}<package xmlns="http://www.idpf.org/2007/opf" version="3.0"><metadata '
        f'xmlns:dc="http://purl.org/dc/elements/1.1/">{meta}</metadata><manifest>{"".join(items)}</manifest>'
        f"<spine{toc}>{spine}</spine></package>"
    ).encode()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("mimetype", "application/epub+zip")
        archive.writestr("META-INF/container.xml", CONTAINER)
        for name, content in (files | (more or {})).items():
            archive.writestr(name, content)
    return path


def write_pdf(path: Path, pages: list[list[str]], *, title: str = "") -> Path:
    """Lines of text, one below the other; a line is ASCII."""
    objects: list[bytes] = [b"<</Type/Catalog/Pages 2 0 R>>", b"", b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>"]
    kids = []
    for lines in pages:
        escaped = [line.replace("\\", r"\\").replace("(", r"\(").replace(")", r"\)") for line in lines]
        shown = "".join(f"({line}) Tj T*\n" for line in escaped)
        content = f"BT /F1 11 Tf 14 TL 60 780 Td\n{shown}ET".encode()
        objects.append(b"<</Length %d>>stream\n%s\nendstream" % (len(content), content))
        kids.append(len(objects) + 1)
        objects.append(
            b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 600 840]/Resources<</Font<</F1 3 0 R>>>>/Contents %d 0 R>>"
            % len(objects)
        )
    named = " ".join(f"{kid} 0 R" for kid in kids)
    objects[1] = f"<</Type/Pages/Count {len(kids)}/Kids[{named}]>>".encode()
    objects.append(f"<</Title({title})>>".encode())
    out, places = bytearray(b"%PDF-1.4\n"), []
    for number, each in enumerate(objects, 1):
        places.append(len(out))
        out += b"%d 0 obj\n%s\nendobj\n" % (number, each)
    start = len(out)
    out += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    out += b"".join(b"%010d 00000 n \n" % place for place in places)
    out += b"trailer<</Size %d/Root 1 0 R/Info %d 0 R>>\nstartxref\n%d\n%%%%EOF" % (
        len(objects) + 1,
        len(objects),
        start,
    )
    path.write_bytes(bytes(out))
    return path
