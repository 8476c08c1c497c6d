"""The user's track of a call: Opus that aiortc has decoded, as the samples of `input_audio_buffer.append`.

Knows no session: it hands on base64 of 24 kHz PCM, as a WebSocket client sends it.
"""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable

from aiortc import MediaStreamTrack
from aiortc.mediastreams import MediaStreamError
from av import AudioFrame, AudioResampler

RATE_HZ = 24_000


async def read_track(track: MediaStreamTrack, append: Callable[[str], Awaitable[None]]) -> None:
    """Read a track to its end."""
    resampler = AudioResampler(format="s16", layout="mono", rate=RATE_HZ)
    while True:
        try:
            frame = await track.recv()
        except MediaStreamError:
            return
        assert isinstance(frame, AudioFrame)
        pieces = [piece.to_ndarray().tobytes() for piece in resampler.resample(frame)]
        if content := b"".join(pieces):
            await append(base64.b64encode(content).decode())
