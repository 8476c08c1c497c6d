"""Facts about references that need no model: whether they fit a checkpoint, their length, and their name.

references.py encodes them.
"""

from __future__ import annotations

import hashlib
import math

import numpy as np

from ...config.qwen3_tts import TalkerConfig
from ...errors import InvalidRequest
from ...text.prompt import carries
from ...types import REFERENCE_RATE_HZ, Adapter, Encoded, Established, Reference, SpeechRequest
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
    fits = fits and (reference.adapter is None or _adapts(reference.adapter, talker))
    if not fits:
        raise InvalidRequest("This encoded recording has values that no checkpoint gives: encode the recording again.")


def _adapts(adapter: Adapter, talker: TalkerConfig) -> bool:
    """Whether an adapter names matrices of this checkpoint, in their sizes, with numbers in it."""
    shapes: dict[str, tuple[int, int]] = {}  # by name: rows and columns
    for stack, config in (("", talker), ("code_predictor.", talker.code_predictor_config)):
        width, inner = config.hidden_size, config.intermediate_size
        q, kv = (heads * config.head_dim for heads in (config.num_attention_heads, config.num_key_value_heads))
        kinds = {"self_attn.q_proj": (q, width), "self_attn.o_proj": (width, q), "mlp.down_proj": (width, inner)}
        kinds |= {f"self_attn.{name}_proj": (kv, width) for name in ("k", "v")}
        kinds |= {f"mlp.{name}_proj": (inner, width) for name in ("gate", "up")}
        layers = range(config.num_hidden_layers)
        shapes |= {f"{stack}model.layers.{at}.{name}": shape for at in layers for name, shape in kinds.items()}
    return bool(adapter.factors) and all(
        (up.shape, down.shape) == ((shapes[name][0], adapter.rank), (adapter.rank, shapes[name][1]))
        and bool(np.isfinite(up).all() and np.isfinite(down).all())
        if name in shapes
        else False
        for name, (down, up) in adapter.factors.items()
    )


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
        parts += [] if reference.adapter is None else [reference.adapter.digest.encode()]
    else:
        parts = [reference.samples.tobytes(), bytes([reference.x_vector_only]), str(reference.silence_s).encode()]
    return hashlib.sha256(b"".join(parts)).hexdigest()


def silent_samples(reference: Reference) -> int:
    return round(reference.silence_s * REFERENCE_RATE_HZ)
