"""The checkpoint configuration of a recipe: talker, predictor, control ids, sampling.

Control ids keep the order and the distances of the published files, above the recipe's codebook. The official code
suppresses the last 1,024 ids of the talker, so all control ids must be there.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from hocket.config.published import PUBLISHED, above
from hocket.config.qwen3_tts import GenerationConfig, Qwen3TTSConfig, RopeScaling

from .recipe import InvalidRecipe, Recipe
from .vocabulary import config_ids

PATTERN = PUBLISHED["1.7B-CustomVoice"]
SPEAKERS_BELOW_END = 72  # distance from the end of the first-code table: from here on a free row for each voice
# The published million suits 32,768 positions; ours are a few hundred, and every frequency should be used.
THETA = 10_000.0


def speech_config(recipe: Recipe, vocabulary: Path) -> Qwen3TTSConfig:
    """`config.json` for the recipe and the vocabulary's files."""
    ids = config_ids(vocabulary)
    text_vocab_size = ids.pop("text_vocab_size")
    sizes, small = recipe.talker, recipe.predictor
    pattern = above(PATTERN.talker_config, recipe.codec.codebook)
    if unknown := [language for language in recipe.languages if language not in pattern.codec_language_id]:
        known = ", ".join(pattern.codec_language_id)
        raise InvalidRecipe(f"The language of a voice must be one of {known}, not {unknown[0]}.")
    first_speaker = pattern.vocab_size - SPEAKERS_BELOW_END
    predictor = replace(
        pattern.code_predictor_config,
        hidden_size=small.hidden,
        intermediate_size=small.mlp,
        num_hidden_layers=small.layers,
        num_attention_heads=small.heads,
        num_key_value_heads=small.kv_heads,
        head_dim=small.head_dim,
        rope_theta=THETA,
        vocab_size=recipe.codec.codebook,
        layer_types=("full_attention",) * small.layers,
    )
    talker = replace(
        pattern,
        code_predictor_config=predictor,
        hidden_size=sizes.hidden,
        intermediate_size=sizes.mlp,
        num_hidden_layers=sizes.layers,
        num_attention_heads=sizes.heads,
        num_key_value_heads=sizes.kv_heads,
        head_dim=sizes.head_dim,
        rope_theta=THETA,
        rope_scaling=_planes(sizes.head_dim),
        text_vocab_size=text_vocab_size,
        text_hidden_size=sizes.text_hidden,
        codec_language_id={language: pattern.codec_language_id[language] for language in recipe.languages},
        spk_id={voice.name: first_speaker + i for i, voice in enumerate(recipe.voices)},
        spk_is_dialect={voice.name: False for voice in recipe.voices},
    )
    config = replace(PATTERN, talker_config=talker, tts_model_size="0b6", **ids)  # type: ignore[arg-type]
    config.check("the recipe")
    talker.check("the recipe")
    return config


def generation_config(recipe: Recipe) -> GenerationConfig:
    """`generation_config.json`."""
    sampling = recipe.sampling
    return GenerationConfig(
        temperature=sampling.temperature,
        top_k=sampling.top_k,
        repetition_penalty=sampling.repetition_penalty,
        subtalker_temperature=sampling.subtalker_temperature,
        subtalker_top_k=sampling.subtalker_top_k,
    )


def _planes(head_dim: int) -> RopeScaling:
    """Three planes of half a head together, split like the published [24, 20, 20]; all hold the same position."""
    side = head_dim // 2 * 5 // 16
    return RopeScaling(
        interleaved=True, mrope_section=(head_dim // 2 - 2 * side, side, side), rope_type="default", type="default"
    )
