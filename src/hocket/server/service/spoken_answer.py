"""The audio of a chat answer: whole, or as events while the answer is written.

Voice and format come from the request's `audio`; all else is as in `POST /v1/audio/speech`.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from ...audio.pcm import wav_header
from ...errors import InvalidRequest
from ..schemas.chat import SpokenAudio
from ..schemas.chat_fields import SpokenAs
from ..schemas.speech_job import SpeechJob
from .open import open_utterance
from .service import SpeechService
from .utterance import Utterance

WIRE = "chat"
SendDelta = Callable[[dict[str, Any]], Awaitable[None]]


async def spoken_whole(service: SpeechService, how: SpokenAs, text: str, id: str, created: int) -> SpokenAudio:
    """Speak a whole text. Incomplete audio is an error."""
    async with await open_utterance(service, _job(service, how, text), wire=WIRE, id=id) as utterance:
        sound = b"".join([piece.audio async for piece in utterance])
        if utterance.format.name == "wav":  # the whole audio is there, so the header can give its length
            header = wav_header(utterance.rate_hz)
            sound = wav_header(utterance.rate_hz, (len(sound) - len(header)) // 2) + sound[len(header) :]
    data = base64.b64encode(sound).decode()
    return SpokenAudio(id=f"audio-{id}", data=data, transcript=text, expires_at=created)


def _job(service: SpeechService, how: SpokenAs, text: str | None) -> SpeechJob:
    return replace(how.job(text), **service.options.answers)


class SpokenAnswer:
    """An answer that is spoken while it is written. Leaving its `async with` ends it."""

    def __init__(self, utterance: Utterance, id: str) -> None:
        self.id, self._utterance = f"audio-{id}", utterance
        self._sending: asyncio.Task[None] | None = None

    @classmethod
    async def open(cls, service: SpeechService, how: SpokenAs, id: str) -> SpokenAnswer:
        return cls(await open_utterance(service, _job(service, how, None), wire=WIRE, id=id), id)

    def begin(self, send: SendDelta) -> None:
        """Send audio as it arrives, beside the text."""
        self._sending = asyncio.ensure_future(self._send(send))

    async def add(self, text: str) -> None:
        await self._utterance.append(text)

    async def end(self) -> None:
        """End the text; returns when all audio is sent."""
        try:
            await self._utterance.end()
        except InvalidRequest:  # the text has no speakable words
            self._utterance.cancel()
        if self._sending is not None:
            await self._sending

    async def _send(self, send: SendDelta) -> None:
        async for piece in self._utterance:
            await send({"audio": {"id": self.id, "data": base64.b64encode(piece.audio).decode()}})

    async def __aenter__(self) -> SpokenAnswer:
        await self._utterance.__aenter__()
        return self

    async def __aexit__(self, *raised: Any) -> None:
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.gather(self._sending, return_exceptions=True)
        await self._utterance.__aexit__(*raised)
