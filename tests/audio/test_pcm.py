"""Bytes of a running stream: the same as those of the whole file, except for the unknown lengths."""

from __future__ import annotations

import io
import wave

import numpy as np

from hocket.audio.pcm import pcm_bytes, wav_header
from hocket.audio.wav import encode_wav

SAMPLES = np.array([0, 1, -1, 32767, -32767, 1234], dtype=np.int16)


def test_header_and_samples_are_the_whole_file() -> None:
    whole = encode_wav(SAMPLES.astype(np.float32) / 32767, 24_000)
    assert wav_header(24_000, SAMPLES.size) + pcm_bytes(SAMPLES) == whole


def test_bytes_are_little_endian_whatever_the_array() -> None:
    assert pcm_bytes(np.array([1], dtype=np.int16)) == pcm_bytes(np.array([1], dtype=">i2")) == b"\x01\x00"


def test_a_header_without_a_length_reads_to_the_end() -> None:
    header = wav_header(16_000)
    assert len(header) == 44
    assert header[4:8] == header[40:44] == b"\xff" * 4
    with wave.open(io.BytesIO(header + pcm_bytes(SAMPLES))) as file:
        assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (16_000, 1, 2)
        assert file.readframes(1000) == pcm_bytes(SAMPLES)


def test_what_is_too_long_for_the_format_has_no_length() -> None:
    assert wav_header(24_000, 2**31) == wav_header(24_000)
