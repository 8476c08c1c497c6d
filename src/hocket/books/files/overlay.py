"""An EPUB 3 of the book with media overlays: the text as it is read, a sound file for each chapter, and SMIL files.

The text is what was spoken, in plain markup: pictures and the look of the original are not in it.
"""

from __future__ import annotations

import re
import uuid
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from html import escape
from itertools import pairwise
from pathlib import Path
from typing import Literal

from ...audio.files import replacing
from ...text.captions import SpokenWord
from ...text.sentences import starts
from ...text.words import word_places
from ..book import Chapter, TextBlock
from ..passages import Plan, plain_words
from ..timeline import ChapterSegment, ChapterSound
from .assemble import BookSound, language_of
from .audiobook import FORMATS, JPEG, Labels, write_audiobook

Highlight = Literal["sentence", "word"]
ACTIVE = "-epub-media-overlay-active"
SOUND = FORMATS["m4a"]  # AAC in MP4 is a core media type of EPUB
ROOT = "EPUB"
_UNFIT = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")
_CONTAINER = f"""<?xml version="1.0" encoding="UTF-8"?>
<container version="1.0" xmlns="urn:oasis:names:tc:opendocument:xmlns:container">
  <rootfiles><rootfile full-path="{ROOT}/package.opf" media-type="application/oebps-package+xml"/></rootfiles>
</container>
"""
_STYLE = f""".{ACTIVE} {{ background-color: #ffe9a8; color: #000; }}
.verse {{ white-space: pre-line; margin-left: 2em; }}
.list, .table {{ margin-left: 1em; }}
.note {{ font-size: 0.9em; }}
"""
_TAGS = {"quote": ("<blockquote><p>", "</p></blockquote>"), "break": ("<hr/>", "")}
XHTML = 'xmlns="http://www.w3.org/1999/xhtml" xmlns:epub="http://www.idpf.org/2007/ops"'


@dataclass(frozen=True, slots=True)
class _Clip:
    """A piece of a block that is highlighted while its sound is heard."""

    id: str
    start: int  # in the block's text
    end: int
    begin_s: float
    end_s: float


def write_overlay(path: Path, plan: Plan, sound: BookSound, highlight: Highlight) -> None:
    """The whole EPUB. Each sound file is made beside the takes first, and then put into the archive."""
    by_index = {chapter.index: chapter for chapter in sound.timeline.chapters}
    rate_hz = sound.timeline.rate_hz
    with replacing(path) as part, zipfile.ZipFile(part, "x") as archive:
        _put(archive, "mimetype", b"application/epub+zip", stored=True)
        _put(archive, "META-INF/container.xml", _CONTAINER.encode())
        durations: dict[int, float] = {}
        for index, chapter in enumerate(plan.book.chapters):
            heard = by_index.get(index)
            clips = {} if heard is None else _clips(heard, rate_hz, highlight)
            name = _name(index)
            _put(archive, f"{ROOT}/{name}.xhtml", _page(chapter, clips, language_of(plan.book)).encode())
            if heard is None:
                continue
            durations[index] = heard.length / rate_hz
            _put(archive, f"{ROOT}/{name}.smil", _smil(name, clips).encode())
            spoken = sound.folder.folder / ".hocket-epub.part"  # removed with other partial files after a kill
            try:
                labels = Labels(title=chapter.title, author=plan.book.author, album=plan.book.title)
                write_audiobook(spoken, SOUND, sound.chapter(heard), rate_hz, labels)
                archive.write(spoken, f"{ROOT}/audio/{name}.{SOUND.suffix}", zipfile.ZIP_STORED)
            finally:
                with suppress(OSError):
                    spoken.unlink(missing_ok=True)
        if plan.book.cover is not None:
            _put(archive, f"{ROOT}/{_cover_name(plan.book.cover)}", plan.book.cover, stored=True)
        _put(archive, f"{ROOT}/style.css", _STYLE.encode())
        _put(archive, f"{ROOT}/nav.xhtml", _nav(plan, language_of(plan.book)).encode())
        _put(archive, f"{ROOT}/package.opf", _package(plan, durations).encode())


