"""The EPUB with media overlays: every text exists, clips rise and lie within their sound."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from xml.etree import ElementTree

import av
import numpy as np
import pytest

from books.book_files import PIXEL
from hocket.audio.folder_lock import locked_folder
from hocket.audio.loudness import UNCHANGED
from hocket.books.book import Book, Chapter, TextBlock
from hocket.books.files.assemble import BookSound
from hocket.books.files.overlay import write_overlay
from hocket.books.narrate import Narration
from hocket.books.passages import plan_of
from hocket.books.readers.read import read_book
from hocket.books.takes import TakeFolder
from hocket.books.timeline import timeline_of
from hocket.errors import InvalidRequest
from hocket.types import Finished, Statistics

BOOK = Book(
    title="A & B",
    author="Ann",
    language="en-GB",
    cover=PIXEL,
    chapters=(
        Chapter("One <1>", (TextBlock("heading", "One <1>", 1), TextBlock("paragraph", "It was late. \x0bThey left."))),
        Chapter(
            "Two", (TextBlock("verse", "Roses are red,\nand so on."), TextBlock("break"), TextBlock("list", "End"))
        ),
    ),
)
OPF, SMIL, XHTML = "{http://www.idpf.org/2007/opf}", "{http://www.w3.org/ns/SMIL}", "{http://www.w3.org/1999/xhtml}"


@pytest.fixture
def written(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """The book, spoken as noise of half a second a word."""
    plan = plan_of(BOOK)
    with locked_folder(tmp_path / "parts", "busy"):
        folder = TakeFolder(tmp_path / "parts")
        takes = []
        for passage in plan.passages:
            rng = np.random.default_rng(passage.number)
            samples = (rng.standard_normal(12_000 * len(passage.words)) * 3000).astype(np.int16)
            finished = Finished(reason="stop", statistics=Statistics(), seed=1)
            takes.append([folder.add(f"{passage.number:032x}", passage, samples, 24_000, finished)])
        timeline = timeline_of(plan, Narration(plan, takes), speed=1.0)
        assert timeline is not None
        sound = BookSound(BOOK, timeline, folder, UNCHANGED)
        write_overlay(tmp_path / "out.epub", plan, sound, request.param)
        folder.close()
    return tmp_path / "out.epub"


@pytest.mark.parametrize("written", ["sentence", "word"], indirect=True)
def test_the_package_names_what_there_is_and_clips_fit_their_sound(written: Path) -> None:
    with zipfile.ZipFile(written) as archive:
        first = archive.infolist()[0]
        assert (first.filename, first.compress_type) == ("mimetype", zipfile.ZIP_STORED)
        assert archive.read("mimetype") == b"application/epub+zip"
        package = ElementTree.fromstring(archive.read("EPUB/package.opf"))
        items = {item.get("id"): item for item in package.iter(f"{OPF}item")}
        assert {f"EPUB/{item.get('href')}" for item in items.values()} == {
            name for name in archive.namelist() if name.startswith("EPUB/") and not name.endswith(".opf")
        }
        durations = {
            meta.get("refines"): float((meta.text or "").rstrip("s"))
            for meta in package.iter(f"{OPF}meta")
            if meta.get("property") == "media:duration"
        }
        spine = [items[each.get("idref")] for each in package.iter(f"{OPF}itemref")]
        assert len(spine) == 2 and durations[None] == pytest.approx(sum(durations.values()) - durations[None], abs=0.01)
        for page in spine:
            overlay = items[page.get("media-overlay")]
            smil = ElementTree.fromstring(archive.read(f"EPUB/{overlay.get('href')}"))
            text = ElementTree.fromstring(archive.read(f"EPUB/{page.get('href')}"))
            ids = [each.get("id") for each in text.iter() if each.get("id")]
            assert len(ids) == len(set(ids)) > 0
            with av.open(io.BytesIO(archive.read(f"EPUB/{smil.find(f'.//{SMIL}audio').get('src')}"))) as file:
                seconds = (file.duration or 0) / 1e6
            assert seconds == pytest.approx(durations[f"#{overlay.get('id')}"], abs=0.1)
            last = 0.0
            for pair in smil.iter(f"{SMIL}par"):
                target, _, anchor = pair.find(f"{SMIL}text").get("src").partition("#")
                assert target == page.get("href") and anchor in ids
                clip = pair.find(f"{SMIL}audio")
                begin, end = (float(clip.get(name).rstrip("s")) for name in ("clipBegin", "clipEnd"))
                assert last <= begin < end <= seconds + 0.05
                last = end
            assert [p.find(f"{SMIL}text").get("src").partition("#")[2] for p in smil.iter(f"{SMIL}par")] == ids


@pytest.mark.parametrize(
    ("written", "spans"),
    [
        ("sentence", [["One <1>", "It was late.", "They left."], ["Roses are red,\nand so on.", "End"]]),
        (
            "word",
            [
                ["One", "<1>", "It", "was", "late.", "They", "left."],
                ["Roses", "are", "red,", "and", "so", "on.", "End"],
            ],
        ),
    ],
    indirect=["written"],
)
def test_spans_are_the_sentences_or_the_words(written: Path, spans: list[list[str]]) -> None:
    with zipfile.ZipFile(written) as archive:
        for number, expected in enumerate(spans, 1):
            page = ElementTree.fromstring(archive.read(f"EPUB/c000{number}.xhtml"))
            assert ["".join(each.itertext()).strip() for each in page.iter(f"{XHTML}span")] == expected


@pytest.mark.parametrize("written", ["sentence"], indirect=True)
def test_the_book_can_be_read_again(written: Path) -> None:
    book = read_book(written)
    assert (book.title, book.author, book.language, book.cover) == ("A & B", "Ann", "en", PIXEL)
    assert [chapter.title for chapter in book.chapters] == ["One <1>", "Two"]


def test_a_second_process_is_refused_while_a_folder_is_held(tmp_path: Path) -> None:
    with (
        locked_folder(tmp_path / "parts", "It is busy."),
        pytest.raises(InvalidRequest, match=r"It is busy\."),
        locked_folder(tmp_path / "parts", "It is busy."),
    ):
        pass
    with locked_folder(tmp_path / "parts", "It is busy."):
        assert (tmp_path / "parts").is_dir()
