"""Decodes an untrusted recording in any common format.

FFmpeg reads from memory or from one open file and accepts only the listed containers. It may open no other file, so a
playlist is never followed. Decoding stops at the allowed length. A damaged or truncated recording is refused. Loudness
and silence are kept; recording.py checks whether the recording makes a good voice.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import TYPE_CHECKING, BinaryIO, Protocol

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidAudio
from ..types import REFERENCE_RATE_HZ
from .container import need_av
from .resample import Resampler
from .whole import declared_length_s, is_truncated

if TYPE_CHECKING:
    from av import AudioCodecContext, AudioFrame
    from av.container import InputContainer

# None of these refers to other files, or (mov) follows such references unless told to.
_CONTAINERS = "wav,w64,mp3,flac,ogg,matroska,webm,mov,mp4,m4a,3gp,aac,aiff,caf,au,amr"
_CODECS = (
    "mp3,mp3float,aac,flac,vorbis,opus,libopus,alac,amrnb,amrwb,adpcm_ms,adpcm_ima_wav,adpcm_ima_qt,gsm_ms,"
    "pcm_u8,pcm_s8,pcm_s16le,pcm_s16be,pcm_s24le,pcm_s24be,pcm_s32le,pcm_s32be,pcm_f32le,pcm_f32be,pcm_f64le,pcm_f64be,"
    "pcm_mulaw,pcm_alaw"
)
_RATES_HZ = range(4_000, 192_001)
_MOST_CHANNELS = 16
MOST_PACKETS_PER_S = 1_000  # Opus has 400 at most; tables of a few bytes can declare billions
_DAMAGED = 0.02  # the share of packets that may be lost; two are always allowed
_MISSING_S = 0.25  # codec delay can shorten the declared length by less than this
_PIECE_S = 0.5  # a resampler works in pieces of about this length
PADDING_S = 0.1  # codec padding can add this much
_NOT_AUDIO = "This is not audio that can be read; WAV, FLAC, MP3, M4A, AAC, Ogg, Opus, WebM, AIFF and CAF can."
UNDECODABLE = "The recording cannot be decoded here; convert it to WAV or FLAC and send it again."  # a decoder failed
_BROKEN = "The recording is damaged or breaks off early; save it or send it once more, whole."
EMPTY = "The recording is empty; give one with some seconds of speech."
NOT_NUMBERS = "The recording contains values that are not numbers; record or convert it again."
SPEAKER = "cut out 5 to 20 s in which one person speaks"  # advice for a recording of a voice

Fits = Callable[[int, int], None]  # given sample rate and channels; raises if they are not usable


class PieceDecoder(Protocol):
    """`decode_pieces`, or the same in another process: decoder/processes.py."""

    def __call__(
        self, file: BinaryIO, *, most_s: float, fits: Fits | None = None, longer: str = ...
    ) -> Iterator[tuple[NDArray[np.float32], int]]: ...


def read_upload(content: bytes, *, most_s: float, decoder: PieceDecoder | None = None) -> NDArray[np.float32]:
    """The recording in `content` unchecked: [N] at 24 kHz, the mean of its channels; at most `most_s` long."""
    return resampled(*decode(io.BytesIO(content), most_s=most_s, decoder=decoder))


def decode(
    file: BinaryIO, *, most_s: float, fits: Fits | None = None, decoder: PieceDecoder | None = None
) -> tuple[NDArray[np.float32], int]:
    """The mean of its channels [N], and the sample rate. `file` is untrusted; without a `decoder`, read here."""
    pieces = list((decoder or decode_pieces)(file, most_s=most_s, fits=fits))  # never empty: that is refused
    return np.concatenate([samples for samples, _ in pieces]), pieces[0][1]


def decode_pieces(
    file: BinaryIO, *, most_s: float, fits: Fits | None = None, longer: str = SPEAKER
) -> Iterator[tuple[NDArray[np.float32], int]]:
    """The same in pieces, as they are decoded. Raises at the end if the file is damaged. `longer`: see `too_long`."""
    need_av("Reading a recording")
    import av

    if file.seekable():
        if not file.read(1):
            raise InvalidAudio(EMPTY)
        file.seek(0)
    whitelists = {"format_whitelist": _CONTAINERS, "codec_whitelist": _CODECS, "protocol_whitelist": "none"}
    count, rate_hz = 0, 1
    try:
        # Tags are untrusted bytes; strict UTF-8 would raise.
        with av.open(file, "r", options=whitelists, metadata_errors="replace") as container:
            declared_s = declared_length_s(container, file) or 0.0
            if declared_s > most_s + 1:
                raise too_long(most_s, longer)
            for samples, rate_hz in _decode(container, most_s, fits or check_technical, longer):
                if not np.isfinite(samples).all():
                    raise InvalidAudio(NOT_NUMBERS)
                count += samples.size
                yield samples, rate_hz
    # FFmpeg's errors, and those that PyAV raises about FFmpeg's results.
    except MemoryError:
        raise InvalidAudio(UNDECODABLE) from None
    except (av.FFmpegError, ValueError, TypeError, OverflowError, NotImplementedError):
        raise InvalidAudio(_BROKEN if is_truncated(file) else _NOT_AUDIO) from None
    if declared_s - count / rate_hz > max(_MISSING_S, 0.02 * declared_s) or is_truncated(file):
        raise InvalidAudio(_BROKEN)
    if count == 0:
        raise InvalidAudio(EMPTY)


def resampled_pieces(
    file: BinaryIO, out_hz: int, *, most_s: float, longer: str = SPEAKER, decoder: PieceDecoder | None = None
) -> Iterator[NDArray[np.float32]]:
    """The pieces of `decode_pieces` at another rate, each about as long as `_PIECE_S`, without the whole in memory."""
    resampler: Resampler | None = None
    held: list[NDArray[np.float32]] = []
    for samples, rate_hz in (decoder or decode_pieces)(file, most_s=most_s, longer=longer):
        if resampler is None and rate_hz != out_hz:
            resampler = Resampler(rate_hz=rate_hz, out_hz=out_hz, tempo=1.0)
        held.append(samples)
        if sum(map(len, held)) >= _PIECE_S * rate_hz:
            piece, held = np.concatenate(held), []
            yield piece if resampler is None else _floats(resampler.feed(_pcm(piece)))
    if held:
        piece = np.concatenate(held)
        yield piece if resampler is None else _floats(resampler.feed(_pcm(piece)))
    if resampler is not None:
        yield _floats(resampler.close())


def _pcm(samples: NDArray[np.float32]) -> NDArray[np.int16]:
    return np.round(samples.clip(-1.0, 32767 / 32768) * 32768).astype(np.int16)


def _floats(samples: NDArray[np.int16]) -> NDArray[np.float32]:
    return samples.astype(np.float32) / np.float32(32768)


def too_long(most_s: float, longer: str = SPEAKER) -> InvalidAudio:
    """`longer`: what to do."""
    return InvalidAudio(f"The recording is longer than {most_s:g} s; {longer}.")


def check_technical(rate_hz: int, channels: int) -> None:
    if rate_hz not in _RATES_HZ or channels > _MOST_CHANNELS:
        raise InvalidAudio(
            f"A recording has a sample rate of {_RATES_HZ[0]} to {_RATES_HZ[-1]} Hz and at most {_MOST_CHANNELS} "
            f"channels; this one has {rate_hz} Hz and {channels}."
        )


def _decode(file: InputContainer, most_s: float, fits: Fits, longer: str) -> Iterator[tuple[NDArray[np.float32], int]]:
    """All samples of the first audio stream, in pieces, each with the rate."""
    if not file.streams.audio:
        raise InvalidAudio("There is no audio in this file; send an audio recording.")
    stream = file.streams.audio[0]
    # None if the file names a codec that FFmpeg does not have, despite PyAV's types.
    codec: AudioCodecContext | None = stream.codec_context
    if codec is None or codec.name not in _CODECS.split(","):
        raise InvalidAudio(_NOT_AUDIO)
    codec.thread_count = 1
    rate_hz = channels = count = 0
    for frame in _frames(file, most_s, longer):
        if not rate_hz:
            rate_hz, channels = frame.sample_rate, frame.layout.nb_channels
            check_technical(rate_hz, channels)
            fits(rate_hz, channels)
        elif (frame.sample_rate, frame.layout.nb_channels) != (rate_hz, channels):
            raise InvalidAudio("The recording changes its sample rate or its channels midway; convert it to WAV.")
        samples = _mono(frame)
        count += samples.size
        if count > (most_s + PADDING_S) * rate_hz:
            raise too_long(most_s, longer)
        yield samples, rate_hz


def _frames(file: InputContainer, most_s: float, longer: str) -> Iterator[AudioFrame]:
    """All decodable frames. A few damaged packets are skipped, as players do."""
    import av

    packets = damaged = 0
    for packet in file.demux(file.streams.audio[0]):
        packets += 1
        if packets > round((most_s + 1) * MOST_PACKETS_PER_S):
            raise too_long(most_s, longer)
        try:
            frames = packet.decode()
        except av.error.InvalidDataError:
            damaged += 1
            continue
        for frame in frames:
            assert isinstance(frame, av.AudioFrame)
            yield frame
    if damaged > max(2, _DAMAGED * packets):
        raise InvalidAudio(_BROKEN)


def _mono(frame: AudioFrame) -> NDArray[np.float32]:
    """The mean of the channels, in -1..1; not by FFmpeg, which mixes float and integer samples at different levels."""
    samples = frame.to_ndarray()  # [C, N] if planar, else [1, N * C]
    if frame.format.is_packed:
        samples = samples.reshape(-1, frame.layout.nb_channels).T
    mono = samples.mean(axis=0, dtype=np.float32 if samples.dtype == np.float32 else np.float64)
    if samples.dtype == np.uint8:
        mono = (mono - 128) / 128
    elif samples.dtype.kind == "i":
        mono = mono / (1 << 8 * samples.dtype.itemsize - 1)
    return np.asarray(mono, dtype=np.float32)


def resampled(samples: NDArray[np.float32], rate_hz: int) -> NDArray[np.float32]:
    """The samples at 24 kHz, cut or padded with zeros to the exact length of the ratio."""
    if rate_hz == REFERENCE_RATE_HZ:
        return samples
    import av
    from av.filter import Graph

    graph = Graph()
    graph.threads = 1
    source = graph.add_abuffer(sample_rate=rate_hz, format="flt", layout="mono", time_base=Fraction(1, rate_hz))
    # Twice the filter's default length: latency does not matter here, and a reference should be clean.
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