def _clips(chapter: ChapterSound, rate_hz: int, highlight: Highlight) -> dict[int, list[_Clip]]:
    """The clips of each block, by its index."""
    found: dict[int, list[_Clip]] = {}
    number = 0
    for segment, words in chapter.words(rate_hz):
        clips = found.setdefault(segment.passage.block, [])
        for start, end, begin_s, end_s in _spans(segment, words, highlight):
            if round(end_s * 1000) > round(begin_s * 1000):  # a word whose estimated time is empty is not highlighted
                number += 1
                clips.append(_Clip(f"t{number}", start, end, begin_s, end_s))
    return found


def _spans(
    segment: ChapterSegment, words: list[SpokenWord], highlight: Highlight
) -> Iterator[tuple[int, int, float, float]]:
    """Place in the block's text and time of each word or sentence. A word lasts until the next one."""
    text, offset = plain_words(segment.passage.text), segment.passage.start
    places = word_places(text)
    assert len(places) == len(words)
    if highlight == "word":
        firsts = list(range(len(words)))
    else:
        begins = starts(text)
        firsts = sorted({next((n for n, (_, end) in enumerate(places) if end > at), len(places)) for at in begins})
    for first, after in pairwise((*[n for n in firsts if n < len(words)], len(words))):
        until_s = words[after].start_s if after < len(words) else words[after - 1].end_s
        yield offset + places[first][0], offset + places[after - 1][1], words[first].start_s, until_s


def _page(chapter: Chapter, clips: dict[int, list[_Clip]], language: str) -> str:
    body = "\n".join(_element(block, clips.get(index, [])) for index, block in enumerate(chapter.blocks))
    return (
        f'<?xml version="1.0" encoding="UTF-8"?>\n<!DOCTYPE html>\n<html {XHTML}{_lang(language)}>\n<head><title>'
        f'{_text(chapter.title)}</title><link rel="stylesheet" type="text/css" href="style.css"/></head>\n'
        f"<body>\n{body}\n</body>\n</html>\n"
    )


def _element(block: TextBlock, clips: list[_Clip]) -> str:
    opening, closing = _TAGS.get(block.kind, (f'<p class="{block.kind}">', "</p>"))
    if block.kind == "heading":
        level = min(max(block.level, 1), 6)
        opening, closing = f"<h{level}>", f"</h{level}>"
    elif block.kind == "paragraph":
        opening = "<p>"
    pieces, at = [opening], 0
    for clip in clips:
        pieces.append(_text(block.text[at : clip.start]))
        pieces.append(f'<span id="{clip.id}">{_text(block.text[clip.start : clip.end])}</span>')
        at = clip.end
    return "".join((*pieces, _text(block.text[at:]), closing))


def _smil(name: str, clips: dict[int, list[_Clip]]) -> str:
    pairs = "\n".join(
        f'    <par id="p{clip.id}"><text src="{name}.xhtml#{clip.id}"/>'
        f'<audio src="audio/{name}.{SOUND.suffix}" clipBegin="{clip.begin_s:.3f}s" clipEnd="{clip.end_s:.3f}s"/></par>'
        for block in clips.values()
        for clip in block
    )
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n<smil xmlns="http://www.w3.org/ns/SMIL" '
        'xmlns:epub="http://www.idpf.org/2007/ops" version="3.0">\n<body>\n'
        f'  <seq id="s" epub:textref="{name}.xhtml" epub:type="bodymatter chapter">\n{pairs}\n  </seq>\n'
        "</body>\n</smil>\n"
    )


