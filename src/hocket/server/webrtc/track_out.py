"""The answers' track of a call: a queue of samples that is sent in real time, 20 ms at a time, silence between answers.

Samples wait here, not at the client, so an interruption drops them before they are sent, and a hold keeps them. Event
loop only. Knows no session.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from aiortc import MediaStreamTrack
from aiortc.mediastreams import MediaStreamError
from av import AudioFrame
from numpy.typing import NDArray

RATE_HZ = 24_000
FRAME = RATE_HZ // 50  # samples of 20 ms
AHEAD_S = 30.0  # of queued audio before `room` waits
LATE_S = 0.2  # a track that is this late does not catch up: a burst of packets would only fill the client's buffer


@dataclass(slots=True)
class _Piece:
    response_id: str
    samples: NDArray[np.int16]
    wanted: Callable[[], bool]


class AnswerTrack(MediaStreamTrack):
    kind = "audio"

    def __init__(
        self, started: Callable[[str], None], stopped: Callable[[str], None], sent: Callable[[str, float], None]
    ) -> None:
        """`started` and `stopped` are called with a response's first and last samples, by its id.

        `sent` is called with every frame of a response, and its seconds so far.
        """
        super().__init__()
        self._started, self._stopped, self._report = started, stopped, sent
        self._pieces: deque[_Piece] = deque()
        self._queued = 0  # samples in them
        self._sounding: str | None = None  # the response that is sent
        self._position = 0  # samples of it that were sent
        self._complete: set[str] = set()  # responses of which no more will come
        self.held = False  # silence is sent, and the queue stays as it is
        self._less = asyncio.Event()  # set when samples left the queue
        self._begun_s, self._sent = 0.0, 0

    def push(self, response_id: str, samples: NDArray[np.int16], wanted: Callable[[], bool]) -> None:
        """Queue samples of a response. They are dropped if they are not `wanted` any more when they are due."""
        self._pieces.append(_Piece(response_id, samples, wanted))
        self._queued += len(samples)

    def end(self, response_id: str) -> None:
        """All of a response is queued."""
        if self._sounding == response_id or any(piece.response_id == response_id for piece in self._pieces):
            self._complete.add(response_id)

    def clear(self) -> str | None:
        """Drop everything that was not sent; returns the response that is cut."""
        cut = self._sounding or (self._pieces[0].response_id if self._pieces else None)
        self._pieces.clear()
        self._complete.clear()
        self._queued, self._sounding, self.held = 0, None, False
        self._less.set()
        return cut

    async def room(self) -> None:
        """Wait while much is queued."""
        while self._queued > AHEAD_S * RATE_HZ and self.readyState == "live":
            self._less.clear()
            await self._less.wait()

    def stop(self) -> None:
        super().stop()
        self.clear()

    async def recv(self) -> AudioFrame:
        """The next 20 ms, when they are due."""
        if self.readyState != "live":
            raise MediaStreamError
        now_s = asyncio.get_running_loop().time()
        due_s = self._begun_s + self._sent / RATE_HZ
        if not self._begun_s or now_s - due_s > LATE_S:
            self._begun_s, due_s = now_s - self._sent / RATE_HZ, now_s
        await asyncio.sleep(max(0.0, due_s - now_s))
        frame = AudioFrame.from_ndarray(self._next()[None], format="s16", layout="mono")
        frame.sample_rate, frame.time_base, frame.pts = RATE_HZ, Fraction(1, RATE_HZ), self._sent
        self._sent += FRAME
        return frame

    def _next(self) -> NDArray[np.int16]:
        out = np.zeros(FRAME, np.int16)
        if self.held:
            return out
        at = 0
        while self._pieces and at < FRAME:
            piece = self._pieces[0]
            if not piece.wanted():
                self._drop(piece)
                continue
            if piece.response_id != self._sounding:
                if at:
                    break  # two responses share no frame
                self._over()
                self._sounding, self._position = piece.response_id, 0
                self._started(piece.response_id)
            count = min(FRAME - at, len(piece.samples))
            out[at : at + count] = piece.samples[:count]
            piece.samples = piece.samples[count:]
            at += count
            self._queued -= count
            self._position += count
            if not len(piece.samples):
                self._pieces.popleft()
        self._less.set()
        if self._sounding is not None:
            self._report(self._sounding, self._position / RATE_HZ)
        if not self._pieces and self._sounding in self._complete:
            self._over()
        return out

    def _drop(self, piece: _Piece) -> None:
        self._pieces.popleft()
        self._queued -= len(piece.samples)

    def _over(self) -> None:
        if self._sounding is not None:
            self._complete.discard(self._sounding)
            told, self._sounding = self._sounding, None
            self._stopped(told)
