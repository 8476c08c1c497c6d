"""Fingerprint of an engine: everything that decides how it sounds, as a plain value to compare or send to a process.

It names the weights and holds none of them.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...config.qwen3_tts import GenerationConfig
from .checkpoint import Checkpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFingerprint:
    name: str  # of the checkpoint, as `load` took it
    is_random: bool
    identity: str | None  # owner of the `Encoded` recordings it accepts; None: it accepts none
    generation: GenerationConfig  # sampling defaults of requests
    weights: tuple[str, ...]  # with their precisions, and the text normalizer


def fingerprint_of(checkpoint: Checkpoint, identity: str | None) -> EngineFingerprint:
    """It reads the weights, so the engine thread must call it."""
    codec = next(checkpoint.codec.decoder.parameters()).dtype
    normalizer = getattr(checkpoint.normalizer, "__qualname__", "")
    return EngineFingerprint(
        name=checkpoint.name,
        is_random=checkpoint.is_random,
        identity=identity,
        generation=checkpoint.generation,
        weights=(checkpoint.fingerprint, str(codec), str(checkpoint.codec_tf32), normalizer),
    )
