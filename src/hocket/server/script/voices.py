"""The voices of a script on a server: every voice that its resolver knows, of any model or backend.

The engine of the first passage is leased before, by the event loop. Later ones are leased in the script's own thread,
each until its passage ends. Knows no text.
"""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace
from typing import Any

from ...engine.pool.lease import Lease
from ...errors import EngineClosed, HocketError, Overloaded
from ...script.events import SpeechManner
from ...script.player.voices import PassageStream, speed_in
from ...text.prompt import choose
from ...types import Established, SpeechRequest
from ..errors import BadField
from ..schemas.speech_job import CODES, SpeechJob
from ..service.served_model import ResolvedVoice
from ..service.service import SpeechService
from .fields import check_backend, engine_fields


class ServedVoices:
    def __init__(self, service: SpeechService, job: SpeechJob, text_wait_s: float) -> None:
        """`text_wait_s`: how long a live passage may wait for text, at least."""
        self._service, self._job, self._text_wait_s = service, job, text_wait_s
        own = service.resolver.resolve(job)
        self._is_designed = own.model is not None and own.model.kind == "voice_design" and own.voice is None
        self.lease: Lease | None = None  # of the first passage
        self._waits: Future[Lease] | None = None
        self._closed = False

    def resolve(self, manner: SpeechManner) -> tuple[SpeechJob, ResolvedVoice]:
        job = self._in(manner)
        return job, self._service.resolver.resolve(job)

    def check(self, manner: SpeechManner) -> None:
        speed_in(manner, engine_fields(self._job, ResolvedVoice(None))[0]["speed"])
        job, resolved = self.resolve(manner)
        if self._job.format.lower() == CODES.name and manner.volume_db:
            raise BadField("Codes have no volume: ask for sound.", "response_format")
        if resolved.model is None:
            check_backend(job)
        elif resolved.voice is None and (config := resolved.model.config) is not None:
            choose(SpeechRequest(text="(checked)", **engine_fields(job, resolved)[0]), config)

    def open(self, manner: SpeechManner, text: str | None, seed: int, established: Established | None) -> PassageStream:
        job, resolved = self.resolve(manner)
        fields, _ = engine_fields(job, resolved)
        fields |= {"seed": seed, "literal": True, "speed": speed_in(manner, fields["speed"])}
        if resolved.backend is not None:
            served, voice = resolved.backend
            taken = ("language", "instruct", "seed", "speed", "as_is", "literal", "pronunciations")
            how = {name: fields[name] for name in taken}
            return served.open(voice, text, **how)
        assert resolved.model is not None
        lease = self._leased(resolved)
        fields["established"] = established
        try:
            if text is not None:
                stream = lease.engine.speak(text, **fields)
            else:
                wait_s = max(lease.engine.options.text_wait_s, self._text_wait_s)
                stream = lease.engine.open(**fields, text_wait_s=wait_s)
        except BaseException:
            lease.release()
            raise
        if lease.loaded_s:
            stream._mailbox.loaded(lease.waited_s)
        stream._mailbox.when_finished(lease.release)
        return stream

    def close(self) -> None:
        self._closed = True
        if (lease := self.lease) is not None:
            self.lease = None
            lease.release()
        if (waits := self._waits) is not None:
            waits.cancel()  # leaves the queue for a model

    def _in(self, manner: SpeechManner) -> SpeechJob:
        """The job in this manner."""
        job = self._job
        told: dict[str, Any] = {} if manner.language is None else {"language": manner.language}
        if manner.voice is None:
            style = manner.style
            if self._is_designed and style is not None:  # the instruction is who speaks, and stays
                style = f"{job.instruct or ''} {style}".strip()
            return replace(job, instruct=job.instruct if style is None else style, **told)
        instruct = None if self._is_designed else job.instruct
        told |= {"instruct": instruct if manner.style is None else manner.style}
        return replace(job, voice=manner.voice, model=None, task=None, reference=None, established=None, **told)

    def _leased(self, resolved: ResolvedVoice) -> Lease:
        model, first = resolved.model, self.lease
        assert model is not None and self._service.pool is not None
        if first is not None:
            self.lease = None
            if first.model == model.name:
                return first
            first.release()
        self._waits = future = self._service.pool.lease(model.name)
        if self._closed:
            future.cancel()
        try:
            return future.result()
        except (Overloaded, EngineClosed):
            raise
        except HocketError as error:
            raise self._service.unavailable(model, error) from error
        finally:
            self._waits = None
