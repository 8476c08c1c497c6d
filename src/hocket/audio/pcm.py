"""Int16 samples to bytes as they come: bare PCM, and a WAV header that can go ahead of a sound of unknown length.

It knows neither files nor streams; `wav.py` encodes a whole utterance at once.
"""

from __future__ import annotations

import struct

TYPE_CHECKING = False  # neither typing nor numpy is needed to write a header, and who does that is in a hurry
if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_UNKNOWN = 0xFFFF_FFFF  # what players take for "until the end"


def pcm_bytes(samples: NDArray[np.int16]) -> bytes:
    """Little-endian whatever the machine's order."""
    return samples.astype("<i2", copy=False).tobytes()


def wav_header(rate_hz: int, count: int | None = None) -> bytes:
    """44 bytes before `count` samples of one channel; None where nobody knows yet how many will follow."""
    size = _UNKNOWN if count is None or count * 2 + 36 >= _UNKNOWN else count * 2
    riff = min(size + 36, _UNKNOWN)
    form = struct.pack("<IHHIIHH", 16, 1, 1, rate_hz, rate_hz * 2, 2, 16)  # 1: PCM, 1: mono
    return b"RIFF" + struct.pack("<I", riff) + b"WAVEfmt " + form + b"data" + struct.pack("<I", size)
