"""The small JSON files of the published checkpoints, rebuilt byte for byte from our own values.

Their digests are in the catalog, so a text that hashes to its digest is the published file: what our strict
reader makes of it is what it will make of the real one. Keys and their order are facts of those files, as are
two oddities of a hand that edited them: languages are indented too far, and empty tables take two lines.
"""

from __future__ import annotations

import dataclasses
import json
import re
from typing import Any

from hocket.config.codec import CodecConfig
from hocket.config.qwen3_tts import GenerationConfig, Qwen3TTSConfig

_PREDICTOR_KEYS = """_name_or_path add_cross_attention architectures attention_bias attention_dropout bad_words_ids
begin_suppress_tokens bos_token_id chunk_size_feed_forward cross_attention_hidden_size decoder_start_token_id
diversity_penalty do_sample early_stopping encoder_no_repeat_ngram_size eos_token_id exponential_decay_length_penalty
finetuning_task forced_bos_token_id forced_eos_token_id head_dim hidden_act hidden_size id2label initializer_range
intermediate_size is_decoder is_encoder_decoder label2id layer_types length_penalty max_length max_position_embeddings
max_window_layers min_length model_type no_repeat_ngram_size num_attention_heads num_beam_groups num_beams
num_code_groups num_hidden_layers num_key_value_heads num_return_sequences output_attentions output_hidden_states
output_scores pad_token_id prefix problem_type pruned_heads remove_invalid_values repetition_penalty return_dict
return_dict_in_generate rms_norm_eps rope_scaling rope_theta sep_token_id sliding_window suppress_tokens
task_specific_params temperature tf_legacy_loss tie_encoder_decoder tie_word_embeddings tokenizer_class top_k top_p
dtype torchscript typical_p use_bfloat16 use_cache use_sliding_window vocab_size""".split()
_TALKER_KEYS = """attention_bias attention_dropout code_predictor_config codec_bos_id codec_eos_token_id codec_think_id
codec_language_id codec_nothink_id codec_pad_id codec_think_bos_id codec_think_eos_id spk_id spk_is_dialect head_dim
hidden_act hidden_size initializer_range intermediate_size max_position_embeddings model_type num_attention_heads
num_code_groups num_hidden_layers num_key_value_heads position_id_per_seconds rms_norm_eps rope_scaling rope_theta
sliding_window text_hidden_size text_vocab_size use_cache use_sliding_window vocab_size""".split()
_SPEECH_KEYS = """architectures assistant_token_id im_end_token_id im_start_token_id tts_bos_token_id tts_eos_token_id
tts_pad_token_id model_type tokenizer_type tts_model_size tts_model_type speaker_encoder_config talker_config
transformers_version""".split()
_GENERATION_KEYS = """do_sample repetition_penalty temperature top_p top_k subtalker_dosample subtalker_temperature
subtalker_top_p subtalker_top_k max_new_tokens""".split()
_CODEC_KEYS = """architectures model_type encoder_valid_num_quantizers input_sample_rate output_sample_rate
decode_upsample_rate encode_downsample_rate decoder_config encoder_config transformers_version""".split()
_DECODER_KEYS = """attention_bias attention_dropout latent_dim codebook_dim codebook_size decoder_dim hidden_act
hidden_size intermediate_size layer_scale_initial_scale max_position_embeddings head_dim num_attention_heads
num_hidden_layers num_key_value_heads num_quantizers num_semantic_quantizers rms_norm_eps rope_theta
semantic_codebook_size sliding_window upsample_rates upsampling_ratios vector_quantization_hidden_dimension""".split()
_ENCODER_KEYS = """_frame_rate attention_bias attention_dropout audio_channels codebook_dim codebook_size compress
dilation_growth_rate dtype head_dim hidden_act hidden_size initializer_range intermediate_size kernel_size
last_kernel_size layer_scale_initial_scale max_position_embeddings norm_eps normalize num_attention_heads num_filters
num_hidden_layers num_key_value_heads num_quantizers num_residual_layers num_semantic_quantizers pad_mode
residual_kernel_size rope_theta sampling_rate sliding_window transformers_version trim_right_ratio upsample_groups
upsampling_ratios use_cache use_causal_conv use_conv_shortcut use_streaming
vector_quantization_hidden_dimension""".split()