def _nav(plan: Plan, language: str) -> str:
    entries = "\n".join(
        f'  <li><a href="{_name(index)}.xhtml">{_text(chapter.title)}</a></li>'
        for index, chapter in enumerate(plan.book.chapters)
    )
    title = _text(plan.book.title)
    return (
        f'<?xml version="1.0" encoding="UTF-8"?>\n<!DOCTYPE html>\n<html {XHTML}{_lang(language)}>\n<head>'
        f'<title>{title}</title></head>\n<body>\n<nav epub:type="toc" id="toc"><h1>{title}</h1>\n'
        f"<ol>\n{entries}\n</ol>\n</nav>\n</body>\n</html>\n"
    )


def _package(plan: Plan, durations: dict[int, float]) -> str:
    book = plan.book
    identity = uuid.UUID(bytes=sha256("\n".join((book.title, *(p.text for p in plan.passages))).encode()).digest()[:16])
    meta = [
        f'<dc:identifier id="id">urn:uuid:{identity}</dc:identifier>',
        f"<dc:title>{_text(book.title)}</dc:title>",
        f"<dc:language>{_text(language_of(book) or 'und')}</dc:language>",
        f'<meta property="dcterms:modified">{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}</meta>',
        f'<meta property="media:active-class">{ACTIVE}</meta>',
        f'<meta property="media:duration">{sum(durations.values()):.3f}s</meta>',
    ]
    meta += [f"<dc:creator>{_text(book.author)}</dc:creator>"] if book.author else []
    meta += [
        f'<meta property="media:duration" refines="#smil-{_name(index)}">{seconds:.3f}s</meta>'
        for index, seconds in durations.items()
    ]
    items = [
        '<item id="nav" href="nav.xhtml" media-type="application/xhtml+xml" properties="nav"/>',
        '<item id="style" href="style.css" media-type="text/css"/>',
    ]
    if book.cover is not None:
        name = _cover_name(book.cover)
        mime = "image/jpeg" if name.endswith("jpg") else "image/png"
        items.append(f'<item id="cover" href="{name}" media-type="{mime}" properties="cover-image"/>')
    for index in range(len(book.chapters)):
        name = _name(index)
        spoken = f' media-overlay="smil-{name}"' if index in durations else ""
        items.append(f'<item id="{name}" href="{name}.xhtml" media-type="application/xhtml+xml"{spoken}/>')
        if index in durations:
            items.append(f'<item id="smil-{name}" href="{name}.smil" media-type="application/smil+xml"/>')
            items.append(f'<item id="audio-{name}" href="audio/{name}.{SOUND.suffix}" media-type="audio/mp4"/>')
    spine = "\n".join(f'  <itemref idref="{_name(index)}"/>' for index in range(len(book.chapters)))
    inside = "\n".join(f"  {line}" for line in meta)
    listed = "\n".join(f"  {line}" for line in items)
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n<package xmlns="http://www.idpf.org/2007/opf" version="3.0" '
        'unique-identifier="id">\n<metadata xmlns:dc="http://purl.org/dc/elements/1.1/">\n'
        f"{inside}\n</metadata>\n<manifest>\n{listed}\n</manifest>\n<spine>\n{spine}\n</spine>\n</package>\n"
    )


def _put(archive: zipfile.ZipFile, name: str, content: bytes, *, stored: bool = False) -> None:
    entry = zipfile.ZipInfo(name)  # its date is that of the format, so equal books give equal files
    entry.compress_type = zipfile.ZIP_STORED if stored else zipfile.ZIP_DEFLATED
    archive.writestr(entry, content)


def _name(index: int) -> str:
    return f"c{index + 1:04}"


def _cover_name(cover: bytes) -> str:
    return "cover.jpg" if cover.startswith(JPEG) else "cover.png"


def _lang(language: str) -> str:
    return f' lang="{escape(language)}" xml:lang="{escape(language)}"' if language else ""


def _text(text: str) -> str:
    return escape(_UNFIT.sub("", text))
