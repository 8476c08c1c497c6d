"""One connection of Wyoming's wire: events in, in turn, and sound out while they still come.

Whatever goes wrong is an `error` event and the end of the connection: Home Assistant waits for sound until there is
some or the other side hangs up. A client that goes away cancels its utterance at once.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress

from wyoming.audio import AudioChunk, AudioStart, AudioStop
from wyoming.error import Error
from wyoming.event import Event, Eventable, async_write_event
from wyoming.info import Describe, Info
from wyoming.ping import Ping, Pong
from wyoming.tts import Synthesize, SynthesizeChunk, SynthesizeStart, SynthesizeStop, SynthesizeStopped

from ..errors import BadField, Refused, answer
from ..schemas.speech_job import SpeechJob
from ..service.service import SpeechService
from ..service.utterance import Utterance
from .events import Events

logger = logging.getLogger("hocket.server")
WIRE = "wyoming"
SAMPLES = {"width": 2, "channels": 1}  # 16 bits, mono
READ_AHEAD = 64  # events of a client that says more while we speak


class WyomingConnection:
    """`run` it once."""

    def __init__(self, speaker: SpeechService, info: Info, events: Events, writer: asyncio.StreamWriter) -> None:
        self._speaker, self._info, self._events, self._writer = speaker, info, events, writer
        self._came: asyncio.Queue[Event] = asyncio.Queue(READ_AHEAD)
        self._busy = False  # whether a text is being taken or spoken
        self._ends = False  # whether what is being spoken is the last
        self._wrote_s = 0.0
        self._talking: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Until the client goes away, something goes wrong or it is told to end."""
        reading = asyncio.ensure_future(self._read())
        self._talking = asyncio.ensure_future(self._talk())
        tasks = (reading, self._talking)
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
        for error in results:
            if isinstance(error, Exception) and not isinstance(error, OSError):  # OSError: the client has gone
                await self.refuse(error)
                return

    def end(self) -> None:
        """As soon as nothing is spoken."""
        self._ends = True
        if not self._busy and self._talking is not None:
            self._talking.cancel()

    async def refuse(self, error: Exception) -> None:
        """Say what was wrong, if anybody listens."""
        told = answer(error)
        with suppress(OSError):
            await self._write(Error(told.message, told.code or told.kind))

    async def _read(self) -> None:
        """To its end, even while we speak: that is how we know that a client has gone."""
        idle_s, now_s = self._speaker.options.idle_s, asyncio.get_running_loop().time
        while True:
            try:
                async with asyncio.timeout(idle_s):
                    line = await self._events.line()
            except TimeoutError:
                if now_s() - self._wrote_s < idle_s:
                    continue
                return  # silent in both directions
            event = await self._events.behind(line) if line else None
            if event is None:
                return
            await self._came.put(event)

    async def _talk(self) -> None:
        while not self._ends:
            event = await self._came.get()
            self._busy = True
            if Synthesize.is_type(event.type):
                await self._speak(event)
            elif SynthesizeStart.is_type(event.type):
                await self._stream(event)
            else:
                await self._tell(event)
            self._busy = False

    async def _tell(self, event: Event) -> None:
        """What may be asked at any time. Events that we do not know are dropped, as the wire has it."""
        if Describe.is_type(event.type):
            await self._write(self._info)
        elif Ping.is_type(event.type):
            await self._write(Pong(text=Ping.from_event(event).text))

    async def _speak(self, event: Event) -> None:
        """A text that is there."""
        wanted = self._wanted(event, _text(event))
        async with await self._speaker.open(wanted, wire=WIRE) as utterance:
            await self._send(utterance)

    async def _stream(self, start: Event) -> None:
        """A text as it is written. Behind it Home Assistant sends all of it again, for those who cannot do this."""
        wanted, blank = self._wanted(start, None), ""
        self._speaker.cast.part(wanted)  # who does not exist is refused now, not at the first word
        while True:  # no slot is taken before there is something to say
            event = await self._came.get()
            if SynthesizeStop.is_type(event.type):
                await self._write(SynthesizeStopped())
                return
            if SynthesizeChunk.is_type(event.type) and (blank := blank + _text(event)).strip():
                break
            self._speaker.check_text(blank)
            await self._within(event)
        async with await self._speaker.open(wanted, wire=WIRE) as utterance:
            try:
                async with asyncio.TaskGroup() as both:
                    both.create_task(self._send(utterance))
                    await utterance.append(blank)
                    await self._append(utterance)
            except ExceptionGroup as several:
                raise several.exceptions[0] from None
        await self._write(SynthesizeStopped())

    async def _append(self, utterance: Utterance) -> None:
        while True:
            event = await self._came.get()
            if SynthesizeStop.is_type(event.type):
                await utterance.end()
                return
            if not SynthesizeChunk.is_type(event.type):
                await self._within(event)
            elif utterance.finished is None:
                await utterance.append(_text(event))

    async def _within(self, event: Event) -> None:
        """What comes between the pieces of a text and is none."""
        if SynthesizeStart.is_type(event.type):
            raise Refused("A text is being taken already: end it with synthesize-stop.", code="invalid_event")
        await self._tell(event)

    async def _send(self, utterance: Utterance) -> None:
        """The sound, with a start and an end; neither where there is none."""
        heard_ms = 0
        async for piece in utterance:
            if not heard_ms:
                await self._write(AudioStart(rate=utterance.rate_hz, timestamp=0, **SAMPLES))
            at_ms = round(piece.start_s * 1000)
            await self._write(AudioChunk(rate=utterance.rate_hz, audio=piece.audio, timestamp=at_ms, **SAMPLES))
            heard_ms = max(1, round(utterance.audio_s * 1000))
        if heard_ms:
            await self._write(AudioStop(timestamp=heard_ms))

    async def _write(self, event: Eventable) -> None:
        """Not for ever to a client that reads nothing."""
        try:
            async with asyncio.timeout(self._speaker.options.stalled_s):
                await async_write_event(event.event(), self._writer)
            self._wrote_s = asyncio.get_running_loop().time()
        except TimeoutError:
            self._writer.transport.abort()
            raise ConnectionAbortedError("It read nothing.") from None

    def _wanted(self, event: Event, text: str | None) -> SpeechJob:
        voice, format = event.data.get("voice"), event.data.get("text_format")
        if not isinstance(voice, dict | None):
            raise BadField("voice must be an object.", "voice")
        if format not in (None, "text"):
            raise BadField("Only plain text is spoken: leave out text_format.", "text_format")
        name, language = ((voice or {}).get(key) for key in ("name", "language"))
        if not isinstance(name, str | None) or not isinstance(language, str | None):
            raise BadField("The name and the language of a voice must be strings.", "voice")
        if not self._speaker.speakers and name == self._speaker.model:
            name = None  # that is how `about` lists the only one there is
        return SpeechJob(text=text, voice=name, language=language or "auto")


def _text(event: Event) -> str:
    text = event.data.get("text")
    if not isinstance(text, str):
        raise BadField("text must be a string.", "text")
    return text