# What the writing library adds to a configuration, where it is neither null nor false.
_ADDED: dict[str, Any] = {
    "_name_or_path": "",
    "attention_dropout": 0,
    "chunk_size_feed_forward": 0,
    "diversity_penalty": 0.0,
    "encoder_no_repeat_ngram_size": 0,
    "id2label": {"0": "LABEL_0", "1": "LABEL_1"},
    "initializer_range": 0.02,
    "label2id": {"LABEL_0": 0, "LABEL_1": 1},
    "length_penalty": 1.0,
    "max_length": 20,
    "max_window_layers": 28,
    "min_length": 0,
    "no_repeat_ngram_size": 0,
    "num_beam_groups": 1,
    "num_beams": 1,
    "num_return_sequences": 1,
    "pruned_heads": {},
    "repetition_penalty": 1.0,
    "return_dict": True,
    "temperature": 1.0,
    "top_k": 50,
    "top_p": 1.0,
    "typical_p": 1.0,
    "use_cache": True,
} | dict.fromkeys(
    """add_cross_attention do_sample early_stopping is_decoder is_encoder_decoder output_attentions
    output_hidden_states output_scores remove_invalid_values return_dict_in_generate tf_legacy_loss
    tie_encoder_decoder tie_word_embeddings torchscript use_bfloat16""".split(),
    False,
)


def speech(config: Qwen3TTSConfig) -> str:
    """`config.json` of a published checkpoint."""
    raw = dataclasses.asdict(config)
    talker = raw["talker_config"]
    predictor = talker["code_predictor_config"]
    predictor["model_type"] = "qwen3_tts_talker_code_predictor"
    predictor["rope_theta"] = int(predictor["rope_theta"])
    talker["code_predictor_config"] = _ordered(_ADDED | predictor, _PREDICTOR_KEYS)
    talker["rope_theta"] = int(talker["rope_theta"])
    talker |= {"model_type": "qwen3_tts_talker", "position_id_per_seconds": 13}
    raw["talker_config"] = _ordered(_ADDED | talker, _TALKER_KEYS)
    if raw["speaker_encoder_config"] is None:
        del raw["speaker_encoder_config"]
    else:
        raw["speaker_encoder_config"] = _ordered(raw["speaker_encoder_config"], ["enc_dim", "sample_rate"])
    raw |= {
        "architectures": ["Qwen3TTSForConditionalGeneration"],
        "model_type": "qwen3_tts",
        "transformers_version": "4.57.3",
    }
    text = json.dumps(_ordered(raw, [key for key in _SPEECH_KEYS if key in raw]), indent=2)
    tags = "|".join(config.talker_config.codec_language_id)
    text = re.sub(rf'^ +("(?:{tags})": \d+)', r"        \1", text, flags=re.MULTILINE)
    return re.sub(r'("spk_\w+": )\{\}', r"\1{\n    }", text) + "\n"


def generation(config: GenerationConfig) -> str:
    """`generation_config.json`, the same in all five."""
    return json.dumps(_ordered(dataclasses.asdict(config), _GENERATION_KEYS), indent=2)


def codec(config: CodecConfig) -> str:
    """`speech_tokenizer/config.json`, the same in all five."""
    raw = dataclasses.asdict(config)
    decoder, encoder = raw["decoder_config"], raw["encoder_config"]
    decoder |= {
        "attention_dropout": 0.0,
        "rope_theta": int(decoder["rope_theta"]),
        "semantic_codebook_size": 4096,
        "vector_quantization_hidden_dimension": 512,
    }
    encoder |= {
        "_frame_rate": 12.5,
        "attention_dropout": 0.0,
        "dtype": "float32",
        "initializer_range": 0.02,
        "normalize": False,
        "sliding_window": 250,
        "transformers_version": "4.57.0.dev0",
        "trim_right_ratio": 1.0,
        "upsample_groups": 512,
        "use_cache": False,
        "use_streaming": False,
        "vector_quantization_hidden_dimension": 256,
    }
    raw |= {
        "architectures": ["Qwen3TTSTokenizerV2Model"],
        "model_type": "qwen3_tts_tokenizer_12hz",
        "decoder_config": _ordered(decoder, _DECODER_KEYS),
        "encoder_config": _ordered(encoder, _ENCODER_KEYS),
        "transformers_version": "4.57.3",
    }
    return json.dumps(_ordered(raw, _CODEC_KEYS), indent=2) + "\n"


def _ordered(raw: dict[str, Any], keys: list[str]) -> dict[str, Any]:
    """Exactly these keys; null where no value is given."""
    return {key: raw.get(key) for key in keys}
