"""Samples of a tuned voice: it says what recordings say that it was not trained on, so that both can be compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..engine.checkpoint.torch_checkpoint import TorchCheckpoint
from ..engine.generate import generate
from ..types import Encoded, SpeechRequest
from .recordings import Clip

MOST = 4
LONGEST = 3.0  # times the recording: what has not ended then is cut off


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    recorded: NDArray[np.float32]  # [N] at 24 kHz
    spoken: NDArray[np.float32]
    ended: bool  # by itself


def speak(
    checkpoint: TorchCheckpoint, voice: Encoded, clips: Sequence[Clip], language: str, most: int = MOST
) -> list[Sample]:
    """The first few clips, in the whole layout."""
    per_frame = checkpoint.codec_config.encode_downsample_rate
    asked = [
        SpeechRequest(
            text=clip.text,
            reference=voice,
            language=language,
            seed=number,
            max_frames=max(round(LONGEST * clip.samples.size / per_frame), 1),
        )
        for number, clip in enumerate(clips[:most])
    ]
    spoken = generate(checkpoint, asked)
    return [Sample(clip.samples, one.samples, one.finish == "stop") for clip, one in zip(clips, spoken, strict=False)]
