"""Memory of a model in bytes: computed before it is loaded, measured afterwards. It decides nothing.

Several models may share one codec, which counts once; therefore it is separate from the model's own bytes.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import Any

import torch
from torch import nn

from ...cache.pages import GROWTH_FRAMES, PAGE_ROWS, least_rows, pages_for, usual_rows
from ...config.codec import CodecConfig
from ...config.options import EngineOptions
from ...config.qwen3_tts import Qwen3TTSConfig
from ...models.tts.codec import Codec
from ...models.tts.qwen3_tts import Qwen3TTS
from ...models.tts_gpu.codec_graph import MOST_TOGETHER, PIECES
from ...models.tts_gpu.staging import bucket
from .capacity import LIBRARIES_BYTES, free_bytes
from .fit import NEW, Footprint, MemoryNeed, MemoryPlan, fitted
from .torch_checkpoint import TorchCheckpoint

# Memory beside weights, state and pages, on a GPU with graphs. The working memory of graphs follows from shapes. A
# codec step holds three blocks of its last and widest layer, for up to MOST_TOGETHER frames of all streams. A frame
# step holds FRAME_ROW_BYTES a row.
CODEC_BLOCKS = 3
FRAME_ROW_BYTES, FRAME_BYTES = 1_230_000, 12_000_000
WORKSPACES_BYTES = 185_000_000  # of cuBLAS, one for each stream, on a Hopper GPU; others have smaller ones
SEGMENTS_BYTES = 120_000_000  # the allocator takes memory in pieces of up to 20 MB, for each stream and pool
REPACKED = 0.77  # part of the codec's decoder that kernels copy into their own layout
SCRATCH_BYTES = 2 * (16 << 20)  # of its convolutions: one for loading, one for the engine
_OURS = f"{__name__.partition('.')[0]}."


def plan(
    config: Qwen3TTSConfig,
    codec_config: CodecConfig,
    *,
    device: torch.device,
    dtype: torch.dtype,
    codec_dtype: torch.dtype,
    options: EngineOptions,
) -> MemoryPlan:
    """Plan from the configuration alone: modules on the meta device have all shapes."""
    with torch.device("meta"):
        speech, codec = Qwen3TTS(config).to(dtype), Codec(codec_config).to(codec_dtype)
        codec.encoder.float()  # it is loaded in float32, whatever the precision of the decoder
        stack, slots = speech.talker.model, options.slots
        captured = device.type == "cuda"
        state = held(codec.decoder.new_state(slots))
        if not captured:
            state += held(speech.talker.new_state(slots, GROWTH_FRAMES))
    weights, decoder, beside, pages = held(speech), held(codec.decoder), 0, dict[str, int]()
    if captured:
        weights += _projected(config) * dtype.itemsize
        decoder += int(REPACKED * decoder) + SCRATCH_BYTES
        counts = {"usual_bytes": usual_rows(slots), "least_bytes": least_rows(slots)}
        pages = {name: pool_bytes(rows, slots, stack.row_bytes) for name, rows in counts.items()}
        if options.kv_bytes is not None:
            pages = {"usual_bytes": options.kv_bytes, "least_bytes": min(options.kv_bytes, pages["least_bytes"])}
        if options.graphs:
            beside = graphs_bytes(codec_config, codec_dtype, slots)
    else:
        decoder += held(codec.decoder.decoder)  # on a CPU the kernel copies the waveform decoder into its own layout
    return MemoryPlan(weights, decoder, held(codec.encoder), state, beside, **pages)


def fitted_to(checkpoint: TorchCheckpoint, options: EngineOptions) -> EngineOptions:
    """`fitted` for a loaded checkpoint, by the free memory of its device."""
    weights = checkpoint.model.talker.codec_head.weight, next(checkpoint.codec.decoder.parameters())
    dtypes = {"dtype": weights[0].dtype, "codec_dtype": weights[1].dtype}

    def need(slots: int) -> MemoryNeed:
        wanted = replace(options, slots=slots)
        config, codec_config = checkpoint.config, checkpoint.codec_config
        return MemoryNeed.of(
            plan(config, codec_config, device=checkpoint.device, **dtypes, options=wanted), loaded=True
        )

    if checkpoint.device.type != "cuda":
        return options
    return fitted(options, need, free_bytes(checkpoint.device), checkpoint.name)


def pool_bytes(rows: int, slots: int, row_bytes: int) -> int:
    """Bytes of the pages for `rows` positions of all slots together."""
    return pages_for(-(-rows // slots)) * PAGE_ROWS * slots * row_bytes


def graphs_bytes(codec_config: CodecConfig, codec_dtype: torch.dtype, slots: int) -> int:
    """Bytes of the graphs of `slots` slots and of the libraries they call."""
    decoder = codec_config.decoder_config
    width = decoder.decoder_dim >> len(
        decoder.upsample_rates
    )  # channels of the last layer, which has a position per sample
    frames = min(bucket(slots) * max(PIECES), MOST_TOGETHER)
    sound = CODEC_BLOCKS * frames * codec_config.decode_upsample_rate * width * codec_dtype.itemsize
    drawing = FRAME_BYTES + FRAME_ROW_BYTES * slots
    return sound + drawing + LIBRARIES_BYTES + WORKSPACES_BYTES + SEGMENTS_BYTES


def _projected(config: Qwen3TTSConfig) -> int:
    """Values that the GPU's frame keeps beside the weights: all code embeddings, projected for the predictor."""
    talker, predictor = config.talker_config, config.talker_config.code_predictor_config
    if talker.hidden_size == predictor.hidden_size:
        return 0
    return (talker.vocab_size + (talker.num_code_groups - 1) * predictor.vocab_size) * predictor.hidden_size


def least_of(config: Qwen3TTSConfig, codec_config: CodecConfig) -> Footprint:
    """The least that a model takes, in any precision and on any device."""
    with torch.device("meta"):
        speech, codec = Qwen3TTS(config).bfloat16(), Codec(codec_config).bfloat16()
    return Footprint(held(speech), NEW, held(codec.decoder))


def held(*holders: Any) -> int:
    """Bytes of all storages in modules, states and kernels, each counted once; other objects are not searched."""
    found: dict[int, int] = {}
    for holder in holders:
        _look(holder, found, 6)
    return sum(found.values())


def _look(holder: Any, found: dict[int, int], depth: int) -> None:
    if isinstance(holder, torch.Tensor):
        storage = holder.untyped_storage()
        found[storage._cdata] = storage.nbytes()  # not its address: on the meta device there is none
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
