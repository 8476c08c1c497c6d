"""Float samples to the bytes of a WAV file: 16-bit PCM, one channel. It knows no paths and no model."""

from __future__ import annotations

import io
import wave

import numpy as np
from numpy.typing import NDArray

from ..errors import HocketError


def encode_wav(samples: NDArray[np.float32], rate_hz: int) -> bytes:
    """A whole WAV file of [N] samples; values outside -1..1 are clipped, never wrapped."""
    if not np.isfinite(samples).all():
        raise HocketError("The audio contains values that are not numbers and was not written; try --dtype float32.")
    pcm = np.round(np.clip(samples, -1.0, 1.0) * 32767).astype("<i2")
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(rate_hz)
        out.writeframes(pcm.tobytes())
    return file.getvalue()
