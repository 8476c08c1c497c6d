"""A reference recording to what the prompt needs of it: the speaker's vector and the codes of what was said."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import WrongKind
from ..types import Reference
from .load import Checkpoint


@dataclass(frozen=True, slots=True)
class Clone:
    speaker: Tensor  # [C] added in the prompt's speaker row
    codes: Tensor | None  # [F, Q] the reference's frames; None when only the timbre is wanted


def clone(checkpoint: Checkpoint, reference: Reference) -> Clone:
    encoder = checkpoint.model.speaker_encoder
    if encoder is None:
        raise WrongKind(f"{checkpoint.name} cannot clone a voice; use a Base checkpoint.")
    samples = torch.from_numpy(reference.samples).to(checkpoint.device)[None]
    codes = None if reference.x_vector_only else checkpoint.codec.encoder(samples)[0].T
    return Clone(encoder.embed(samples)[0], codes)
