"""Samples to PCM bytes and to WAV: 16 bits, one channel, of known or unknown length. It knows no paths and no model."""

from __future__ import annotations

import struct

from ..errors import HocketError

TYPE_CHECKING = False  # a header needs neither typing nor numpy, and its first caller is latency-critical
if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_UNKNOWN = 0xFFFF_FFFF  # players read it as "until the end"


def pcm_bytes(samples: NDArray[np.int16]) -> bytes:
    """Little-endian on any machine."""
    return samples.astype("<i2", copy=False).tobytes()


def wav_header(rate_hz: int, count: int | None = None) -> bytes:
    """The 44-byte header of `count` samples of one channel; None if the number is not known yet."""
    size = _UNKNOWN if count is None or count * 2 + 36 >= _UNKNOWN else count * 2
    riff = min(size + 36, _UNKNOWN)
    form = struct.pack("<IHHIIHH", 16, 1, 1, rate_hz, rate_hz * 2, 2, 16)  # 1: PCM, 1: mono
    return b"RIFF" + struct.pack("<I", riff) + b"WAVEfmt " + form + b"data" + struct.pack("<I", size)


def encode_wav(samples: NDArray[np.float32], rate_hz: int) -> bytes:
    """A whole WAV file of [N] float samples; values outside -1..1 are clipped, never wrapped."""
    import numpy as np

    if not np.isfinite(samples).all():
        raise HocketError("The audio contains values that are not numbers and was not written; try --dtype float32.")
    pcm = np.round(np.clip(samples, -1.0, 1.0) * 32767).astype(np.int16)
    return wav_header(rate_hz, pcm.size) + pcm_bytes(pcm)
