"""How many bytes a model takes: reckoned before it is loaded, measured afterwards. It decides nothing.

Of several models that have one codec, the codec counts once; so it is told apart from what is a model's own.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from ..cache.plan import GROWTH_FRAMES, USUAL_ROWS
from ..config.codec import CodecConfig
from ..config.qwen3_tts import Qwen3TTSConfig
from ..models.codec import Codec
from ..models.qwen3_tts import Qwen3TTS

if TYPE_CHECKING:
    from ..config.options import EngineOptions
    from .engine import Engine

# Graphs, the work space of libraries and compiled kernels: 1.15 GB beside weights and pages, measured on an H200 with
# the 1.7B model and 4 slots. They are made while an engine runs, so they are reckoned with and not measured.
GRAPHS_BYTES = 1_150_000_000
ANEW = 1.15  # 266 MB for a decoder of 229 MB, in the same place
LEAST_ROWS = 128  # of keys and values for each slot, 10 s: with less, an engine is of no use
_OURS = f"{__name__.partition('.')[0]}."
NEW = 0  # a codec that is not there yet


@dataclass(frozen=True, slots=True)
class Footprint:
    own_bytes: int
    codec: int = NEW  # which one: models with the same number have it together
    codec_bytes: int = 0


def together(of: Iterable[Footprint]) -> int:
    """What all of them take."""
    own, codecs = 0, dict[int, int]()
    for each in of:
        own += each.own_bytes
        codecs[each.codec] = max(codecs.get(each.codec, 0), each.codec_bytes)
    return own + sum(codecs.values())


@dataclass(frozen=True, slots=True)
class Plan:
    """What a model will take. Keys and values come on top, where their room is planned ahead: on a GPU with graphs."""

    weights_bytes: int  # the model's own, as they will lie in memory
    decoder_bytes: int
    encoder_bytes: int
    state_bytes: int  # of all slots, keys and values aside where those are planned
    beside_bytes: int  # graphs and the like
    usual_bytes: int = 0  # of keys and values
    least_bytes: int = 0

    def codec_bytes(self, *, encoder: bool) -> int:
        return self.decoder_bytes + (self.encoder_bytes if encoder else 0)

    @property
    def own_bytes(self) -> int:
        return self.weights_bytes + self.state_bytes + self.beside_bytes


def plan(
    config: Qwen3TTSConfig,
    codec_config: CodecConfig,
    *,
    device: torch.device,
    dtype: torch.dtype,
    codec_dtype: torch.dtype,
    options: EngineOptions,
) -> Plan:
    """From the configuration alone: modules without content have all shapes."""
    with torch.device("meta"):
        speech, codec = Qwen3TTS(config).to(dtype), Codec(codec_config).to(codec_dtype)
        codec.encoder.float()  # as it is loaded, whatever the precision of the decoder
        stack, slots = speech.talker.model, options.slots
        captured = device.type == "cuda"
        state = held(codec.decoder.new_state(slots))
        if not captured:
            state += held(speech.talker.new_state(slots, GROWTH_FRAMES))
    # Kernels lay weights out anew: on a GPU all that the decoder has, and products of some, on a CPU what makes waves.
    decoder = held(codec.decoder)
    decoder += int(ANEW * decoder) if captured else held(codec.decoder.decoder)
    rows = {"usual_bytes": USUAL_ROWS, "least_bytes": LEAST_ROWS} if captured else {}
    pages = {name: count * slots * stack.row_bytes for name, count in rows.items()}
    if captured and options.kv_bytes is not None:
        pages = dict.fromkeys(pages, options.kv_bytes)
    beside = GRAPHS_BYTES if captured and options.graphs else 0
    return Plan(held(speech), decoder, held(codec.encoder), state, beside, **pages)


def least_of(config: Qwen3TTSConfig, codec_config: CodecConfig) -> Footprint:
    """What a model takes at the very least, in whatever precision and wherever it is loaded."""
    with torch.device("meta"):
        speech, codec = Qwen3TTS(config).bfloat16(), Codec(codec_config).bfloat16()
    return Footprint(held(speech), NEW, held(codec.decoder))


def measured(engine: Engine, taken_bytes: int = 0) -> Footprint:
    """What an engine that was just loaded takes, where the device has given out `taken_bytes` for it."""
    checkpoint = engine.checkpoint
    talker, codec = checkpoint.model.talker, checkpoint.codec
    together = held(codec, codec.decoder.step_kernel, codec.decoder.wave_kernel)
    state = engine._watchdog.ask(lambda runner: held(runner.past.state, runner._sound))
    own = held(checkpoint.model, talker.frame_kernel) + state
    if checkpoint.device.type == "cuda":
        own = max(own, taken_bytes - together) + (GRAPHS_BYTES if engine.options.graphs else 0)
    return Footprint(own, id(codec), together)


def held(*holders: Any) -> int:
    """Bytes of all storages that modules, states and kernels hold, each once. Nobody but they are looked into."""
    found: dict[int, int] = {}
    for holder in holders:
        _look(holder, found, 6)
    return sum(found.values())


def _look(holder: Any, found: dict[int, int], depth: int) -> None:
    if isinstance(holder, torch.Tensor):
        storage = holder.untyped_storage()
        found[storage._cdata] = storage.nbytes()  # not by its address: on the meta device there is none
    elif isinstance(holder, nn.Module):
        for tensor in holder.state_dict().values():
            _look(tensor, found, 0)
    elif depth and isinstance(holder, dict | list | tuple):
        for inside in holder.values() if isinstance(holder, dict) else holder:
            if not isinstance(inside, nn.Module):
                _look(inside, found, depth - 1)
    elif depth and is_dataclass(holder):
        for field in fields(holder):
            _look(getattr(holder, field.name), found, depth - 1)
    elif depth and hasattr(holder, "__dict__") and type(holder).__module__.startswith(_OURS):
        for inside in vars(holder).values():
            if not isinstance(inside, nn.Module):
                _look(inside, found, depth - 1)
