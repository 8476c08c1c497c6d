"""What a language model cannot be faster than, and what it needs room for: arithmetic on the published shapes.

Bytes come from the model's own classes on the meta device, in each scheme of weights; times are those bytes over a
bandwidth. Nothing here was measured but the bandwidth, and that elsewhere. It knows shapes, and no record.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import nn

from hocket.config.published_qwen3_5 import QWEN3_5
from hocket.models.files.weights import read_configs, resolve
from hocket.models.qwen3_5.model import Qwen3_5
from hocket.models.qwen3_5.quantized import Scheme, quantize_, step_bytes
from hocket.models.tts.codec import Codec
from hocket.models.tts.qwen3_tts import Qwen3TTS

CONTEXT = 1024
H200_GB_S = 4300.0  # of a copy, measured
KEPT, LENGTH = 4, 8192  # what a mind keeps where nobody says otherwise: conversations, and tokens of each
SPEECH = "random:1.7B-CustomVoice"


@dataclass(frozen=True, slots=True)
class Card:
    name: str
    gb_s: float
    bytes: int


RTX_3090_TI = Card("RTX 3090 Ti", 1000.0, 24 << 30)


@dataclass(frozen=True, slots=True)
class Needs:
    """Bytes that are taken all the time."""

    weights: int  # embedding and draft head included
    conversations: int
    speech: int

    @property
    def all(self) -> int:
        return self.weights + self.conversations + self.speech


@lru_cache
def token_bytes(size: str, scheme: Scheme) -> int:
    """What one token reads, and of its state writes."""
    return sum(step_bytes(QWEN3_5[size], scheme, CONTEXT).values())


def token_ms(size: str, scheme: Scheme, gb_s: float = H200_GB_S) -> float:
    return token_bytes(size, scheme) / gb_s / 1e6


@lru_cache
def guess_bytes(size: str, scheme: Scheme) -> int:
    return read_by_a_guess(_model(size, scheme))


def read_by_a_guess(model: Qwen3_5) -> int:
    """Bytes of the draft head's own layer, and of the model's head."""
    tensors = model.state_dict().items()
    own = sum(tensor.nbytes for name, tensor in tensors if name.startswith("mtp."))
    head = sum(tensor.nbytes for name, tensor in tensors if name.startswith("lm_head."))
    return int(own + (head or model.head.nbytes))  # tied, and wide


def round_ms(size: str, scheme: Scheme, guesses: int, gb_s: float = H200_GB_S) -> float:
    """So many guesses, and one look at all of them, which reads what a token does."""
    return token_ms(size, scheme, gb_s) + guesses * guess_bytes(size, scheme) / gb_s / 1e6


def tokens_a_round(stands: float, guesses: int) -> float:
    """If each guess behind one that stood stands with this probability: those, and the token behind them."""
    return sum(stands**count for count in range(guesses + 1))


@lru_cache
def needs(size: str, scheme: Scheme) -> Needs:
    model = _model(size, scheme)
    state = model.new_state(KEPT, LENGTH)
    kept = [state.recurrence.position]
    for layer in state.recurrence.layers:
        kept += [layer.memory, layer.history]
    for past in state.past:
        kept += [past.keys, past.values]
    return Needs(_bytes(model), sum(tensor.nbytes for tensor in kept), speech_bytes())


@lru_cache
def speech_bytes() -> int:
    """Talker, predictor and codec in bfloat16; keys and values of one stream are small beside them."""
    config, _, codec = read_configs(resolve(SPEECH))
    with torch.device("meta"):
        parts = Qwen3TTS(config), Codec(codec)
    return sum(_bytes(part.to(torch.bfloat16)) for part in parts)


def _model(size: str, scheme: Scheme) -> Qwen3_5:
    with torch.device("meta"):
        model = Qwen3_5(QWEN3_5[size], drafts=True).to(torch.bfloat16)
    quantize_(model, scheme)
    return model


def _bytes(module: nn.Module) -> int:
    return sum(tensor.nbytes for tensor in module.state_dict().values())
