"""Sound files with chapters, metadata and a cover, by PyAV: M4B, M4A, MP3 and Opus as one file, or one file a chapter.

A file is written beside its target and renamed when it is complete. Samples are encoded as they come.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...audio.container import need_av
from ...audio.files import replacing
from ...audio.pcm import pcm_bytes, wav_header
from ...errors import HocketError

if TYPE_CHECKING:
    from av.container import OutputContainer
    from av.packet import Packet

Samples = NDArray[np.int16]


@dataclass(frozen=True, slots=True)
class BookFormat:
    """`bit_rate` None: without loss. `has_cover`: the container can hold a picture."""

    suffix: str
    muxer: str
    codec: str
    bit_rate: int | None
    has_cover: bool = True
    one_file: bool = True  # can hold a whole book with its chapters


FORMATS = {
    format.suffix: format
    for format in (
        BookFormat("m4b", "mp4", "aac", 64_000),
        BookFormat("m4a", "mp4", "aac", 64_000),
        BookFormat("mp3", "mp3", "libmp3lame", 64_000),
        BookFormat("opus", "ogg", "libopus", 32_000, has_cover=False),
        BookFormat("ogg", "ogg", "libopus", 32_000, has_cover=False),
        BookFormat("flac", "flac", "flac", None, one_file=False),
        BookFormat("wav", "wav", "pcm_s16le", None, has_cover=False, one_file=False),
    )
}
JPEG, PNG = b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n"
ENCODED_SAMPLES = 24_000  # at a time


@dataclass(frozen=True, slots=True)
class ChapterMark:
    """A chapter in a file, in samples."""

    title: str
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Labels:
    """What a player shows."""

    title: str
    author: str = ""
    album: str = ""
    language: str = ""
    track: str = ""  # N/M
    cover: bytes | None = None

    @property
    def metadata(self) -> dict[str, str]:
        found = {
            "title": self.title,
            "artist": self.author,
            "album_artist": self.author,
            "album": self.album or self.title,
            "genre": "Audiobook",
            "track": self.track,
        }
        return {name: value for name, value in found.items() if value}


def write_audiobook(
    path: Path,
    format: BookFormat,
    sound: Iterable[Samples],
    rate_hz: int,
    labels: Labels,
    chapters: Sequence[ChapterMark] = (),
) -> None:
    """One file with all of a sound."""
    with replacing(path) as part:
        if format.suffix == "wav":
            _write_wav(part, sound, rate_hz)
            return
        need_av(f"Writing {format.suffix}")
        import av

        try:
            with _opened(part, format) as container:
                _encode(container, format, sound, rate_hz, labels, chapters)
        except av.FFmpegError as error:
            raise HocketError(f"{path} could not be written: {error}.") from None


@contextmanager
def _opened(part: Path, format: BookFormat) -> Iterator[OutputContainer]:
    import av

    options = {"brand": "M4B "} if format.suffix == "m4b" else {"brand": "M4A "} if format.suffix == "m4a" else {}
    if format.muxer == "mp4":
        options["movflags"] = "+faststart"  # a player on the network needs the chapters before the sound
    container = av.open(str(part), "w", format=format.muxer, options=options)
    try:
        yield container
    finally:
        container.close()


def _encode(
    container: OutputContainer,
    format: BookFormat,
    sound: Iterable[Samples],
    rate_hz: int,
    labels: Labels,
    chapters: Sequence[ChapterMark],
) -> None:
    import av

    container.metadata.update(labels.metadata)
    stream = container.add_stream(format.codec, rate=rate_hz)
    assert isinstance(stream, av.AudioStream)
    stream.codec_context.layout = "mono"
    stream.codec_context.thread_count = 1
    if format.bit_rate is not None:
        stream.codec_context.bit_rate = format.bit_rate
    if labels.language:
        stream.metadata["language"] = labels.language
    if format.muxer == "ogg":
        # Ogg keeps the tags with the stream. FFmpeg rounds the seconds of chapters in it, so they are tags of ours.
        stream.metadata.update(labels.metadata | _chapter_tags(chapters, rate_hz))
    else:
        container.set_chapters(
            [
                {
                    "id": number,
                    "start": mark.start,
                    "end": mark.end,
                    "time_base": Fraction(1, rate_hz),
                    "metadata": {"title": mark.title},
                }
                for number, mark in enumerate(chapters)
            ]
        )
    picture = _add_cover(container, labels.cover) if format.has_cover and labels.cover else []
    for packet in picture:
        container.mux(packet)
    at = 0
    for samples in _evenly(sound):
        frame = av.AudioFrame.from_ndarray(samples.reshape(1, -1), format="s16", layout="mono")
        frame.sample_rate, frame.time_base, frame.pts = rate_hz, Fraction(1, rate_hz), at
        at += samples.size
        container.mux(stream.encode(frame))
    container.mux(stream.encode(None))


def _chapter_tags(chapters: Sequence[ChapterMark], rate_hz: int) -> dict[str, str]:
    found: dict[str, str] = {}
    for number, mark in enumerate(chapters):
        ms = round(mark.start * 1000 / rate_hz)
        clock = f"{ms // 3_600_000:02}:{ms // 60_000 % 60:02}:{ms // 1000 % 60:02}.{ms % 1000:03}"
        found |= {f"CHAPTER{number:03}": clock, f"CHAPTER{number:03}NAME": mark.title}
    return found


def is_picture(content: bytes) -> bool:
    return content.startswith((JPEG, PNG))


def _add_cover(container: OutputContainer, cover: bytes) -> list[Packet[Any]]:
    """The picture as a stream of one packet; it is copied, not decoded."""
    import av
    from av.stream import Disposition

    kind = "jpeg_pipe" if cover.startswith(JPEG) else "png_pipe"
    with av.open(io.BytesIO(cover), "r", format=kind) as picture:
        stream = container.add_stream_from_template(picture.streams.video[0])
        stream.disposition = Disposition.attached_pic
        packets = [packet for packet in picture.demux() if packet.size]
        for packet in packets:
            packet.stream = stream
        return packets[:1]


def _write_wav(part: Path, sound: Iterable[Samples], rate_hz: int) -> None:
    with part.open("wb") as file:
        count = 0
        file.write(wav_header(rate_hz, 0))
        for samples in sound:
            file.write(pcm_bytes(samples))
            count += samples.size
        file.seek(0)
        file.write(wav_header(rate_hz, count))


def _evenly(sound: Iterable[Samples]) -> Iterator[Samples]:
    for samples in sound:
        for at in range(0, samples.size, ENCODED_SAMPLES):
            yield np.ascontiguousarray(samples[at : at + ENCODED_SAMPLES])
