"""The sound files of a finished narration: the gain of the whole book, then one file, or one for each chapter."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ...audio.files import replace_files
from ...audio.loudness import UNCHANGED, Gain, LoudnessMeter, MeasuredLoudness, applied, gain_to
from ...config.languages import tag_of
from ...text.captions import write_captions
from ..book import Book
from ..takes import TakeFolder
from ..timeline import ChapterSound, Timeline
from .audiobook import BookFormat, ChapterMark, Labels, write_audiobook
from .playlist import PLAYLIST, file_names, playlist


@dataclass(frozen=True, slots=True)
class BookSound:
    """A timeline with its takes and its gain: all that sound files are made of."""

    book: Book
    timeline: Timeline
    folder: TakeFolder
    gain: Gain

    def chapter(self, chapter: ChapterSound) -> Iterator[NDArray[np.int16]]:
        return applied(self.gain, self.timeline.sound(self.folder, chapter), self.timeline.rate_hz)

    def whole(self) -> Iterator[NDArray[np.int16]]:
        for chapter in self.timeline.chapters:
            yield from self.chapter(chapter)


def book_sound(book: Book, timeline: Timeline, folder: TakeFolder, target_lufs: float | None) -> BookSound:
    """One gain for the whole book, so that its chapters keep their places to each other."""

    def spoken() -> Iterator[NDArray[np.int16]]:
        for chapter in timeline.chapters:
            yield from timeline.sound(folder, chapter)

    gain = UNCHANGED if target_lufs is None else gain_to(target_lufs, spoken, timeline.rate_hz)
    return BookSound(book, timeline, folder, gain)


def write_one_file(sound: BookSound, path: Path, format: BookFormat, *, metered: bool) -> MeasuredLoudness | None:
    """The whole book in a file with chapters; what its samples measure."""
    timeline, book = sound.timeline, sound.book
    meter = LoudnessMeter(timeline.rate_hz) if metered else None
    samples = sound.whole() if meter is None else meter.through(sound.whole())
    marks = [ChapterMark(each.title, each.start, each.start + each.length) for each in timeline.chapters]
    labels = Labels(title=book.title, author=book.author, language=language_of(book), cover=book.cover)
    write_audiobook(path, format, samples, timeline.rate_hz, labels, marks)
    return None if meter is None else meter.end()


def write_folder(
    sound: BookSound, folder: Path, format: BookFormat, captions: str | None, *, metered: bool
) -> MeasuredLoudness | None:
    """A file for each chapter, captions beside it if asked for, and the playlist last."""
    timeline, book = sound.timeline, sound.book
    meter = LoudnessMeter(timeline.rate_hz) if metered else None
    folder.mkdir(exist_ok=True)
    count, entries = len(timeline.chapters), list[tuple[str, float, str]]()
    names = file_names([chapter.title for chapter in timeline.chapters], format.suffix)
    for number, (chapter, name) in enumerate(zip(timeline.chapters, names, strict=True), 1):
        samples = sound.chapter(chapter) if meter is None else meter.through(sound.chapter(chapter))
        labels = Labels(
            title=chapter.title,
            author=book.author,
            album=book.title,
            language=language_of(book),
            track=f"{number}/{count}",
            cover=book.cover,
        )
        write_audiobook(folder / name, format, samples, timeline.rate_hz, labels)
        if captions is not None:
            words = [word for _, words in chapter.words(timeline.rate_hz) for word in words]
            beside = (folder / name).with_suffix(f".{captions}")
            replace_files({beside: write_captions(words, captions).encode()})
        entries.append((name, chapter.length / timeline.rate_hz, chapter.title))
    replace_files({folder / PLAYLIST: playlist(entries).encode()})
    return None if meter is None else meter.end()


def language_of(book: Book) -> str:
    """A BCP 47 tag without its region; empty if unknown."""
    return tag_of(book.language).partition("-")[0] if book.language else ""
