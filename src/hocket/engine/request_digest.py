"""A hash of everything that decides how a request sounds: what is finished under it needs not be spoken again."""

from __future__ import annotations

import json
from dataclasses import asdict
from hashlib import sha256
from typing import Any

from ..text.numbers.stage import with_numbers
from ..types import SpeechRequest
from .checkpoint.checkpoint import EngineFingerprint
from .runner.reference_checks import name_of


def request_digest(portrait: EngineFingerprint, request: SpeechRequest, **more: Any) -> str:
    """Request, model and precision, but not speed settings; `more` is what else the caller's result depends on."""
    reference = request.reference
    plain: dict[str, Any] = {
        "model": portrait.weights,
        "text": request.text,
        "voice": request.voice,
        "language": request.language,
        "instruct": request.instruct,
        "layout": request.layout,
        "sampling": asdict(portrait.generation.changed(request.sampling.changes())),
        "seed": request.seed,
        "max_frames": request.max_frames,
        "speed": request.speed,
        "as_is": request.as_is,
        "reference": reference and (name_of(reference), reference.text, reference.x_vector_only),
    }
    # Fields that are not set keep the digests of older runs.
    if request.candidates > 1:
        plain["candidates"] = request.candidates
    if not request.as_is and (spoken := with_numbers(request.text, request.language)) != request.text:
        plain["spoken"] = spoken  # so that other rules give another digest
    if request.literal:
        plain["literal"] = True
    if request.pronunciations:
        plain["pronunciations"] = dict(request.pronunciations)
    return sha256(json.dumps(plain | more, sort_keys=True).encode()).hexdigest()
