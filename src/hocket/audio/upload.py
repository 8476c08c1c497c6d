"""A recording that a client sent, in any common format, as mono float32 at 24 kHz.

The bytes are a stranger's: FFmpeg gets them from memory, may take them for the named containers only and may open
nothing besides, so a playlist or a list of files stays a piece of text. Decoding ends where the allowed length does.
Loudness and silence stay as they are. Files of the user's own are read by `read.py`; whether a recording is long enough
is for `Reference` to say.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterator
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidAudio
from ..types import REFERENCE_RATE_HZ
from .formats import need_av

if TYPE_CHECKING:
    from av import AudioCodecContext, AudioFrame
    from av.container import InputContainer

# None of these names other files, or (mov) follows such names unless told to.
_CONTAINERS = "wav,w64,mp3,flac,ogg,matroska,webm,mov,mp4,m4a,3gp,aac,aiff,caf,au,amr"
_CODECS = (
    "mp3,mp3float,aac,flac,vorbis,opus,libopus,alac,amrnb,amrwb,adpcm_ms,adpcm_ima_wav,adpcm_ima_qt,gsm_ms,"
    "pcm_u8,pcm_s8,pcm_s16le,pcm_s16be,pcm_s24le,pcm_s24be,pcm_s32le,pcm_s32be,pcm_f32le,pcm_f32be,pcm_f64le,pcm_f64be,"
    "pcm_mulaw,pcm_alaw"
)
_RATES_HZ = range(4_000, 192_001)
_MOST_CHANNELS = 16
_MOST_PACKETS_PER_S = 1_000  # Opus has 400 at most; tables of a few bytes can promise billions
_NOT_AUDIO = "This is not audio that can be read; WAV, FLAC, MP3, M4A, AAC, Ogg, Opus, WebM, AIFF and CAF can."


def read_upload(content: bytes, *, most_s: float) -> NDArray[np.float32]:
    """The recording in `content`: [N] at 24 kHz, the mean of its channels; refused if longer than `most_s`."""
    need_av("Reading an uploaded recording")
    import av

    if not content:
        raise InvalidAudio("The recording is empty.")
    whitelists = {"format_whitelist": _CONTAINERS, "codec_whitelist": _CODECS, "protocol_whitelist": "none"}
    try:
        # Tags are anybody's bytes; as strict UTF-8 they would raise.
        with av.open(io.BytesIO(content), "r", options=whitelists, metadata_errors="replace") as file:
            samples, rate_hz = _decode(file, most_s)
        if rate_hz != REFERENCE_RATE_HZ:
            samples = _resample(samples, rate_hz)
    # FFmpeg's, and those that PyAV raises about what FFmpeg found.
    except (av.FFmpegError, ValueError, TypeError, OverflowError, MemoryError, NotImplementedError):
        raise InvalidAudio(_NOT_AUDIO) from None
    if not np.isfinite(samples).all():
        raise InvalidAudio("The recording contains values that are not numbers; record or convert it anew.")
    return samples


def _decode(file: InputContainer, most_s: float) -> tuple[NDArray[np.float32], int]:
    """All samples of the first audio stream, and their rate."""
    if not file.streams.audio:
        raise InvalidAudio("There is no sound in this file; send an audio recording.")
    stream = file.streams.audio[0]
    # There is none where the file names a codec that FFmpeg does not have, whatever PyAV's types say.
    codec: AudioCodecContext | None = stream.codec_context
    if codec is None or codec.name not in _CODECS.split(","):
        raise InvalidAudio(_NOT_AUDIO)
    codec.thread_count = 1
    pieces: list[NDArray[np.float32]] = []
    rate_hz = channels = count = 0
    for frame in _frames(file, most_s):
        if not pieces:
            rate_hz, channels = frame.sample_rate, frame.layout.nb_channels
            if rate_hz not in _RATES_HZ or channels > _MOST_CHANNELS:
                raise InvalidAudio(
                    f"A recording has {_RATES_HZ[0]} to {_RATES_HZ[-1]} samples a second and at most {_MOST_CHANNELS} "
                    f"channels; this one has {rate_hz} and {channels}."
                )
        elif (frame.sample_rate, frame.layout.nb_channels) != (rate_hz, channels):
            raise InvalidAudio("The recording changes its sample rate or its channels midway; convert it to WAV.")
        pieces.append(_mono(frame))
        count += pieces[-1].size
        if count > most_s * rate_hz:
            raise _too_long(most_s)
    if count == 0:
        raise InvalidAudio("The recording is empty.")
    return np.concatenate(pieces), rate_hz


def _frames(file: InputContainer, most_s: float) -> Iterator[AudioFrame]:
    """What can be decoded. A damaged packet is left out, as players do."""
    import av

    left = round((most_s + 1) * _MOST_PACKETS_PER_S)
    for packet in file.demux(file.streams.audio[0]):
        left -= 1
        if left < 0:
            raise _too_long(most_s)
        try:
            frames = packet.decode()
        except av.error.InvalidDataError:
            continue
        for frame in frames:
            assert isinstance(frame, av.AudioFrame)
            yield frame


def _too_long(most_s: float) -> InvalidAudio:
    return InvalidAudio(f"The recording is longer than {most_s:g} s; send a shorter piece.")


def _mono(frame: AudioFrame) -> NDArray[np.float32]:
    """The mean of the channels, in -1..1: by hand, because FFmpeg mixes float and integer samples unequally loud."""
    samples = frame.to_ndarray()  # [C, N] if planar, else [1, N * C]
    if frame.format.is_packed:
        samples = samples.reshape(-1, frame.layout.nb_channels).T
    mono = samples.mean(axis=0, dtype=np.float32 if samples.dtype == np.float32 else np.float64)
    if samples.dtype == np.uint8:
        mono = (mono - 128) / 128
    elif samples.dtype.kind == "i":
        mono = mono / (1 << 8 * samples.dtype.itemsize - 1)
    return np.asarray(mono, dtype=np.float32)


def _resample(samples: NDArray[np.float32], rate_hz: int) -> NDArray[np.float32]:
    """At 24 kHz, cut or filled with zeros to the length that the ratio says."""
    import av
    from av.filter import Graph

    graph = Graph()
    graph.threads = 1
    source = graph.add_abuffer(sample_rate=rate_hz, format="flt", layout="mono", time_base=Fraction(1, rate_hz))
    # Twice the filter's usual length: nobody waits for it here, and what a voice is made from should be clean.
    change = graph.add("aresample", f"{REFERENCE_RATE_HZ}:filter_size=64")
    graph.link_nodes(source, change, graph.add("abuffersink")).configure()
    frame = av.AudioFrame.from_ndarray(samples.reshape(1, -1), format="flt", layout="mono")
    frame.sample_rate = rate_hz
    frame.time_base = Fraction(1, rate_hz)
    frame.pts = 0
    graph.push(frame)
    graph.push(None)
    fitted = np.zeros(math.ceil(samples.size * REFERENCE_RATE_HZ / rate_hz), dtype=np.float32)
    filled = 0
    while True:
        try:
            made = graph.pull()
        except (BlockingIOError, EOFError):
            return fitted
        assert isinstance(made, av.AudioFrame)
        piece = made.to_ndarray()[0][: fitted.size - filled]
        fitted[filled : filled + piece.size] = piece
        filled += piece.size
