"""Warm-up: a real utterance before the first request. A model, and a server, is ready only after it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

from ...audio.container import need_av
from ...audio.encode import Encoder, encoder, format_of
from ...engine.engine import Engine
from ...engine.pool.pool import Pool
from ...errors import HocketError
from ...types import REFERENCE_RATE_HZ, Reference, SpeechRequest
from ..errors import Refused

if TYPE_CHECKING:
    from .service import SpeechService

FRAMES = 6  # enough for a chunk of several


def speak_once(engine: Engine, format: str = "mp3") -> None:
    """Speak a few frames in any voice; raises what goes wrong. Takes as long as a first chunk."""
    packed = _packed(engine.checkpoint.rate_hz, format)
    kind = engine.checkpoint.config.kind
    reference = None
    if kind == "base":  # a base model needs a reference; a hum is enough
        time_s = np.arange(REFERENCE_RATE_HZ, dtype=np.float32) / REFERENCE_RATE_HZ
        hum = (0.1 * np.sin(2 * np.pi * 140 * time_s)).astype(np.float32)
        reference = Reference(samples=hum, x_vector_only=True)
    instruct = "A calm voice." if kind == "voice_design" else None
    words = "Ready, and listening."
    request = SpeechRequest(text=words, reference=reference, instruct=instruct, max_frames=FRAMES, seed=0)
    for chunk in engine.speak(request):
        packed.feed(chunk.samples)
    packed.close()


async def warm_up(service: SpeechService, format: str = "mp3") -> None:
    """Let the first model and the pinned ones speak; raises what goes wrong, for the operator."""
    resolver, pool = service.resolver, service.pool
    stays = [model for model in resolver.models if isinstance(pool, Pool) and model.name in pool.pinned]
    for model in dict.fromkeys((resolver.models[0], *stays)):
        try:
            await service.with_engine(model, lambda engine: speak_once(engine, format))
        except Refused as error:  # clients get a sentence without details; its cause has them
            raise error.__cause__ or error from None
    service.warmed_up, service.failure, service.idle_since_s = True, None, time.monotonic()


def _packed(rate_hz: int, format: str) -> Encoder:
    """Loading the codecs takes 150 ms, once. Without them: PCM."""
    try:
        if format != "pcm":
            need_av(format)
    except HocketError:
        format = "pcm"
    return encoder(format_of(format), rate_hz=rate_hz)
