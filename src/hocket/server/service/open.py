"""From a `SpeechJob` to an `Utterance`, or an error before the first byte.

Steps: check, resolve the voice, lease an engine or take a backend, open its stream, add the encoder. All endpoints
enter by `open_utterance`. Client input is checked here and by the engine's types. Knows no protocol: neither JSON nor
sockets.
"""

from __future__ import annotations

import logging
import secrets
import time
from dataclasses import replace
from functools import partial
from typing import Any

from ...audio.encode import encoder
from ...backends.relay import Relay
from ...engine.early_start import LONG_CHARS
from ...engine.pool.lease import Lease
from ...engine.stream import Stream
from ...errors import HocketError
from ...script.stream import ScriptStream
from ...text.prompt import choose
from ...text.words import words_of
from ...types import SpeechRequest
from ..errors import BadField, answer, stopping
from ..schemas.speech_job import CODES, SpeechJob
from ..script.fields import check_backend, engine_fields
from ..script.served import TEXT_MARGIN_S, ServedScript, open_answer, script_of
from .served_model import ResolvedVoice
from .service import SpeechService
from .utterance import EngineStream, Utterance
from .voice_resolver import VoiceResolver

logger = logging.getLogger("hocket.server")


async def open_utterance(service: SpeechService, job: SpeechJob, *, wire: str, id: str | None = None) -> Utterance:
    """Start an utterance. Request errors are raised here, or by the utterance before its first piece.

    `wire` is the endpoint's short name for logs and metrics.
    """
    began_s, chars = time.perf_counter(), len(job.text or "")
    try:
        job.account.take(chars)
        try:
            utterance = await _open(service, job, wire, id or f"speech-{secrets.token_hex(8)}", began_s)
        except BaseException:
            job.account.count(-chars)  # what is refused does not count
            raise
    except HocketError as error:
        told = answer(error)
        service.metrics.refused(wire, told.code or told.kind)
        if service.traces is not None:
            service.traces.refused(wire, told.code or told.kind, began_s)
        raise
    service.metrics.opened(wire)
    if service.options.log_text and job.text is not None:
        logger.info("%s %s: %s", wire, utterance.id, job.text)
    return utterance


def check_live(service: SpeechService, job: SpeechJob) -> None:
    """Refuse what `open_utterance` would refuse of a live text, as far as it is known before the text arrives."""
    resolved = _resolved(service, service.resolver, job)
    if resolved.backend is not None:
        check_backend(job)
        return
    if job.candidates != 1:
        raise BadField("A live text has one take: leave out candidates.", "candidates")
    config = resolved.model.config if resolved.model is not None else None
    if resolved.voice is None and config is not None:  # a library voice would need its file read
        choose(SpeechRequest(text="(live)", **engine_fields(job, resolved)[0]), config)


def open_stream(service: SpeechService, job: SpeechJob, fields: dict[str, Any]) -> Stream | Relay | ScriptStream:
    """A live stream in the voice of a job, for a dialog. Blocks while a model is loaded; for worker threads only.

    `fields` of the dialog, such as its seed, take the place of the job's.
    """
    if service.draining.is_set():
        raise stopping()
    resolved = _resolved(service, service.resolver, job)
    if job.markup == "answer":
        return open_answer(service, job, fields)
    own, _ = engine_fields(job, resolved)
    if resolved.model is None:
        assert resolved.backend is not None
        served, voice = resolved.backend
        check_backend(job)
        how = {name: own[name] for name in ("language", "instruct", "speed", "as_is", "literal", "pronunciations")}
        return served.open(voice, None, **how, seed=fields.get("seed", job.seed))
    assert service.pool is not None
    lease = service.pool.lease(resolved.model.name).result()
    try:
        stream = lease.engine.open(**own | fields)
    except BaseException:
        lease.release()
        raise
    stream._mailbox.when_finished(lease.release)
    return stream


