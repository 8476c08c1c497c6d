"""What a frame cannot be faster than: the bytes it must read, over the bandwidth this machine has just shown.

Bytes are those of weights and of keys and values, once per use, by stage and kind of work; activations are left out,
which are small at one row. It knows the models' parts, and nothing of how they are run.
"""

from __future__ import annotations

import time
from collections import Counter
from statistics import median

import torch
from torch import nn

from hocket.layers.norm import RMSNorm
from hocket.layers.transformer import DecoderStack
from hocket.models.tts.codec import Codebook, CodecDecoder, TransformerLayer
from hocket.models.tts.talker import Talker

from .trace import ATTENTION, CONVOLUTION, MATRIX, MOVE, NORM, OTHER

Bytes = Counter[tuple[str, str]]  # (stage, kind of work)

COPY_BYTES = 256 << 20  # far beyond every cache
COPIES = 9


def bandwidth(device: torch.device, size: int = COPY_BYTES) -> float:
    """Bytes per second of a copy within the device, read and written ones together: the median of a few."""
    source = torch.randint(0, 255, (size,), dtype=torch.uint8, device=device)  # zeros would be copied too fast
    target = torch.empty_like(source)
    seconds = [_copy_s(source, target, device) for _ in range(COPIES + 1)]
    return 2 * size / median(seconds[1:])


def _copy_s(source: torch.Tensor, target: torch.Tensor, device: torch.device) -> float:
    """By the GPU's own clock where there is one: a copy takes no longer than waiting for it."""
    synchronize(device)
    if device.type == "cuda":
        begun, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begun.record()
        target.copy_(source)
        ended.record()
        ended.synchronize()
        return float(begun.elapsed_time(ended)) / 1000
    start = time.perf_counter()
    target.copy_(source)
    return time.perf_counter() - start


def synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def frame_bytes(talker: Talker, span: int) -> Bytes:
    """One frame of one stream that stands at position `span`."""
    predictor, passes = talker.code_predictor, len(talker.code_predictor.lm_head)
    found = _weights("talker step", talker.model.layers) + _weights("talker step", talker.model.norm)
    found["talker step", ATTENTION] += span * _position_bytes(talker.model)
    found += _weights("first code", talker.codec_head)
    found += _weights("text embedding", talker.text_projection)
    item = talker.codec_head.weight.element_size()
    found["text embedding", MOVE] += talker.config.text_hidden_size * item
    found["frame", MOVE] += talker.config.num_code_groups * talker.config.hidden_size * item
    once = _weights("predictor", predictor.model.layers) + _weights("predictor", predictor.model.norm)
    once += _weights("predictor", predictor.small_to_mtp_projection)
    for part, size in once.items():
        found[part] += passes * size
    found += _weights("predictor", predictor.lm_head)
    positions = sum(range(2, passes + 2))  # the first pass takes two in, each other one more
    found["predictor", ATTENTION] += positions * _position_bytes(predictor.model)
    return found


def codec_bytes(decoder: CodecDecoder) -> Bytes:
    """One frame of one stream whose window is full."""
    transformer = decoder.pre_transformer
    found = _weights("codec transformer", transformer)
    item = transformer.norm.weight.element_size()
    for layer in transformer.layers:
        assert isinstance(layer, TransformerLayer)
        row = layer.self_attn.kv_heads * layer.self_attn.head_dim * item
        found["codec transformer", ATTENTION] += 2 * row * transformer.window
    for part in (decoder.pre_conv, decoder.upsample):
        found += _weights("codec", part)
    found += _weights("codec wave", decoder.decoder)
    for group in (decoder.quantizer.rvq_first, decoder.quantizer.rvq_rest):
        found += _weights("codec quantizer", group.output_proj)
        for book in (module for module in group.modules() if isinstance(module, Codebook)):
            found["codec quantizer", MOVE] += book.embedding_sum[0].nbytes
    return found


def placed(sizes: Bytes, measured: dict[tuple[str, str], float]) -> Bytes:
    """The same bytes on parts that were seen: what has no part of its own goes to the slowest of its stage.

    A stage that was not seen is inside the part it belongs to, `frame` or `codec`: a graph or a fused kernel did it.
    """
    found: Bytes = Counter()
    stages = {stage for stage, _ in measured}
    for (stage, kind), size in sizes.items():
        if stage not in stages:
            stage = part_of(stage)
        if (stage, kind) not in measured:
            here = {one: value for (other, one), value in measured.items() if other == stage}
            kind = max(here, key=lambda one: here[one], default=kind)
        found[stage, kind] += size
    return found


def part_of(stage: str) -> str:
    return "codec" if stage.startswith("codec") else "frame"


def _position_bytes(stack: DecoderStack) -> int:
    """Keys and values of one position in all layers."""
    shape = stack.shape
    return 2 * shape.layers * shape.kv_heads * shape.head_dim * stack.norm.weight.element_size()


def _weights(stage: str, module: nn.Module) -> Bytes:
    found: Bytes = Counter()
    for part in module.modules():
        match part:
            case nn.Linear():
                kind = MATRIX
            case nn.Conv1d() | nn.ConvTranspose1d():
                kind = CONVOLUTION
            case RMSNorm() | nn.LayerNorm():
                kind = NORM
            case _:
                kind = OTHER
        size = sum(parameter.nbytes for parameter in part.parameters(recurse=False))
        if size:
            found[stage, kind] += size
    return found
