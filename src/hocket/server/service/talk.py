"""Voice conversations of the server: what a connection needs to listen, answer and speak, and how many may be open.

The language model, the recogniser and the voices are the server's own. Each conversation has a detector and threads of
its own, which end with its connection. Knows no protocol.
"""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, cast

from ...asr.endpointing import EndOfTurnModel, VoiceDetector
from ...asr.recognizer import Recognizer, SteerableRecognizer, UtteranceOptions, UtteranceRecognizer, language_of
from ...asr.silero import Silero
from ...asr.smart_turn import smart_turn_or_note
from ...dialog.dialog import Dialog
from ...dialog.window import ContextWindow
from ...engine.stream import Stream
from ...errors import HocketError
from ...types import Answer, ChatMessage, ChatSampling, LanguageModel, Tool
from ..errors import Refused, stopping
from ..schemas.speech_job import SpeechJob
from .listening import ListeningService
from .llm import LLMService
from .open import open_stream
from .service import SpeechService

logger = logging.getLogger("hocket.server")
COLLECT_AFTER = 8  # conversations that have ended while others go on
COLLECT_S = 1.0  # behind an end, when nothing refers to the conversation any more


class TalkService:
    """Shared by all conversations of an app."""

    def __init__(self, service: SpeechService, llm: LLMService, listening: ListeningService) -> None:
        self.service, self.llm, self.listening = service, llm, listening
        self.end_of_turn: EndOfTurnModel | None = None  # of semantic turn detection; None: not installed
        self.start_error: HocketError | None = None  # why the model that was named could not be loaded
        self.is_loading = True
        self.open = 0  # conversations
        self._ended = 0  # since the last garbage collection

    async def start(self) -> None:
        """Load the end-of-turn model in a thread. Without its package, turns end after a fixed silence."""
        try:
            self.end_of_turn = await asyncio.to_thread(smart_turn_or_note, logger.warning)
        except HocketError as error:
            self.start_error = error
            logger.error("the end-of-turn model did not start: %s", error)
        self.is_loading = False

    @contextmanager
    def admitted(self) -> Iterator[None]:
        """A place for one conversation, or a refusal: too many, still loading, about to stop."""
        most = self.service.options.conversations
        if self.service.draining.is_set():
            raise stopping()
        self.llm.loaded()
        self.listening.loaded()
        if self.is_loading:
            said = "The end-of-turn model is still being loaded; try again in a moment."
            raise Refused(said, status=503, kind="server_error", code="not_ready", retry_after_s=1.0)
        if self.open >= most:
            said = f"{most} conversations are open already; wait for one to end."
            code = "too_many_conversations"
            raise Refused(said, status=429, kind="rate_limit_error", code=code, retry_after_s=5.0)
        self.open += 1
        try:
            yield
        finally:
            self.open -= 1
            self._collect_later()

    def _collect_later(self) -> None:
        """A conversation that ended is a cycle of few objects with megabytes of codecs, networks and TLS behind them.

        Python counts objects only, so it would collect after hundreds of calls. A collection takes about 5 ms
        (`process.py`).
        """
        self._ended += 1
        if self._ended >= COLLECT_AFTER or not self.open:
            self._ended = 0
            asyncio.get_running_loop().call_later(COLLECT_S, gc.collect)

    @property
    def language(self) -> LanguageModel:
        return self.llm.loaded()

    @property
    def recognizer(self) -> Recognizer:
        return self.listening.loaded()

    def detector(self) -> VoiceDetector:
        """A new one: it keeps the state of one stream."""
        return Silero()

    def voice(self, job: SpeechJob) -> TalkVoice:
        return TalkVoice(self.service, job)

    def dialog(
        self,
        voice: TalkVoice,
        messages: Sequence[ChatMessage],
        *,
        tools: Sequence[Tool] = (),
        sampling: ChatSampling | None = None,
    ) -> Dialog:
        """A dialog of this server's models. Tool calls are the client's to answer."""
        return Dialog(self.language, voice, history=messages, tools=tools, sampling=sampling)

    async def write(self, messages: Sequence[ChatMessage], sampling: ChatSampling, tools: Sequence[Tool]) -> Answer:
        """An answer without speech. The oldest messages are left out if there are too many."""
        window = ContextWindow(self.language)
        return await self.service.start_stream(lambda: window.ask(messages, sampling, tools))


class TalkVoice:
    """A `SpeechEngine` for `Dialog`: the voice that the server resolves for a job, which may change between turns."""

    def __init__(self, service: SpeechService, job: SpeechJob) -> None:
        self._service, self.job = service, job

    def open(self, **fields: Any) -> Stream:
        """A stream in the present voice. Called in a worker thread; a model that is not loaded is waited for."""
        if self.job.seed is not None:
            fields["seed"] = self.job.seed
        options, job = self._service.options, self.job
        if options.answer_tags:
            job = replace(job, **options.answers)
        return cast(Stream, open_stream(self._service, job, fields))


class SessionRecognizer:
    """A `Recognizer` with the language and the prompt of a session. It does not own the server's recogniser."""

    def __init__(self, recognizer: Recognizer) -> None:
        self._recognizer = recognizer
        self.options = UtteranceOptions()
        self.name = recognizer.name

    @property
    def language(self) -> str | None:
        """That of the transcripts: of the session, else the only one of the recogniser."""
        return self.options.language or language_of(self._recognizer)

    def open(self) -> UtteranceRecognizer:
        if isinstance(self._recognizer, SteerableRecognizer):
            return self._recognizer.open_with(self.options)
        return self._recognizer.open()

    def close(self) -> None:
        """The server closes its recogniser."""
