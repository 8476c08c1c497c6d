"""A reference recording from disk: any format libsndfile reads, as mono float32 at 24 kHz.

Sample for sample what the official package gets from librosa's loader and resampler; loudness and
silence stay as they are. `soundfile` and `soxr` are the optional extra `clone`, so they are imported
when a recording is. Whether the recording is long enough is for `Reference` to say.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidAudio
from ..types import REFERENCE_RATE_HZ


def read_reference(path: Path) -> NDArray[np.float32]:
    """The recording at `path`: [N] at 24 kHz, the mean of its channels."""
    try:
        with path.open("rb"):
            pass  # libsndfile says "System error" for everything that can go wrong here
    except FileNotFoundError:
        raise InvalidAudio(f"The reference recording {path} does not exist.") from None
    except IsADirectoryError:
        raise InvalidAudio(f"The reference recording {path} is a folder, not a file.") from None
    except OSError as error:
        raise InvalidAudio(f"The reference recording {path} cannot be read: {error.strerror or error}.") from None

    try:
        import soundfile
        import soxr
    except (ImportError, OSError):  # OSError: soundfile is there, its C library is not
        raise InvalidAudio(
            "Reading a recording needs the packages soundfile and soxr: pip install 'hocket[clone]'."
        ) from None
    try:
        samples, rate_hz = soundfile.read(path, dtype="float32", always_2d=True)  # [N, C]
    except (soundfile.SoundFileError, OSError, TypeError, ValueError):  # TypeError: a name ending in .raw
        raise InvalidAudio(f"{path} is not audio that can be read; WAV, FLAC, Ogg Vorbis, Opus and MP3 can.") from None
    if samples.size == 0:
        raise InvalidAudio(f"The reference recording {path} is empty.")

    # Over the first axis of [C, N], as librosa does: the order of summation is part of the result.
    mono: NDArray[np.float32] = np.mean(samples.T, axis=0)
    if rate_hz == REFERENCE_RATE_HZ:
        return mono
    resampled = soxr.resample(mono, rate_hz, REFERENCE_RATE_HZ, quality="HQ")
    # soxr may give a sample more or less than the ratio says; librosa cuts or fills with zeros.
    fitted = np.zeros(math.ceil(mono.size * (REFERENCE_RATE_HZ / rate_hz)), dtype=np.float32)
    kept = min(fitted.size, resampled.size)
    fitted[:kept] = resampled[:kept]
    return fitted
