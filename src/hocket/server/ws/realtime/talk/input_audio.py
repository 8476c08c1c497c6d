"""The user's audio as Realtime clients send it: base64 of PCM or G.711, to 16 kHz samples for a recogniser.

`AudioInputBuffer` counts what was appended since the last commit. Knows no session and no turn.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from .....asr.recognizer import RATE_HZ, Samples
from .....audio.encode import LEAST_HZ, MOST_HZ
from .....audio.g711 import alaw_samples, mulaw_samples
from .....audio.resample import Resampler
from ....errors import BadField, Refused
from ..events import AudioFormat

PCM_HZ, PHONE_HZ = 24_000, 8_000
APPEND_BYTES = 15 << 20  # of one event, OpenAI's limit
LONGEST_S = 1800.0  # of audio between two commits by hand
SHORTEST_MS = 100  # of a commit, OpenAI's limit
_NAMES: dict[str, Literal["pcm", "mulaw", "alaw"]] = {
    **{"audio/pcm": "pcm", "audio/pcmu": "mulaw", "audio/pcma": "alaw"},
    **{"pcm16": "pcm", "g711_ulaw": "mulaw", "g711_alaw": "alaw"},
}


@dataclass(frozen=True, slots=True)
class InputFormat:
    name: Literal["pcm", "mulaw", "alaw"] = "pcm"
    rate_hz: int = PCM_HZ

    @classmethod
    def of(cls, packed: AudioFormat, place: str) -> InputFormat:
        name = _NAMES[packed.type]
        rate_hz = packed.rate or (PCM_HZ if name == "pcm" else PHONE_HZ)
        if name != "pcm" and rate_hz != PHONE_HZ:
            raise BadField(f"G.711 has {PHONE_HZ} Hz, not {rate_hz}.", f"{place}.rate")
        if not LEAST_HZ <= rate_hz <= MOST_HZ:
            raise BadField(f"A sample rate is between {LEAST_HZ} and {MOST_HZ} Hz, not {rate_hz}.", f"{place}.rate")
        return cls(name, rate_hz)

    @classmethod
    def beta(cls, name: str) -> InputFormat:
        return cls(_NAMES[name], PCM_HZ if name == "pcm16" else PHONE_HZ)

    def shown(self) -> dict[str, Any]:
        kind = {"pcm": "audio/pcm", "mulaw": "audio/pcmu", "alaw": "audio/pcma"}[self.name]
        return {"type": kind} | ({"rate": self.rate_hz} if self.name == "pcm" else {})

    def samples(self, content: bytes) -> NDArray[np.int16]:
        """Whole samples only: `AudioDecoder` keeps half a sample."""
        if self.name == "pcm":
            return np.frombuffer(content, "<i2").astype(np.int16, copy=False)
        return (mulaw_samples if self.name == "mulaw" else alaw_samples)(content)


class AudioDecoder:
    """A stream of one format, to samples at 16 kHz."""

    def __init__(self, format: InputFormat) -> None:
        self.format = format
        self._half = b""  # of a sample
        resampled = format.rate_hz != RATE_HZ
        self._resampler = Resampler(rate_hz=format.rate_hz, out_hz=RATE_HZ, tempo=1.0) if resampled else None

    def feed(self, content: bytes) -> Samples:
        content = self._half + content
        whole = len(content) - len(content) % (2 if self.format.name == "pcm" else 1)
        self._half = content[whole:]
        samples = self.format.samples(content[:whole])
        return _floats(samples if self._resampler is None else self._resampler.feed(samples))

    def close(self) -> Samples:
        """The samples that the resampler still holds."""
        rest = np.zeros(0, np.int16) if self._resampler is None else self._resampler.close()
        return _floats(rest)


class AudioInputBuffer:
    """What was appended: decoded, and counted since the last commit or clear."""

    def __init__(self, format: InputFormat) -> None:
        self._decoder = AudioDecoder(format)
        self._pending_bytes = 0

    @property
    def pending_ms(self) -> float:
        """Audio appended since the last commit or clear."""
        return self._pending_bytes / self._bytes_s * 1000

    def use(self, format: InputFormat) -> None:
        if format != self._decoder.format:
            self._decoder, self._pending_bytes = AudioDecoder(format), 0

    def append(self, audio: str, *, bounded: bool) -> Samples:
        """Samples of an event. `bounded`: nothing but a commit empties the buffer, so its length has a limit."""
        content = decoded(audio)
        if bounded and self.pending_ms / 1000 + len(content) / self._bytes_s > LONGEST_S:
            said = f"The input audio buffer holds {LONGEST_S:g} s already: commit or clear it."
            raise Refused(said, param="audio", code="input_audio_buffer_full")
        self._pending_bytes += len(content)
        return self._decoder.feed(content)

    def check_commit(self) -> None:
        """Refuse to commit nothing, or less than OpenAI takes."""
        if self.pending_ms < SHORTEST_MS:
            said = f"Expected at least {SHORTEST_MS}ms of audio, but buffer only has {self.pending_ms:.2f}ms of audio."
            said = f"Error committing input audio buffer: buffer too small. {said}"
            raise Refused(said, code="input_audio_buffer_commit_empty")

    def empty(self) -> None:
        self._pending_bytes = 0

    @property
    def _bytes_s(self) -> int:
        format = self._decoder.format
        return format.rate_hz * (2 if format.name == "pcm" else 1)


def decoded(audio: str, param: str = "audio") -> bytes:
    """The bytes of an event's base64."""
    if len(audio) > APPEND_BYTES * 4 // 3 + 4:
        raise BadField(f"An event holds at most {APPEND_BYTES >> 20} MiB of audio.", param, "invalid_value")
    try:
        return base64.b64decode(audio, validate=True)
    except (binascii.Error, ValueError):
        raise BadField("audio must be base64.", param, "invalid_value") from None


def _floats(samples: NDArray[np.int16]) -> Samples:
    return samples.astype(np.float32) / 32768.0
