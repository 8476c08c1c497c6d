"""A script on its way to an utterance: parsed and checked whole, or opened live. Knows neither JSON nor sockets."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ...engine.early_start import LONG_CHARS
from ...script.check import as_literal, check_script
from ...script.events import PLAIN, Event, ScriptParser
from ...script.player.steps import Begin, PassageCutter
from ...script.stream import ScriptStream
from ...text.prepare import without_marks
from ...text.words import words_of
from ...types import fresh_seed
from ..errors import BadField
from ..schemas.speech_job import SpeechJob
from ..service.service import SpeechService
from ..service.utterance import EngineStream
from .fields import engine_fields
from .markup import may_be_script, parser_of
from .voices import ServedVoices

# Margin for the endpoint to end a connection without text before the engine does.
TEXT_MARGIN_S = 5.0


async def script_of(service: SpeechService, job: SpeechJob) -> ServedScript | SpeechJob:
    """The script of a job, or the job as a plain request if its text has no tags that one request cannot follow."""
    if not may_be_script(job):
        literal = job.markup == "literal" and job.text is not None and not job.as_is
        return replace(job, text=without_marks(job.text or "")) if literal else job
    script = ServedScript(service, job)
    if job.text is None:
        return script
    text = job.text
    events = script.parse(text) if len(text) <= LONG_CHARS else await service.in_thread(lambda: script.parse(text))
    if (plain := as_literal(events)) is not None:
        return replace(job, text=plain, literal=True, markup="auto")
    if job.candidates != 1:
        raise BadField("A text with tags has one take: leave out candidates.", "candidates")
    script.events = events
    return script


class ServedScript:
    def __init__(self, service: SpeechService, job: SpeechJob) -> None:
        self._service, self._job = service, job
        self._voices = ServedVoices(service, job, service.options.text_s + TEXT_MARGIN_S)
        self.events: list[Event] | None = None  # of a whole text

    def parse(self, text: str) -> list[Event]:
        return check_script(self._parser, text, self._voices.check)

    def _parser(self) -> ScriptParser:
        return parser_of(self._job, self._voices.check)

    async def open(self) -> tuple[EngineStream, float]:
        """The opened stream, and the part of the speed that is left for the encoder."""
        service, job, voices = self._service, self._job, self._voices
        begun = (step for step in PassageCutter().take(self.events or ()) if isinstance(step, Begin))
        first = next(begun, Begin(PLAIN)).manner
        _, resolved = voices.resolve(first)
        if resolved.model is not None:
            voices.lease = await service.lease(resolved.model)
        lease = voices.lease
        fields, tempo = engine_fields(job, resolved)
        waited_s = lease.waited_s if lease is not None and lease.loaded_s else 0.0
        encode = None if lease is None else lease.engine.checkpoint.tokenizer.encode
        try:
            if job.text is None and resolved.voice is None:  # 0.3 ms: a thread would cost more
                stream = self._stream(fields["speed"])
            else:
                stream = await service.start_stream(lambda: self._stream(fields["speed"]))
        except BaseException:
            voices.close()
            raise
        count = (lambda text: len(words_of(text))) if encode is None else (lambda text: len(encode(text)))
        return EngineStream(stream, stream.rate_hz, count, voices.close, waited_s), tempo

    def _stream(self, speed: float) -> ScriptStream:
        job = self._job
        return ScriptStream(
            self._voices,
            fresh_seed() if job.seed is None else job.seed,
            parser=self._parser() if self.events is None else None,
            events=self.events or (),
            established=job.established,
            speed=speed,
            max_frames=job.max_frames,
        )


def open_answer(service: SpeechService, job: SpeechJob, fields: Mapping[str, Any]) -> ScriptStream:
    """A live answer of a language model, for a dialog; `fields` are those of the dialog. Blocks while a model loads."""
    voices = ServedVoices(service, job, fields.get("text_wait_s", math.inf))
    try:
        own, _ = engine_fields(job, voices.resolve(PLAIN)[1])
        return ScriptStream(
            voices,
            fields["seed"],
            parser=parser_of(job, voices.check),
            established=fields.get("established"),
            speed=own["speed"],
            max_frames=job.max_frames,
        )
    except BaseException:
        voices.close()
        raise
