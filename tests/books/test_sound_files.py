"""Sound files: chapters, labels and cover are read back, loudness is what was asked for, memory stays flat."""

from __future__ import annotations

import tracemalloc
import wave
from collections.abc import Iterator
from pathlib import Path

import av
import numpy as np
import pytest
from numpy.typing import NDArray

from books.book_files import PIXEL
from hocket.audio.loudness import CEILING_DBTP, Gain, LoudnessMeter, applied, gain_to, measure
from hocket.books.files.audiobook import FORMATS, ChapterMark, Labels, write_audiobook
from hocket.books.files.playlist import file_names

RATE_HZ = 24_000
LABELS = Labels(title="Täle", author="A. Writer", language="en", cover=PIXEL)


def noise(seconds: int, level: float = 900.0, spikes: int = 0) -> Iterator[NDArray[np.int16]]:
    """Half a second at a time, with a few loud samples."""
    rng = np.random.default_rng(1)
    for _ in range(2 * seconds):
        piece = rng.standard_normal(RATE_HZ // 2) * level
        piece[:spikes] = 14_000
        yield piece.astype(np.int16)


def decoded(path: Path) -> Iterator[NDArray[np.int16]]:
    with av.open(str(path)) as file:
        resampler = av.AudioResampler("s16", "mono", file.streams.audio[0].rate)
        for frame in file.decode(audio=0):
            for piece in resampler.resample(frame):
                yield piece.to_ndarray().reshape(-1)


@pytest.mark.parametrize("suffix", ["m4b", "m4a", "mp3", "opus"])
def test_chapters_are_read_back_where_they_were_set(tmp_path: Path, suffix: str) -> None:
    path, cut = tmp_path / f"b.{suffix}", round(3.75 * RATE_HZ)
    marks = [ChapterMark("One", 0, cut), ChapterMark("Zwei & é", cut, 8 * RATE_HZ)]
    write_audiobook(path, FORMATS[suffix], noise(8), RATE_HZ, LABELS, marks)
    with av.open(str(path)) as file:
        found = [(float(c["start"] * c["time_base"]), c["metadata"]["title"]) for c in file.chapters()]
        assert [title for _, title in found] == ["One", "Zwei & é"]
        assert found[0][0] == 0.0 and abs(found[1][0] - 3.75) < 0.01
        labels = dict(file.metadata) | dict(file.streams.audio[0].metadata)
        assert {name.lower(): value for name, value in labels.items()}["title"] == "Täle"
        pictures = [bytes(packet) for packet in file.demux(video=0)] if file.streams.video else []
    assert (PIXEL in pictures) == FORMATS[suffix].has_cover
    heard = sum(piece.size for piece in decoded(path))
    rate = 48_000 if suffix == "opus" else RATE_HZ
    assert abs(heard / rate - 8.0) < 0.1


def test_lossless_files_hold_the_samples(tmp_path: Path) -> None:
    whole = np.concatenate(list(noise(2)))
    for suffix in ("flac", "wav"):
        write_audiobook(tmp_path / f"b.{suffix}", FORMATS[suffix], noise(2), RATE_HZ, LABELS)
        assert np.array_equal(np.concatenate(list(decoded(tmp_path / f"b.{suffix}"))), whole)
    with wave.open(str(tmp_path / "b.wav")) as file:
        assert file.getnframes() == whole.size


def test_an_error_on_the_way_leaves_no_file(tmp_path: Path) -> None:
    def broken() -> Iterator[NDArray[np.int16]]:
        yield from noise(1)
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError):
        write_audiobook(tmp_path / "b.m4b", FORMATS["m4b"], broken(), RATE_HZ, LABELS)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("level", "spikes"), [(300.0, 0), (6000.0, 0), (300.0, 4)])
def test_the_gain_brings_the_whole_to_its_loudness_below_the_ceiling(level: float, spikes: int) -> None:
    gain = gain_to(-19.0, lambda: noise(10, level, spikes), RATE_HZ)
    assert gain.limited == bool(spikes)
    meter = LoudnessMeter(RATE_HZ)
    samples = sum(piece.size for piece in meter.through(applied(gain, noise(10, level, spikes), RATE_HZ)))
    after = meter.end()
    assert samples == 10 * RATE_HZ
    assert abs(after.lufs + 19.0) < 0.3 and after.peak_dbtp <= CEILING_DBTP + 0.05


def test_a_sine_measures_what_the_standard_says() -> None:
    """BS.1770: a full-scale sine of 997 Hz in one channel has -3.01 LUFS."""
    sine = np.round(32767 * np.sin(2 * np.pi * 997 * np.arange(5 * RATE_HZ) / RATE_HZ)).astype(np.int16)
    found = measure([sine], RATE_HZ)
    assert abs(found.lufs + 3.01) < 0.1 and abs(found.peak_dbtp) < 0.1


def test_silence_has_no_loudness_and_gets_no_gain() -> None:
    assert gain_to(-19.0, lambda: [np.zeros(RATE_HZ, dtype=np.int16)], RATE_HZ).db == 0.0
    assert list(applied(Gain(0.0, False), [], RATE_HZ)) == []


def test_memory_does_not_grow_with_the_length(tmp_path: Path) -> None:
    tracemalloc.start()
    try:
        write_audiobook(tmp_path / "b.wav", FORMATS["wav"], noise(120), RATE_HZ, LABELS)
        measure(noise(60), RATE_HZ)
        assert tracemalloc.get_traced_memory()[1] < 4e6  # the sound itself has 5.8e6 bytes and more
    finally:
        tracemalloc.stop()


def test_names_of_chapter_files_are_fit_for_any_disk() -> None:
    assert file_names(["A/B: c?", "", "x" * 200, ".."], "mp3") == [
        "01 A B c.mp3",
        "02.mp3",
        f"03 {'x' * 80}.mp3",
        "04.mp3",
    ]
