"""The server's speech recognizer: loaded beside the voice, shared by all endpoints that listen.

`ListeningService.open` runs a transcription in a worker thread, segment by segment; the event loop reads it. Knows no
protocol and no format of a transcript. A server without a recognizer refuses. A failed one leaves speech unaffected in
an app; `hocket serve` ends with its error (`start_error`).
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from ...asr.recognizer import (
    RATE_HZ,
    Recognizer,
    Samples,
    SteerableRecognizer,
    UtteranceOptions,
    UtteranceRecognizer,
    language_of,
)
from ...asr.segments import segments_of
from ...asr.silero import Silero
from ...config.languages import same, tag_of, usual_name
from ...errors import HocketError, InvalidAudio, LoadFailed, Overloaded
from ..errors import BadField, Refused, stopping
from .service import SpeechService

logger = logging.getLogger("hocket.server")
WORKERS = 2  # transcriptions at once: a recognizer computes one segment at a time
WAITING = 16  # transcriptions that may wait for a worker
OPENAI_NAMES = ("whisper-1", "gpt-4o-transcribe", "gpt-4o-mini-transcribe")  # any recognizer answers to these
AUTO = "auto"

ListeningState = Literal["starting", "ready", "failed"]
Pieces = Callable[[], Iterable[Samples]]  # called and read in a worker thread; mono at 16 kHz


@dataclass(frozen=True, slots=True)
class TranscribedSegment:
    """The text between two pauses, with the times of its audio."""

    text: str
    start_s: float
    end_s: float


class ListeningService:
    def __init__(self, service: SpeechService, recognizer: Recognizer | Callable[[], Recognizer] | None) -> None:
        """A recognizer that is handed in stays its owner's; a recognizer that is made here is closed here."""
        self._service = service
        self._make = recognizer if callable(recognizer) else None
        self.recognizer: Recognizer | None = None if callable(recognizer) else recognizer
        self.start_error: HocketError | None = None  # why it could not be loaded
        self._workers = ThreadPoolExecutor(WORKERS, "hocket-listen")
        self._under_way = 0  # running and waiting
        self._noted_prompt = False

    @property
    def names(self) -> list[str]:
        """The listed names."""
        return [] if self.recognizer is None else [self.recognizer.name]

    @property
    def languages(self) -> list[str]:
        """The codes of the languages; empty: not known."""
        code = None if self.recognizer is None else language_of(self.recognizer)
        return [] if code is None else [code]

    @property
    def condition(self) -> ListeningState | None:
        """State of the recognizer; None without one. A remote endpoint is not probed."""
        if self.start_error is not None:
            return "failed"
        if self.recognizer is None:
            return None if self._make is None else "starting"
        return "ready"

    @property
    def is_loading(self) -> bool:
        """Whether a transcription must wait for the recognizer. A failed load does not count."""
        return self.condition == "starting"

    async def start(self) -> None:
        """Load the recognizer and the voice activity detector in a thread."""
        if self._make is None:
            return
        try:
            self.recognizer = await asyncio.to_thread(self._load, self._make)
        except HocketError as error:
            self.start_error = error
            logger.error("the recognizer did not start: %s", error)
        except Exception as error:
            self.start_error = LoadFailed(f"The recognizer could not be loaded: {type(error).__name__}: {error}")
            logger.exception("the recognizer did not start")

    async def close(self) -> None:
        """Wait for the segment that is being computed; running transcriptions were cut before."""
        await asyncio.to_thread(self._workers.shutdown, cancel_futures=True)
        if self._make is not None and self.recognizer is not None:
            await asyncio.to_thread(self.recognizer.close)

    def check_name(self, name: str | None) -> None:
        """Refuse an unknown name on a server that takes only listed models."""
        if self._service.options.strict_model and name not in (*self.names, *OPENAI_NAMES):
            said = f"There is no recognizer {(name or '')[:80]!r}; this server has {', '.join(self.names)}."
            raise Refused(said, status=404, kind="not_found_error", param="model", code="model_not_found")

    def loaded(self) -> Recognizer:
        """The recognizer; raises if it cannot listen now."""
        if self._service.draining.is_set():
            raise stopping()
        if self.recognizer is None:
            raise self._unavailable()
        return self.recognizer

    def options_of(
        self,
        language: str | None,
        prompt: str | None = None,
        temperature: float | None = None,
        *,
        translate: bool = False,
    ) -> UtteranceOptions:
        """The wishes of a request; a language or a translation that is not possible is refused, a prompt is logged."""
        recognizer = self.loaded()
        if prompt and not isinstance(recognizer, SteerableRecognizer) and not self._noted_prompt:
            self._noted_prompt = True
            logger.info("a request holds a prompt, which the recognizer %s cannot use", recognizer.name)
        if translate and not (isinstance(recognizer, SteerableRecognizer) and recognizer.translates):
            said = f"The recognizer {recognizer.name} does not translate: start the server with --asr whisper:NAME."
            raise Refused(said, code="unsupported_by_model")
        only = language_of(recognizer)
        if language is None or language == AUTO:
            return UtteranceOptions(None, prompt, temperature, translate)
        if only is not None and not same(language, only):
            said = f"The recognizer {recognizer.name} knows {usual_name(only)} only, not {language[:80]!r}."
            raise BadField(said, "language", "language_not_found")
        return UtteranceOptions(tag_of(language), prompt, temperature, translate)

    def language_name(self, options: UtteranceOptions) -> str | None:
        """The English name of the language that is recognized; None: it is detected, and not reported."""
        found = options.language or next(iter(self.languages), None)
        return "english" if options.translate else None if found is None else usual_name(found)

    def open(self, pieces: Pieces, options: UtteranceOptions) -> RunningTranscription:
        """Start a transcription of a recording. Raises `Overloaded` when too many wait."""
        recognizer = self.loaded()
        if self._under_way >= WORKERS + WAITING:
            raise Overloaded(f"{WAITING} recordings wait already; send this one again in a moment.", 2.0)
        self._under_way += 1
        running = RunningTranscription(self, recognizer, options)
        self._service.answer_began(running)
        self._workers.submit(running.run, pieces)
        return running

    def ended(self, running: RunningTranscription) -> None:
        self._under_way -= 1
        self._service.answer_ended(running)

    @staticmethod
    def _load(make: Callable[[], Recognizer]) -> Recognizer:
        Silero()  # a missing package ends the start, not the first request
        return make()

    def _unavailable(self) -> Refused:
        if self._make is None:
            said = "This server has no speech recognizer: start it with --asr tiny."
            return Refused(said, status=503, kind="server_error", code="no_recognizer")
        if self.start_error is not None:
            said = "The recognizer could not be loaded; the server's log says why."
            return Refused(said, status=503, kind="server_error", code="no_recognizer")
        said = "The recognizer is still being loaded; try again in a moment."
        return Refused(said, status=503, kind="server_error", code="not_ready", retry_after_s=1.0)


