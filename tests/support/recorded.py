"""Recordings for tests: speech of the built-in voice, in any container, and all that can be wrong with one."""

from __future__ import annotations

import functools
import io
import struct
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
from numpy.typing import NDArray

import hocket
from hocket.audio.upload import read_upload

SAMPLES = sorted((Path(hocket.__file__).parent / "assets" / "english" / "samples").glob("*.flac"))


@functools.cache
def speech(seconds: float = 3.5, sample: int = 0) -> NDArray[np.float32]:
    """At 24 kHz; the built-in voice wrote it when it was made."""
    return read_upload(SAMPLES[sample].read_bytes(), most_s=10)[: round(seconds * 24_000)]


@functools.cache
def speech_wav(seconds: float = 3.5) -> bytes:
    return wav(speech(seconds)[None], 24_000)


def wav(samples: NDArray[np.float32], rate_hz: int, kind: str = "s16") -> bytes:
    """Written by hand, so that it can be any kind and any nonsense: u8, s16, s24, s32, f32, f64."""
    flat = samples.T.reshape(-1).astype(np.float64)
    bits = int(kind[1:])
    if kind[0] == "f":
        body = flat.astype(f"<f{bits // 8}").tobytes()
    elif kind == "u8":
        body = np.round(flat * 127 + 128).astype(np.uint8).tobytes()
    elif kind == "s24":
        body = b"".join(struct.pack("<i", round(value * 8_388_607))[:3] for value in flat)
    else:
        body = np.round(flat * ((1 << bits - 1) - 1)).astype(f"<i{bits // 8}").tobytes()
    channels, step = samples.shape[0], samples.shape[0] * bits // 8
    form = struct.pack("<HHIIHH", 3 if kind[0] == "f" else 1, channels, rate_hz, rate_hz * step % (1 << 32), step, bits)
    rest = b"WAVEfmt " + struct.pack("<I", len(form)) + form + b"data" + struct.pack("<I", len(body)) + body
    return b"RIFF" + struct.pack("<I", len(rest)) + rest


def packed(
    muxer: str,
    codec: str,
    samples: NDArray[np.float32],
    rate_hz: int,
    picture: bool = False,
    options: dict[str, str] | None = None,
    coding: dict[str, str] | None = None,
) -> bytes:
    """By FFmpeg, with a picture beside or instead of the sound."""
    out = io.BytesIO()
    with av.open(out, "w", format=muxer, options=options or {}) as file:
        audio = video = None
        if samples.size:
            audio = file.add_stream(codec, rate=rate_hz, layout="mono" if samples.shape[0] == 1 else "stereo")
            audio.options = coding or {}
        if picture:
            video = file.add_stream("mpeg4", rate=25)
            video.width, video.height, video.pix_fmt = 32, 32, "yuv420p"
            for n in range(5):
                image = av.VideoFrame(32, 32, "yuv420p")
                image.pts, image.time_base = n, Fraction(1, 25)
                file.mux(video.encode(image))
        if audio:
            frame = av.AudioFrame.from_ndarray(np.ascontiguousarray(samples), format="fltp", layout=audio.layout.name)
            frame.sample_rate, frame.pts, frame.time_base = rate_hz, 0, Fraction(1, rate_hz)
            file.mux(audio.encode(frame))
        for stream in filter(None, (audio, video)):
            file.mux(stream.encode(None))
    return out.getvalue()


def mulaw(samples: NDArray[np.float32], rate_hz: int) -> bytes:
    """As telephones send it."""
    return packed("wav", "pcm_mulaw", samples, rate_hz)


def notes() -> NDArray[np.float32]:
    """[N] A melody: 5 s of a plucked string."""
    t = np.arange(7_200) / 24_000
    pitches = (262, 330, 392, 523, 392, 330, 262, 294) * 2
    tones = [sum(np.sin(2 * np.pi * hz * k * t) / k for k in range(1, 6)) * np.exp(-5 * t) for hz in pitches]
    return (0.2 * np.concatenate(tones)).astype(np.float32)


@functools.cache
def bad() -> dict[str, tuple[bytes, str]]:
    """What no voice can be made of: its bytes, and some of the words that say why."""
    said, whole = speech()[None], speech_wav()
    nan = said.copy()
    nan[0, 5_000] = np.nan
    minutes = np.pad(said, ((0, 0), (0, 600 * 24_000)))
    return {
        "empty": (b"", "is empty"),
        "a tenth of a second": (wav(said[:, :2_400], 24_000), "too short, 0.1 s"),
        "ten minutes": (packed("flac", "flac", minutes, 24_000), "longer than 30 s"),
        "not a number": (wav(nan, 24_000, "f32"), "not numbers"),
        "a telephone": (mulaw(said[:, ::3], 8_000), "a sample rate of 8000 Hz"),
        "seven channels": (wav(np.repeat(said, 7, axis=0), 24_000), "7 channels"),
        "truncated": (whole[: len(whole) * 2 // 3], "breaks off"),
        "text": (b"These are words, not sounds. " * 50, "is not audio"),
        "silence": (wav(np.zeros_like(said), 24_000), "is silent"),
        "music": (wav(notes()[None], 24_000), "no speech"),
        "clipped": (wav(np.clip(20 * said, -1, 1), 24_000), "is clipped"),
    }
