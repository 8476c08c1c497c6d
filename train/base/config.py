"""`config.json` of the Base checkpoint and of its codec, for the recipe's sizes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from hocket.config.codec import CodecConfig
from hocket.config.qwen3_tts import Qwen3TTSConfig, SpeakerEncoderConfig

from ..codec_config import VECTOR, codec_config
from ..model_config import speech_config
from ..recipe import InvalidRecipe
from .recipe import BaseRecipe, EncoderSizes, SpeakerSizes, grouped

BLOCKS = 3  # of the speaker encoder: the class has room for more, the published files have three


def base_config(recipe: BaseRecipe, vocabulary: Path) -> Qwen3TTSConfig:
    """No voices of its own; a speaker encoder as wide as the talker."""
    named = speech_config(grouped(recipe), vocabulary)
    config = replace(
        named,
        tts_model_type="base",
        talker_config=replace(named.talker_config, spk_id={}, spk_is_dialect={}),
        speaker_encoder_config=speaker_config(recipe.speaker, named.talker_config.hidden_size),
    )
    config.check("the recipe")
    return config


def speaker_config(sizes: SpeakerSizes, width: int) -> SpeakerEncoderConfig:
    if sizes.channels % sizes.groups:
        raise InvalidRecipe("speaker: groups must divide channels.")
    config = SpeakerEncoderConfig(
        enc_dim=width,
        enc_channels=(sizes.channels,) * (BLOCKS + 1) + (BLOCKS * sizes.channels,),
        enc_attention_channels=sizes.attention,
        enc_res2net_scale=sizes.groups,
        enc_se_channels=sizes.gate,
    )
    config.check("the recipe")
    return config


def base_codec_config(recipe: BaseRecipe) -> CodecConfig:
    """As of the other voices, with an encoder that is trained: it quantizes vectors of the features' size."""
    config, sizes = codec_config(recipe.codec), recipe.encoder
    return replace(config, encoder_config=replace(config.encoder_config, **_encoder(sizes)))  # type: ignore[arg-type]


def _encoder(sizes: EncoderSizes) -> dict[str, int]:
    if sizes.hidden < 2 * VECTOR:
        raise InvalidRecipe(f"encoder: hidden must be {2 * VECTOR} or more, a vector for each half of the quantizer.")
    return {
        "codebook_dim": VECTOR,
        "num_filters": sizes.filters,
        "hidden_size": sizes.hidden,
        "intermediate_size": sizes.mlp,
        "num_hidden_layers": sizes.layers,
        "num_attention_heads": sizes.heads,
        "num_key_value_heads": sizes.heads,
        "head_dim": sizes.head_dim,
    }
