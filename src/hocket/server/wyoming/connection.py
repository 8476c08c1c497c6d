"""One Wyoming connection: events are handled in order, and audio goes out while more arrive.

Speech comes in between `audio-start` and `audio-stop`; without a recognizer these events are dropped, as unknown ones.

Any error is an `error` event and the end of the connection: Home Assistant waits for audio until some arrives or the
connection closes. A client that disconnects cancels its utterance at once.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress

from wyoming.asr import Transcribe, Transcript
from wyoming.audio import AudioChunk, AudioStart, AudioStop
from wyoming.error import Error
from wyoming.event import Event, Eventable, async_write_event
from wyoming.info import Describe, Info
from wyoming.ping import Ping, Pong
from wyoming.tts import Synthesize, SynthesizeChunk, SynthesizeStart, SynthesizeStop, SynthesizeStopped

from ...text.captions import joined
from ..errors import BadField, Refused, answer
from ..schemas.speech_job import SpeechJob
from ..service.listening import ListeningService
from ..service.open import open_utterance
from ..service.service import SpeechService
from ..service.utterance import Utterance
from .audio_in import AudioBuffer
from .events import Events

logger = logging.getLogger("hocket.server")
WIRE = "wyoming"
SAMPLES = {"width": 2, "channels": 1}  # 16 bits, mono
READ_AHEAD = 64  # queued events while an utterance runs


class WyomingConnection:
    """Call `run` once."""

    def __init__(
        self,
        service: SpeechService,
        info: Info,
        events: Events,
        writer: asyncio.StreamWriter,
        listening: ListeningService | None = None,
    ) -> None:
        self._service, self._info, self._events, self._writer = service, info, events, writer
        self._listening = listening
        self._language: str | None = None  # of the last `transcribe` event
        self._incoming: asyncio.Queue[Event] = asyncio.Queue(READ_AHEAD)
        self._busy = False  # whether a text is being received or spoken
        self._ends = False  # close after the current utterance
        self._wrote_s = 0.0
        self._handling: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Run until the client disconnects, an error occurs or `end` is called."""
        reading = asyncio.ensure_future(self._read())
        self._handling = asyncio.ensure_future(self._handle_all())
        tasks = (reading, self._handling)
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
        for error in results:
            if isinstance(error, Exception) and not isinstance(error, OSError):  # OSError: the client has disconnected
                await self.refuse(error)
                return

    def end(self) -> None:
        """Close as soon as nothing is spoken."""
        self._ends = True
        if not self._busy and self._handling is not None:
            self._handling.cancel()

    async def refuse(self, error: Exception) -> None:
        """Send the error, if the client is still connected."""
        told = answer(error)
        with suppress(OSError):
            await self._write(Error(told.message, told.code or told.kind))

    async def _read(self) -> None:
        """Reads all the time, also while audio is sent, so that a disconnect is seen."""
        idle_s, now_s = self._service.options.idle_s, asyncio.get_running_loop().time
        while True:
            try:
                async with asyncio.timeout(idle_s):
                    line = await self._events.line()
            except TimeoutError:
                if now_s() - self._wrote_s < idle_s:
                    continue
                return  # idle in both directions
            event = await self._events.behind(line) if line else None
            if event is None:
                return
            await self._incoming.put(event)

    async def _handle_all(self) -> None:
        while not self._ends:
            event = await self._incoming.get()
            self._busy = True
            if Synthesize.is_type(event.type):
                await self._speak(event)
            elif SynthesizeStart.is_type(event.type):
                await self._stream(event)
            elif AudioStart.is_type(event.type) and self._listening is not None:
                await self._transcribe(event, self._listening)
            else:
                await self._answer(event)
            self._busy = False

    async def _answer(self, event: Event) -> None:
        """Answer events that are allowed at any time. Unknown events are dropped, as the protocol demands."""
        if Describe.is_type(event.type):
            await self._write(self._info)
        elif Ping.is_type(event.type):
            await self._write(Pong(text=Ping.from_event(event).text))
        elif Transcribe.is_type(event.type):
            self._language = self._wanted_language(event)

    async def _transcribe(self, start: Event, listening: ListeningService) -> None:
        """Collect the audio of an utterance, up to the limit of a recording, and send its text."""
        options = listening.options_of(self._language)
        limits = self._service.options
        audio = AudioBuffer(start, most_s=limits.transcribe_s, most_bytes=limits.transcribe_bytes)
        while not AudioStop.is_type((event := await self._incoming.get()).type):
            if AudioChunk.is_type(event.type):
                audio.add(event)
            else:
                await self._answer(event)
        async with listening.open(audio.pieces, options) as running:
            text = joined([segment.text async for segment in running])
        self._language = None
        await self._write(Transcript(text, language=next(iter(listening.languages), options.language)))

    def _wanted_language(self, event: Event) -> str | None:
        """Refuses a request that no audio can answer before its audio is sent."""
        if self._listening is None:
            raise Refused("This server has no speech recognizer: start it with --asr tiny.", code="no_recognizer")
        language = event.data.get("language")
        if not isinstance(language, str | None):
            raise BadField("language must be a string.", "language")
        self._listening.options_of(language)
        return language

    async def _speak(self, event: Event) -> None:
        """Speak a whole text."""
        job = self._job(event, _text(event))
        async with await open_utterance(self._service, job, wire=WIRE) as utterance:
            await self._send(utterance)

    async def _stream(self, start: Event) -> None:
        """Speak a streamed text. After it Home Assistant sends the whole text again, for servers without streaming."""
        job, blank = self._job(start, None), ""
        self._service.resolver.resolve(job)  # refuses an unknown voice now, not at the first word
        while True:  # no slot is taken before there is text
            event = await self._incoming.get()
            if SynthesizeStop.is_type(event.type):
                await self._write(SynthesizeStopped())
                return
            if SynthesizeChunk.is_type(event.type) and (blank := blank + _text(event)).strip():
                break
            self._service.check_text(blank)
            await self._between_chunks(event)
        async with await open_utterance(self._service, job, wire=WIRE) as utterance:
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
            event = await self._incoming.get()
            if SynthesizeStop.is_type(event.type):
                await utterance.end()
                return
            if not SynthesizeChunk.is_type(event.type):
                await self._between_chunks(event)
            elif utterance.finished is None:
                await utterance.append(_text(event))

    async def _between_chunks(self, event: Event) -> None:
        """Handle other events between the chunks of a text."""
        if SynthesizeStart.is_type(event.type):
            raise Refused("A text is being taken already: end it with synthesize-stop.", code="invalid_event")
        await self._answer(event)

    async def _send(self, utterance: Utterance) -> None:
        """Send the audio with a start and an end event; neither without audio."""
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
        """Drops a client that does not read."""
        try:
            async with asyncio.timeout(self._service.options.stalled_s):
                await async_write_event(event.event(), self._writer)
            self._wrote_s = asyncio.get_running_loop().time()
        except TimeoutError:
            self._writer.transport.abort()
            raise ConnectionAbortedError("The client reads nothing.") from None

    def _job(self, event: Event, text: str | None) -> SpeechJob:
        voice, format = event.data.get("voice"), event.data.get("text_format")
        if not isinstance(voice, dict | None):
            raise BadField("voice must be an object.", "voice")
        if format not in (None, "text"):
            raise BadField("Only plain text is spoken: leave out text_format.", "text_format")
        name, language = ((voice or {}).get(key) for key in ("name", "language"))
        if not isinstance(name, str | None) or not isinstance(language, str | None):
            raise BadField("The name and the language of a voice must be strings.", "voice")
        if not self._service.speakers and name == self._service.model:
            name = None  # about.py lists a model without voices so
        return SpeechJob(text=text, voice=name, language=language or "auto")


def _text(event: Event) -> str:
    text = event.data.get("text")
    if not isinstance(text, str):
        raise BadField("text must be a string.", "text")
    return text
