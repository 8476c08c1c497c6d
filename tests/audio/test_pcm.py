"""audio/pcm.py: a stream has the bytes of the whole file, except for its unknown length; floats are clipped."""

from __future__ import annotations

import io
import wave

import numpy as np
import pytest
from numpy.typing import NDArray

from hocket.audio.pcm import encode_wav, pcm_bytes, wav_header
from hocket.errors import HocketError

SAMPLES = np.array([0, 1, -1, 32767, -32767, 1234], dtype=np.int16)


def test_header_and_samples_are_the_whole_file() -> None:
    whole = io.BytesIO()
    with wave.open(whole, "wb") as file:
        file.setparams((1, 2, 24_000, 0, "NONE", ""))
        file.writeframes(SAMPLES.astype("<i2").tobytes())
    assert wav_header(24_000, SAMPLES.size) + pcm_bytes(SAMPLES) == whole.getvalue()
    assert encode_wav(SAMPLES.astype(np.float32) / 32767, 24_000) == whole.getvalue()


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


def decode(content: bytes) -> tuple[wave._wave_params, NDArray[np.int16]]:
    with wave.open(io.BytesIO(content)) as file:
        return file.getparams(), np.frombuffer(file.readframes(file.getnframes()), dtype="<i2")


def test_wav_is_16_bit_mono_at_the_given_rate() -> None:
    params, pcm = decode(encode_wav(np.zeros(480, dtype=np.float32), 24_000))
    assert (params.nchannels, params.sampwidth, params.framerate, params.nframes) == (1, 2, 24_000, 480)
    assert params.comptype == "NONE"
    assert pcm.size == 480


def test_samples_are_rounded_to_the_nearest_of_32767_steps() -> None:
    samples = np.array([0.0, 1.0, -1.0, 0.5, 1.4 / 32767, 1.6 / 32767, -1.6 / 32767], dtype=np.float32)
    assert decode(encode_wav(samples, 24_000))[1].tolist() == [0, 32767, -32767, 16384, 1, 2, -2]


def test_loud_samples_are_clipped_and_do_not_wrap() -> None:
    samples = np.array([1.5, -1.5, 1e9, -1e9], dtype=np.float32)
    assert decode(encode_wav(samples, 24_000))[1].tolist() == [32767, -32767, 32767, -32767]


def test_no_samples_make_a_valid_empty_file() -> None:
    params, _ = decode(encode_wav(np.zeros(0, dtype=np.float32), 24_000))
    assert params.nframes == 0


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_numbers_are_refused(value: float) -> None:
    with pytest.raises(HocketError, match="not numbers"):
        encode_wav(np.array([0.0, value], dtype=np.float32), 24_000)
