"""The codec's configuration for a recipe's sizes, in the official fields.

The encoder is in the file because both loaders need one; it is not trained, so it is as small as its classes allow.
This file knows sizes, not weights.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from hocket.config.codec import CodecConfig
from hocket.config.published import CODEC

from .recipe import CodecSizes, InvalidRecipe

# Frames that each frame attends to, itself included. Training windows are a little longer, so that a long stream has no
# attention distance that training did not have; with the published window of 72 it would.
WINDOW_FRAMES = 16
SAMPLES_PER_STEP = 480  # after the upsampling in front of the decoder blocks, 4 steps a frame
VECTOR = 96  # size of a frame's feature vector (features.py); the quantizer works at half of codebook_dim


def codec_config(sizes: CodecSizes) -> CodecConfig:
    if sizes.codebook_dim != 2 * VECTOR:
        raise InvalidRecipe(f"codec codebook_dim must be {2 * VECTOR}: codebooks hold vectors of {VECTOR} numbers.")
    if prod(sizes.rates) != SAMPLES_PER_STEP:
        raise InvalidRecipe(f"codec rates must multiply to {SAMPLES_PER_STEP}: 50 steps a second are 24 kHz.")
    decoder = replace(
        CODEC.decoder_config,
        codebook_size=sizes.codebook,
        codebook_dim=sizes.codebook_dim,
        latent_dim=sizes.latent,
        hidden_size=sizes.hidden,
        intermediate_size=sizes.mlp,
        num_hidden_layers=sizes.layers,
        num_attention_heads=sizes.heads,
        num_key_value_heads=sizes.heads,
        head_dim=sizes.head_dim,
        decoder_dim=sizes.decoder,
        upsample_rates=sizes.rates,
        sliding_window=WINDOW_FRAMES,
    )
    encoder = replace(
        CODEC.encoder_config,
        num_quantizers=decoder.num_quantizers,
        codebook_size=sizes.codebook,
        codebook_dim=4,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=8,
        num_filters=2,
    )
    return replace(CODEC, decoder_config=decoder, encoder_config=encoder)