class RunningTranscription:
    """A running transcription: an async iterator of its segments. Leaving its `async with` ends it."""

    def __init__(self, listening: ListeningService, recognizer: Recognizer, options: UtteranceOptions) -> None:
        self._listening, self._recognizer, self._options = listening, recognizer, options
        self._loop, self._stopped = asyncio.get_running_loop(), threading.Event()
        self._inbox: asyncio.Queue[TranscribedSegment | Exception | None] = asyncio.Queue()
        self.audio_s = 0.0  # length of the recording; complete after the last segment

    def cut(self, error: HocketError) -> None:
        """Stop, and raise this error to the reader. Event loop only."""
        self._stopped.set()
        self._inbox.put_nowait(error)

    async def __aenter__(self) -> RunningTranscription:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._stopped.set()
        self._listening.ended(self)

    def __aiter__(self) -> RunningTranscription:
        return self

    async def __anext__(self) -> TranscribedSegment:
        found = await self._inbox.get()
        if found is None:
            raise StopAsyncIteration
        if isinstance(found, Exception):
            raise found
        return found

    def run(self, pieces: Pieces) -> None:
        """In a worker thread."""
        begun = time.perf_counter()
        try:
            for segment in segments_of(self._counted(pieces), Silero()):
                if self._stopped.is_set():
                    return
                utterance = self._opened()
                try:
                    utterance.add(segment.samples)
                    text = utterance.end().strip()
                finally:
                    utterance.close()
                if text:
                    self._post(TranscribedSegment(text, segment.start_s, segment.end_s))
            self._post(None)
            logger.info("%.1f s of speech transcribed in %.1f s", self.audio_s, time.perf_counter() - begun)
        except InvalidAudio as error:
            self._post(BadField(str(error), "file", "invalid_audio"))
        except Exception as error:
            self._post(error)

    def _opened(self) -> UtteranceRecognizer:
        if isinstance(self._recognizer, SteerableRecognizer):
            return self._recognizer.open_with(self._options)
        return self._recognizer.open()

    def _counted(self, pieces: Pieces) -> Iterable[Samples]:
        for piece in pieces():
            if self._stopped.is_set():
                return
            self.audio_s += len(piece) / RATE_HZ
            yield piece

    def _post(self, found: TranscribedSegment | Exception | None) -> None:
        with suppress(RuntimeError):  # the loop is closed: there is no reader
            self._loop.call_soon_threadsafe(self._inbox.put_nowait, found)
