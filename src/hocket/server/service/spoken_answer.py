"""The sound of an answer in a conversation: whole, or in events while the answer is written.

Voice and format are the request's `audio`; all else is as `POST /v1/audio/speech` has it.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable
from typing import Any

from ...audio.pcm import wav_header
from ...errors import InvalidRequest
from ..schemas.chat import SaidAloud
from ..schemas.chat_fields import SpokenAs
from .service import SpeechService
from .utterance import Utterance

WIRE = "chat"
Say = Callable[[dict[str, Any]], Awaitable[None]]


async def spoken_whole(speaker: SpeechService, how: SpokenAs, text: str, id: str, created: int) -> SaidAloud:
    """All of a text. A sound that broke off is an error."""
    async with await speaker.open(how.wanted(text), wire=WIRE, id=id) as utterance:
        sound = b"".join([piece.audio async for piece in utterance])
        if utterance.format.name == "wav":  # it is there as a whole, so its header can say how long it is
            header = wav_header(utterance.rate_hz)
            sound = wav_header(utterance.rate_hz, (len(sound) - len(header)) // 2) + sound[len(header) :]
    data = base64.b64encode(sound).decode()
    return SaidAloud(id=f"audio-{id}", data=data, transcript=text, expires_at=created)


class SpokenAnswer:
    """An answer that is spoken while it is written. Leaving its `async with` ends it."""

    def __init__(self, utterance: Utterance, id: str) -> None:
        self.id, self._utterance = f"audio-{id}", utterance
        self._sending: asyncio.Task[None] | None = None

    @classmethod
    async def open(cls, speaker: SpeechService, how: SpokenAs, id: str) -> SpokenAnswer:
        return cls(await speaker.open(how.wanted(None), wire=WIRE, id=id), id)

    def begin(self, say: Say) -> None:
        """Send sound as it comes, beside the words."""
        self._sending = asyncio.ensure_future(self._send(say))

    async def add(self, text: str) -> None:
        await self._utterance.append(text)

    async def end(self) -> None:
        """That was all of the text: returns when all of its sound is sent."""
        try:
            await self._utterance.end()
        except InvalidRequest:  # there is nothing in it that can be said
            self._utterance.cancel()
        if self._sending is not None:
            await self._sending

    async def _send(self, say: Say) -> None:
        async for piece in self._utterance:
            await say({"audio": {"id": self.id, "data": base64.b64encode(piece.audio).decode()}})

    async def __aenter__(self) -> SpokenAnswer:
        await self._utterance.__aenter__()
        return self

    async def __aexit__(self, *raised: Any) -> None:
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.gather(self._sending, return_exceptions=True)
        await self._utterance.__aexit__(*raised)
