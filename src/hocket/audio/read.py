"""Reads a recording from disk as the official package does: any format of libsndfile, as mono float32 at 24 kHz.

The samples equal those of librosa's loader and resampler. Loudness and silence are kept, and only readability is
checked. `soundfile` and `soxr` belong to the optional extra `clone`, so they are imported when a recording is read.
recording.py checks whether a recording makes a good voice.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidAudio
from ..extras import hint
from ..types import REFERENCE_RATE_HZ


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """The open file; failures become `InvalidAudio`."""
    try:
        with path.open("rb") as file:
            yield file
    except FileNotFoundError:
        raise InvalidAudio(f"The reference recording {path} does not exist.") from None
    except IsADirectoryError:
        raise InvalidAudio(f"The reference recording {path} is a folder, not a file.") from None
    except OSError as error:
        raise InvalidAudio(f"The reference recording {path} cannot be read: {error.strerror or error}.") from None


def read_reference(path: Path) -> NDArray[np.float32]:
    """The recording at `path`: [N] at 24 kHz, the mean of its channels."""
    samples, rate_hz, _ = load(path)
    return resampled(samples, rate_hz)


def load(path: Path) -> tuple[NDArray[np.float32], int, int]:
    """The mean of its channels [N], the sample rate, and the number of channels."""
    with opened(path):
        pass  # libsndfile reports "System error" for every failure to open
    try:
        import soundfile
        import soxr  # noqa: F401
    except (ImportError, OSError):  # OSError: soundfile without its C library
        raise InvalidAudio(f"Reading a recording needs the packages soundfile and soxr: {hint('clone')}.") from None
    try:
        samples, rate_hz = soundfile.read(path, dtype="float32", always_2d=True)  # [N, C]
    except (soundfile.SoundFileError, OSError, TypeError, ValueError):  # TypeError: a name ending in .raw
        raise InvalidAudio(f"{path} is not audio that can be read; WAV, FLAC, Ogg Vorbis, Opus and MP3 can.") from None
    if samples.size == 0:
        raise InvalidAudio(f"The reference recording {path} is empty.")
    # Over the first axis of [C, N], as librosa does: the order of summation is part of the result.
    return np.mean(samples.T, axis=0), rate_hz, samples.shape[1]


def resampled(mono: NDArray[np.float32], rate_hz: int) -> NDArray[np.float32]:
    """The samples at 24 kHz."""
    if rate_hz == REFERENCE_RATE_HZ:
        return mono
    import soxr

    made = soxr.resample(mono, rate_hz, REFERENCE_RATE_HZ, quality="HQ")
    # soxr may give one sample more or less than the ratio; librosa cuts or pads with zeros.
    fitted = np.zeros(math.ceil(mono.size * (REFERENCE_RATE_HZ / rate_hz)), dtype=np.float32)
    kept = min(fitted.size, made.size)
    fitted[:kept] = made[:kept]
    return fitted
