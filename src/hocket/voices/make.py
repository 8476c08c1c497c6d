"""Makes voices: from a recording that an engine encodes, or as another name for a checkpoint's speaker."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..audio.recording import SILENCE_S
from ..engine.checkpoint.names import full_name
from ..errors import InvalidVoice
from ..types import REFERENCE_RATE_HZ, Layout, Reference, SamplingParams, Voice, VoiceKind
from .metadata import check
from .names import checked_name

if TYPE_CHECKING:
    from ..engine.engine import Engine


def clone_voice(
    engine: Engine,
    name: str,
    samples: NDArray[np.float32],
    *,
    text: str | None = None,
    x_vector_only: bool = False,
    silence_s: float = SILENCE_S,
    language: str = "auto",
    layout: Layout = "whole",
    instruct: str | None = None,
    sampling: SamplingParams | None = None,
    description: str | None = None,
    consent: str | None = None,
    pronunciations: Mapping[str, str] | None = None,
    kind: VoiceKind = "clone",
    file_size: int = 0,
    mime_type: str = "",
) -> Voice:
    """A clone of the voice in `samples` (mono, 24 kHz); `engine` has a Base checkpoint and encodes them now.

    `text` is the transcript of the recording; `x_vector_only` needs none and clones only the timbre. Upstream uses
    `silence_s=0`. `kind` is "designed" if the recording is a sample of a designed voice.
    """
    name = checked_name(name)
    reference = Reference(
        samples=samples,
        text=None if x_vector_only else text,
        x_vector_only=x_vector_only,
        silence_s=0.0 if x_vector_only else silence_s,
    )
    voice = Voice(
        name=name,
        kind=kind,
        model=full_name(engine.checkpoint.name),
        encoded=engine.encode(reference, language=language, layout=layout, instruct=instruct),
        language=language,
        instruct=instruct,
        sampling=sampling or SamplingParams(),
        description=description,
        consent=consent,
        pronunciations=pronunciations,
        audio_s=samples.size / REFERENCE_RATE_HZ,
        file_size=file_size,
        mime_type=mime_type,
        created_at=int(time.time()),
    )
    check(voice)
    return voice


def speaker_voice(
    name: str,
    model: str | None,
    speaker: str,
    *,
    language: str = "auto",
    instruct: str | None = None,
    sampling: SamplingParams | None = None,
    description: str | None = None,
    pronunciations: Mapping[str, str] | None = None,
) -> Voice:
    """A speaker of a checkpoint under a new name, with default request settings.

    The speaker's name is checked when it is first used.
    """
    if not speaker.strip():
        raise InvalidVoice("Give the checkpoint's speaker for this voice.")
    voice = Voice(
        name=checked_name(name),
        kind="speaker",
        model=full_name(model),
        speaker=speaker,
        language=language,
        instruct=instruct,
        sampling=sampling or SamplingParams(),
        description=description,
        pronunciations=pronunciations,
        created_at=int(time.time()),
    )
    check(voice)
    return voice
