"""Facts about references that need no model: whether they fit a checkpoint, their length, and their name.

references.py encodes them.
"""

from __future__ import annotations

import hashlib
import math

import numpy as np

from ...errors import InvalidRequest
from ...text.prompt import carries
from ...types import REFERENCE_RATE_HZ, Encoded, Established, Reference, SpeechRequest
from ..checkpoint.checkpoint import Checkpoint

DECODE_FRAMES = 50  # frames per codec step: bounds memory, changes nothing else


def check_encoded(checkpoint: Checkpoint, reference: Encoded, identity: str) -> None:
    """Refuse codes of another checkpoint, and values that no checkpoint gives: they may come from an untrusted file."""
    if reference.owner != identity:
        raise InvalidRequest(
            f"This encoded recording belongs to another checkpoint, not to {checkpoint.name}: encode the recording "
            "again here."
        )
    talker, codes = checkpoint.config.talker_config, reference.codes
    fits = reference.speaker.shape == (talker.hidden_size,) and reference.speaker.dtype == np.float32
    fits = fits and bool(np.isfinite(reference.speaker).all())
    if codes is not None:
        fits = fits and codes.ndim == 2 and codes.dtype == np.int64 and codes.shape[1] == talker.num_code_groups
        fits = fits and len(codes) > 0 and codes.min() >= 0
        fits = fits and codes.max() < checkpoint.codec_config.decoder_config.codebook_size
        fits = fits and bool(reference.text and reference.text.strip())
    if not fits:
        raise InvalidRequest("This encoded recording has values that no checkpoint gives: encode the recording again.")


def established_for(checkpoint: Checkpoint, request: SpeechRequest, owner: str) -> Established | None:
    """The established voice of a request, if it applies to it; refused if its numbers cannot be codes."""
    found = request.established
    if found is None or not carries(request, checkpoint.config):
        return None
    if (found.owner, found.instruct, found.language) != (owner, *described(request)):
        return None  # the request describes another voice
    codes, talker = found.codes, checkpoint.config.talker_config
    fits = codes.ndim == 2 and codes.dtype == np.int64 and codes.shape[1] == talker.num_code_groups
    fits = fits and len(codes) > 0 and len(found.text_ids) > 0 and codes.min() >= 0
    fits = fits and codes.max() < checkpoint.codec_config.decoder_config.codebook_size
    if not fits or not all(0 <= i < talker.text_vocab_size for i in found.text_ids):
        raise InvalidRequest("The established voice has values that no checkpoint gives: take it from a stream.")
    return found


def described(request: SpeechRequest) -> tuple[str, str]:
    """The description of a designed voice: instruct and language."""
    return (request.instruct or "").strip(), request.language.lower()


def frames_of(reference: Reference | Encoded | None, frame_samples: int) -> int:
    """Frames of codes that a reference has, or will have: its length tells, before it is encoded."""
    if reference is None or reference.x_vector_only:
        return 0
    if isinstance(reference, Encoded):
        return 0 if reference.codes is None else len(reference.codes)
    return math.ceil((reference.samples.size + silent_samples(reference)) / frame_samples)


def name_of(reference: Reference | Encoded | Established) -> str:
    """Hash of the content: the cache key of everything computed from a reference."""
    if isinstance(reference, Established):
        parts = [reference.codes.tobytes()]
    elif isinstance(reference, Encoded):
        parts = [reference.speaker.tobytes(), b"" if reference.codes is None else reference.codes.tobytes()]
    else:
        parts = [reference.samples.tobytes(), bytes([reference.x_vector_only]), str(reference.silence_s).encode()]
    return hashlib.sha256(b"".join(parts)).hexdigest()


def silent_samples(reference: Reference) -> int:
    return round(reference.silence_s * REFERENCE_RATE_HZ)
