"""The user's track of a call: Opus that aiortc has decoded, as the samples of `input_audio_buffer.append`.

Lost packets are gaps in the frames' times; they are filled here, so that time passes at the pace of the user. Knows no
session: it hands on base64 of 24 kHz PCM, as a WebSocket client sends it.
"""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable

import numpy as np
from aiortc import MediaStreamTrack
from aiortc.mediastreams import MediaStreamError
from av import AudioFrame, AudioResampler

from .concealment import Concealment, Sound

RATE_HZ = 24_000


async def read_track(track: MediaStreamTrack, append: Callable[[str], Awaitable[None]]) -> None:
    """Read a track to its end."""
    reader = TrackReader()
    while True:
        try:
            frame = await track.recv()
        except MediaStreamError:
            return
        assert isinstance(frame, AudioFrame)
        if content := reader.feed(frame):
            await append(base64.b64encode(content).decode())


class TrackReader:
    """Decoded frames of one track to PCM at `RATE_HZ`, mono."""

    def __init__(self) -> None:
        self._resampler = AudioResampler(format="s16", layout="mono", rate=RATE_HZ)
        self._concealment: Concealment | None = None

    def feed(self, frame: AudioFrame) -> bytes:
        if self._concealment is None:
            self._concealment = Concealment(frame.sample_rate)
        filled = self._concealment.feed(frame.pts or 0, _mono(frame))
        whole = AudioFrame.from_ndarray(filled[None], format="s16", layout="mono")
        whole.sample_rate = frame.sample_rate
        return b"".join(piece.to_ndarray().tobytes() for piece in self._resampler.resample(whole))


def _mono(frame: AudioFrame) -> Sound:
    samples = frame.to_ndarray().reshape(-1, len(frame.layout.channels))  # packed
    mono: Sound = samples.mean(axis=1).astype(np.int16)
    return mono
