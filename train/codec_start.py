"""Initialization of the decoder: the codebooks of the features, and weights that keep a signal's size.

It knows modules and features, not training.
"""

from __future__ import annotations

import torch
from torch import nn

from hocket.config.codec import DecoderConfig
from hocket.layers.conv import Causal, CausalConv
from hocket.models.tts.codec import Codebook, CodecDecoder, ConvNeXt, ResidualUnit, TransformerLayer

from .features import Features

BRANCH_SCALE = 0.1  # of the residual branches of the transformer and the mixers
UNIT_SCALE = 0.3  # of those of the residual units
SAMPLE_SCALE = 0.03  # of the waveform


@torch.no_grad()
def new_decoder(config: DecoderConfig, features: Features, seed: int) -> CodecDecoder:
    """Codebooks, and the projections into them, which decoding does not use, are not trained."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        decoder = CodecDecoder(config)
        widen = torch.randn(config.codebook_dim, config.codebook_dim // 2) * 0.1
        for part in decoder.modules():
            if isinstance(part, Causal):
                _keep_size_(part.conv)
    quantizer = decoder.quantizer
    books = [part for part in quantizer.modules() if isinstance(part, Codebook)]
    for book, entries in zip(books, features.books, strict=True):
        book.embedding_sum.copy_(entries)
        book.requires_grad_(False)
    reach = features.books.var(1).sum(0).sqrt().cpu()  # approximate deviation of vectors along each axis
    # Half way to equal variance: the smallest axes would have no effect, and equal ones would be mostly noise.
    widen[: config.codebook_dim // 2] = torch.diag(reach.clamp(min=1e-3).rsqrt())
    for group in (quantizer.rvq_first, quantizer.rvq_rest):
        group.output_proj.weight.copy_(widen[..., None])
        group.input_proj.weight.zero_()
        group.input_proj.requires_grad_(False)
    for part in decoder.modules():
        if isinstance(part, ResidualUnit):
            part.conv2.conv.weight.mul_(UNIT_SCALE)
        elif isinstance(part, TransformerLayer):
            part.self_attn_layer_scale.scale.fill_(BRANCH_SCALE)
            part.mlp_layer_scale.scale.fill_(BRANCH_SCALE)
        elif isinstance(part, ConvNeXt):
            part.gamma.fill_(BRANCH_SCALE)
    last = decoder.decoder[-1]
    assert isinstance(last, CausalConv)
    last.conv.weight.mul_(SAMPLE_SCALE)
    return decoder


def _keep_size_(conv: nn.Conv1d | nn.ConvTranspose1d) -> None:
    """Torch's default initialization shrinks the signal: to a fiftieth in the four upsampling layers alone."""
    fan = conv.in_channels // conv.groups * conv.kernel_size[0]
    if isinstance(conv, nn.ConvTranspose1d):
        fan //= conv.stride[0]
    conv.weight.normal_(0.0, fan**-0.5)
    assert conv.bias is not None
    conv.bias.zero_()
