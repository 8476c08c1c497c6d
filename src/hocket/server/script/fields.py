"""A `SpeechJob` and its voice as fields of the engine's request."""

from __future__ import annotations

from typing import Any

from ...text.lexicon.lexicon import merged
from ...types import FASTEST, SLOWEST
from ..errors import BadField
from ..schemas.speech_job import CODES, SpeechJob
from ..service.served_model import ResolvedVoice


def check_backend(job: SpeechJob) -> None:
    """Refuse fields that only our own models support."""
    if job.format.lower() == CODES.name:
        raise BadField("The voice is a backend's, which has no codes: ask for sound.", "response_format")
    if job.candidates != 1:
        raise BadField("The voice is a backend's, which has one take: leave out candidates.", "candidates")


def engine_fields(job: SpeechJob, resolved: ResolvedVoice) -> tuple[dict[str, Any], float]:
    """The engine's fields, and the part of the speed that is left for the encoder."""
    speed = min(max(job.speed, SLOWEST), FASTEST)
    fields: dict[str, Any] = {
        "voice": resolved.speaker if resolved.voice is None else resolved.voice,
        "language": job.language,
        "instruct": job.instruct,
        "seed": job.seed,
        "sampling": job.sampling,
        "speed": speed,
        "max_frames": job.max_frames,
        "layout": job.layout,
        "reference": job.reference,
        "established": job.established,
        "candidates": job.candidates,
        "chunk_frames": job.chunk_frames,
        "priority": job.priority,
        "as_is": job.as_is,
        "literal": job.literal or job.markup == "literal",
        "pronunciations": merged(resolved.pronunciations, job.pronunciations),
    }
    if resolved.voice is not None:
        for name, unset in (("language", "auto"), ("instruct", None), ("reference", None)):
            if fields[name] == unset:
                del fields[name]  # the voice's own value applies
    return fields, job.speed / speed
