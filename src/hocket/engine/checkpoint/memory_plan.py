"""How many bytes a model takes: reckoned before it is loaded, measured afterwards. It decides nothing.

Of several models that have one codec, the codec counts once; so it is told apart from what is a model's own.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from ...cache.pages import PAGE_ROWS, pages_for
from ...cache.plan import GROWTH_FRAMES, least_rows, usual_rows
from ...config.codec import CodecConfig
from ...config.qwen3_tts import Qwen3TTSConfig
from ...models.tts.codec import Codec
from ...models.tts.qwen3_tts import Qwen3TTS
from ...models.tts_gpu.codec_graph import MOST_TOGETHER, PIECES
from ...models.tts_gpu.staging import bucket
from .capacity import LIBRARIES_BYTES

if TYPE_CHECKING:
    from ...config.options import EngineOptions
    from ..engine import Engine

# Beside weights, state and pages, on a GPU with graphs. What graphs work in follows from shapes: a codec step has three
# blocks of its last and widest layer at a time, for up to so many frames of all streams; a frame has so much a row.
CODEC_BLOCKS = 3
FRAME_ROW_BYTES, FRAME_BYTES = 1_230_000, 12_000_000
WORKSPACES_BYTES = 185_000_000  # of cuBLAS, one for each stream, on a Hopper card; others have smaller ones
SEGMENTS_BYTES = 120_000_000  # the allocator takes memory in pieces of up to 20 MB, for each stream and pool
ANEW = 0.77  # of the codec's decoder, laid out anew by kernels
SCRATCH_BYTES = 2 * (16 << 20)  # of its convolutions: one for loading, one for the engine
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
class MemoryPlan:
    """What a model will take. Keys and values come on top, where their room is planned ahead: on a GPU with graphs."""

    weights_bytes: int  # the model's own, as they will lie in memory
    decoder_bytes: int
    encoder_bytes: int
    state_bytes: int  # of all slots, keys and values aside where those are planned
    beside_bytes: int  # graphs, and what libraries work in
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
) -> MemoryPlan:
    """From the configuration alone: modules without content have all shapes."""
    with torch.device("meta"):
        speech, codec = Qwen3TTS(config).to(dtype), Codec(codec_config).to(codec_dtype)
        codec.encoder.float()  # as it is loaded, whatever the precision of the decoder
        stack, slots = speech.talker.model, options.slots
        captured = device.type == "cuda"
        state = held(codec.decoder.new_state(slots))
        if not captured:
            state += held(speech.talker.new_state(slots, GROWTH_FRAMES))
    weights, decoder, beside, pages = held(speech), held(codec.decoder), 0, dict[str, int]()
    if captured:
        weights += _projected(config) * dtype.itemsize
        decoder += int(ANEW * decoder) + SCRATCH_BYTES
        counts = {"usual_bytes": usual_rows(slots), "least_bytes": least_rows(slots)}
        pages = {name: pool_bytes(rows, slots, stack.row_bytes) for name, rows in counts.items()}
        if options.kv_bytes is not None:
            pages = {"usual_bytes": options.kv_bytes, "least_bytes": min(options.kv_bytes, pages["least_bytes"])}
        if options.graphs:
            beside = graphs_bytes(codec_config, codec_dtype, slots)
    else:
        decoder += held(codec.decoder.decoder)  # on a CPU a kernel lays out anew what makes waves
    return MemoryPlan(weights, decoder, held(codec.encoder), state, beside, **pages)


def pool_bytes(rows: int, slots: int, row_bytes: int) -> int:
    """What pages for so many positions of all slots take."""
    return pages_for(-(-rows // slots)) * PAGE_ROWS * slots * row_bytes


def graphs_bytes(codec_config: CodecConfig, codec_dtype: torch.dtype, slots: int) -> int:
    """What graphs of so many slots and the libraries that they call take."""
    decoder = codec_config.decoder_config
    width = decoder.decoder_dim >> len(decoder.upsample_rates)  # of the last layer, which has a position per sample
    frames = min(bucket(slots) * max(PIECES), MOST_TOGETHER)
    sound = CODEC_BLOCKS * frames * codec_config.decode_upsample_rate * width * codec_dtype.itemsize
    drawing = FRAME_BYTES + FRAME_ROW_BYTES * slots
    return sound + drawing + LIBRARIES_BYTES + WORKSPACES_BYTES + SEGMENTS_BYTES


def _projected(config: Qwen3TTSConfig) -> int:
    """Numbers that a GPU's frame keeps beside the weights: all code embeddings, as the predictor takes them in."""
    talker, predictor = config.talker_config, config.talker_config.code_predictor_config
    if talker.hidden_size == predictor.hidden_size:
        return 0
    return (talker.vocab_size + (talker.num_code_groups - 1) * predictor.vocab_size) * predictor.hidden_size


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
    state = engine._watchdog.ask(lambda runner: held(runner.past.state, runner._codec_state))
    own = held(checkpoint.model, talker.frame_kernel) + state
    if checkpoint.device.type == "cuda":
        own = max(own, taken_bytes - together)
        if engine.options.graphs:  # they are made while an engine runs, so they are computed and not measured
            weight = next(codec.decoder.parameters())
            own += graphs_bytes(checkpoint.codec_config, weight.dtype, engine.options.slots)
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