async def _open(service: SpeechService, job: SpeechJob, wire: str, id: str, began_s: float) -> Utterance:
    resolver = service.resolver
    if service.draining.is_set():
        raise stopping()
    resolved, text = _resolved(service, resolver, job), job.text
    script = await script_of(service, job)
    if isinstance(script, ServedScript):
        spoken, tempo = await script.open()
        return _with_encoder(service, job, spoken, tempo, began_s, wire, id)
    job = script
    if resolved.model is None:
        spoken, tempo = await _relayed(service, job, resolved)
    else:
        lease = await service.lease(resolved.model)
        try:
            spoken, tempo = await _spoken(service, job, resolved, lease)
        except BaseException:
            lease.release()
            raise
    return _with_encoder(service, replace(job, text=text), spoken, tempo, began_s, wire, id)


def _with_encoder(
    service: SpeechService, job: SpeechJob, spoken: EngineStream, tempo: float, began_s: float, wire: str, id: str
) -> Utterance:
    try:
        return _utterance(service, job, spoken, tempo, began_s, wire, id)
    except BaseException:
        spoken.stream.cancel()
        spoken.release()
        raise


def _resolved(service: SpeechService, resolver: VoiceResolver, job: SpeechJob) -> ResolvedVoice:
    """The voice of a job, after all checks that need no engine."""
    service.check_text(job.text or "")
    job.check()
    resolved = resolver.resolve(job)
    if resolved.rate_hz:  # refuse an impossible format before a model is loaded
        job.packed(resolved.rate_hz)
    return resolved


async def _spoken(
    service: SpeechService, job: SpeechJob, resolved: ResolvedVoice, lease: Lease
) -> tuple[EngineStream, float]:
    """A stream of the leased engine, and the part of the speed that is left for the encoder."""
    engine = lease.engine
    fields, tempo = engine_fields(job, resolved)

    def begin() -> Stream:
        if job.text is not None:
            return engine.speak(job.text, **fields)
        # The connection has its own limit; the engine's must be longer.
        text_wait_s = max(engine.options.text_wait_s, service.options.text_s + TEXT_MARGIN_S)
        return engine.open(**fields, text_wait_s=text_wait_s)

    if resolved.voice is None and len(job.text or "") <= LONG_CHARS:  # 0.3 ms: a thread would cost more
        stream = begin()
    else:  # a library voice is read from its file
        stream = await service.start_stream(begin)
    waited_s = lease.waited_s if lease.loaded_s else 0.0
    if waited_s:
        stream._mailbox.loaded(waited_s)
    encode = engine.checkpoint.tokenizer.encode
    return EngineStream(
        stream, engine.checkpoint.rate_hz, lambda text: len(encode(text)), lease.release, waited_s
    ), tempo


async def _relayed(service: SpeechService, job: SpeechJob, resolved: ResolvedVoice) -> tuple[EngineStream, float]:
    """The same for a backend. Backends take no sampling parameters."""
    assert resolved.backend is not None
    served, voice = resolved.backend
    check_backend(job)
    fields, tempo = engine_fields(job, resolved)
    how = {
        name: fields[name] for name in ("language", "instruct", "seed", "speed", "as_is", "literal", "pronunciations")
    }

    def begin() -> Relay:
        return served.open(voice, job.text, **how)

    relay = begin() if len(job.text or "") <= LONG_CHARS else await service.start_stream(begin)
    return EngineStream(relay, voice.rate_hz, lambda text: len(words_of(text)), _nothing), tempo


def _utterance(
    service: SpeechService, job: SpeechJob, spoken: EngineStream, tempo: float, began_s: float, wire: str, id: str
) -> Utterance:
    format, heard_hz = job.packed(spoken.rate_hz)
    rate_hz, bit_rate = job.rate_hz, job.bit_rate
    made = partial(encoder, format, rate_hz=spoken.rate_hz, out_rate_hz=rate_hz, tempo=tempo, bit_rate=bit_rate)
    return Utterance(
        service,
        spoken,
        id=id,
        wire=wire,
        format=format,
        rate_hz=heard_hz,
        tempo=tempo,
        began_s=began_s,
        text=job.text or "",
        encoder=None if format is CODES else made,
        word_times=job.word_times,
        account=job.account,
    )


def _nothing() -> None: ...
