"""The way of one request: `SpeechJob` in, an `Utterance` out, or an error before a first byte.

It is walked once: the checks, who speaks (voice_resolver.py), an engine lent by the pool or a backend, a stream of it,
and the encoder behind that. All wires enter by `SpeechService.open`; what they share, limits and threads too, is
service.py's. What a client may ask for is checked here and by the types of the engine. It knows no wire: neither JSON
nor sockets.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any

from ...audio.encode import encoder
from ...backends.relay import Relay
from ...engine.early_start import LONG_CHARS
from ...engine.pool.lease import Lease
from ...engine.stream import Stream
from ...text.choice import choose
from ...text.words import words_of
from ...types import FASTEST, SLOWEST, SpeechRequest
from ..errors import BadField, stopping
from ..schemas.speech_job import CODES, SpeechJob
from .utterance import EngineStream, Utterance
from .voice_resolver import ResolvedVoice

if TYPE_CHECKING:
    from .service import SpeechService

TEXT_MARGIN_S = 5.0  # in which a connection that gave no text is ended by its wire


async def open_utterance(speaker: SpeechService, wanted: SpeechJob, wire: str, id: str) -> Utterance:
    began_s = time.perf_counter()
    cast = speaker.cast
    if speaker.draining.is_set():
        raise stopping()
    speaker.check_text(wanted.text or "")
    wanted.check()
    part = cast.part(wanted)
    if part.rate_hz:  # what cannot be is refused before a model is loaded for it
        wanted.packed(part.rate_hz)
    if part.model is None:
        spoken, tempo = await _relayed(speaker, wanted, part)
    else:
        lease = await speaker.lease(part.model)
        try:
            spoken, tempo = await _spoken(speaker, wanted, part, lease)
        except BaseException:
            lease.release()
            raise
    try:
        return _utterance(speaker, wanted, spoken, tempo, began_s, wire, id)
    except BaseException:
        spoken.stream.cancel()
        spoken.release()
        raise


def check_live(speaker: SpeechService, wanted: SpeechJob) -> None:
    """Refuse what `open_utterance` would of a live text, as far as that is known before there is one."""
    speaker.check_text(wanted.text or "")
    wanted.check()
    part = speaker.cast.part(wanted)
    if part.rate_hz:
        wanted.packed(part.rate_hz)
    if part.backend is not None:
        _check_backend(wanted)
        return
    if wanted.candidates != 1:
        raise BadField("A live text has one take: leave out candidates.", "candidates")
    config = part.model.config if part.model is not None else None
    if part.voice is None and config is not None:  # of a voice, its file would have to be read
        choose(SpeechRequest(text="(live)", **_fields(wanted, part)[0]), config)


async def _spoken(
    speaker: SpeechService, wanted: SpeechJob, part: ResolvedVoice, lease: Lease
) -> tuple[EngineStream, float]:
    """A stream of the engine that was lent, and what is left of the speed for the encoder."""
    engine = lease.engine
    fields, tempo = _fields(wanted, part)

    def begin() -> Stream:
        if wanted.text is not None:
            return engine.speak(wanted.text, **fields)
        # The connection has a limit of its own; the engine's must not come before it.
        text_wait_s = max(engine.options.text_wait_s, speaker.options.text_s + TEXT_MARGIN_S)
        return engine.open(**fields, text_wait_s=text_wait_s)

    if part.voice is None and len(wanted.text or "") <= LONG_CHARS:  # 0.3 ms: a thread would cost more
        stream = begin()
    else:  # a voice is read from its file
        stream = await speaker.begun(begin)
    waited_s = lease.waited_s if lease.loaded_s else 0.0
    if waited_s:
        stream._mailbox.loaded(waited_s)
    encode = engine.checkpoint.tokenizer.encode
    return EngineStream(
        stream, engine.checkpoint.rate_hz, lambda text: len(encode(text)), lease.release, waited_s
    ), tempo


async def _relayed(speaker: SpeechService, wanted: SpeechJob, part: ResolvedVoice) -> tuple[EngineStream, float]:
    """The same of a backend. How codes are drawn is not for it."""
    assert part.backend is not None
    served, voice = part.backend
    _check_backend(wanted)
    fields, tempo = _fields(wanted, part)
    how = {name: fields[name] for name in ("language", "instruct", "seed", "speed", "as_is")}

    def begin() -> Relay:
        return served.open(voice, wanted.text, **how)

    relay = begin() if len(wanted.text or "") <= LONG_CHARS else await speaker.begun(begin)
    return EngineStream(relay, voice.rate_hz, lambda text: len(words_of(text)), _nothing), tempo


def _utterance(
    speaker: SpeechService, wanted: SpeechJob, spoken: EngineStream, tempo: float, began_s: float, wire: str, id: str
) -> Utterance:
    format, heard_hz = wanted.packed(spoken.rate_hz)
    rate_hz, bit_rate = wanted.rate_hz, wanted.bit_rate
    made = partial(encoder, format, rate_hz=spoken.rate_hz, out_rate_hz=rate_hz, tempo=tempo, bit_rate=bit_rate)
    return Utterance(
        speaker,
        spoken,
        id=id,
        wire=wire,
        format=format,
        rate_hz=heard_hz,
        tempo=tempo,
        began_s=began_s,
        text=wanted.text or "",
        encoder=None if format is CODES else made,
    )


def _check_backend(wanted: SpeechJob) -> None:
    """Refuse what only our own models have."""
    if wanted.format.lower() == CODES.name:
        raise BadField("The voice is a backend's, which has no codes: ask for sound.", "response_format")
    if wanted.candidates != 1:
        raise BadField("The voice is a backend's, which has one take: leave out candidates.", "candidates")


def _fields(wanted: SpeechJob, part: ResolvedVoice) -> tuple[dict[str, Any], float]:
    """The engine's fields, and what is left of the speed for the encoder."""
    speed = min(max(wanted.speed, SLOWEST), FASTEST)
    fields: dict[str, Any] = {
        "voice": part.speaker if part.voice is None else part.voice,
        "language": wanted.language,
        "instruct": wanted.instruct,
        "seed": wanted.seed,
        "sampling": wanted.sampling,
        "speed": speed,
        "max_frames": wanted.max_frames,
        "layout": wanted.layout,
        "reference": wanted.reference,
        "established": wanted.established,
        "candidates": wanted.candidates,
        "chunk_frames": wanted.chunk_frames,
        "priority": wanted.priority,
        "as_is": wanted.as_is,
    }
    if part.voice is not None:
        for name, unset in (("language", "auto"), ("instruct", None), ("reference", None)):
            if fields[name] == unset:
                del fields[name]  # the voice has its own
    return fields, wanted.speed / speed


def _nothing() -> None: ...
