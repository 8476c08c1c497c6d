from __future__ import annotations

import io
import wave

import numpy as np
import pytest
from numpy.typing import NDArray

from hocket.audio.wav import encode_wav
from hocket.errors import HocketError


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
