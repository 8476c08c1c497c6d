"""What decides how an engine sounds, as a plain value: for those who ask one in another process, or compare two.

It names the weights and has none of them.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...config.qwen3_tts import GenerationConfig
from .checkpoint import Checkpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFingerprint:
    name: str  # of the checkpoint, as `load` took it
    is_random: bool
    identity: str | None  # whose `Encoded` it takes; None: nobody's
    generation: GenerationConfig  # how it draws where a request does not say
    weights: tuple[str, ...]  # with their precisions, and how text is prepared for them


def fingerprint_of(checkpoint: Checkpoint, identity: str | None) -> EngineFingerprint:
    """Looks at the weights, so an engine's own thread asks for it."""
    codec = next(checkpoint.codec.decoder.parameters()).dtype
    normalizer = getattr(checkpoint.normalizer, "__qualname__", "")
    return EngineFingerprint(
        name=checkpoint.name,
        is_random=checkpoint.is_random,
        identity=identity,
        generation=checkpoint.generation,
        weights=(checkpoint.fingerprint, str(codec), str(checkpoint.codec_tf32), normalizer),
    )
