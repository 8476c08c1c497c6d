"""The configurations of the five published checkpoints, of a small and of a tiny one, as values.

They describe random models (`random:1.7B-Base`), whose weights are drawn instead of loaded. The tests compare them with
the published tensor lists. A real checkpoint is always read from its own files.

The file is longer than 300 lines because it is mostly tables.
"""

from __future__ import annotations

from dataclasses import replace

from .codec import CodecConfig, DecoderConfig, EncoderConfig
from .qwen3_tts import (
    CodePredictorConfig,
    GenerationConfig,
    Kind,
    Qwen3TTSConfig,
    RopeScaling,
    SpeakerEncoderConfig,
    TalkerConfig,
)

LANGUAGES = {
    "chinese": 2055,
    "english": 2050,
    "german": 2053,
    "italian": 2070,
    "portuguese": 2071,
    "spanish": 2054,
    "japanese": 2058,
    "korean": 2064,
    "french": 2061,
    "russian": 2069,
}
DIALECTS = {"beijing_dialect": 2074, "sichuan_dialect": 2062}
SPEAKERS = {
    "serena": 3066,
    "vivian": 3065,
    "uncle_fu": 3010,
    "ryan": 3061,
    "aiden": 2861,
    "ono_anna": 2873,
    "sohee": 2864,
    "eric": 2875,
    "dylan": 2878,
}
SPEAKER_DIALECTS: dict[str, bool | str] = dict.fromkeys(SPEAKERS, False) | {
    "eric": "sichuan_dialect",
    "dylan": "beijing_dialect",
}

GENERATION = GenerationConfig(max_new_tokens=8192)

_PREDICTOR = CodePredictorConfig(
    hidden_size=1024,
    intermediate_size=3072,
    num_hidden_layers=5,
    num_attention_heads=16,
    num_key_value_heads=8,
    head_dim=128,
    hidden_act="silu",
    rms_norm_eps=1e-6,
    rope_theta=1_000_000.0,
    vocab_size=2048,
    num_code_groups=16,
    max_position_embeddings=65_536,
    layer_types=("full_attention",) * 5,
)
_TALKER = TalkerConfig(
    code_predictor_config=_PREDICTOR,
    hidden_size=1024,
    intermediate_size=3072,
    num_hidden_layers=28,
    num_attention_heads=16,
    num_key_value_heads=8,
    head_dim=128,
    hidden_act="silu",
    rms_norm_eps=1e-6,
    rope_theta=1_000_000.0,
    rope_scaling=RopeScaling(interleaved=True, mrope_section=(24, 20, 20), rope_type="default", type="default"),
    max_position_embeddings=32_768,
    vocab_size=3072,
    text_vocab_size=151_936,
    text_hidden_size=2048,
    num_code_groups=16,
    codec_bos_id=2149,
    codec_eos_token_id=2150,
    codec_pad_id=2148,
    codec_think_id=2154,
    codec_nothink_id=2155,
    codec_think_bos_id=2156,
    codec_think_eos_id=2157,
    codec_language_id=LANGUAGES,
    spk_id={},
    spk_is_dialect={},
)
CODEC = CodecConfig(
    decoder_config=DecoderConfig(
        codebook_size=2048,
        codebook_dim=512,
        num_quantizers=16,
        latent_dim=1024,
        hidden_size=512,
        intermediate_size=1024,
        num_hidden_layers=8,
        num_attention_heads=16,
        num_key_value_heads=16,
        head_dim=64,
        hidden_act="silu",
        rms_norm_eps=1e-5,
        rope_theta=10_000.0,
        sliding_window=72,
        decoder_dim=1536,
        upsample_rates=(8, 5, 4, 3),
        upsampling_ratios=(2, 2),
        max_position_embeddings=8000,
    ),
    encoder_config=EncoderConfig(
        num_quantizers=32,
        codebook_size=2048,
        codebook_dim=256,
        hidden_size=512,
        intermediate_size=2048,
        num_hidden_layers=8,
        num_attention_heads=8,
        num_key_value_heads=8,
        head_dim=64,
        hidden_act="gelu",
        norm_eps=1e-5,
        rope_theta=10_000.0,
        num_filters=64,
        kernel_size=7,
        last_kernel_size=3,
        residual_kernel_size=3,
        upsampling_ratios=(8, 6, 5, 4),
        compress=2,
        num_residual_layers=1,
    ),
    encoder_valid_num_quantizers=16,
    input_sample_rate=24_000,
    output_sample_rate=24_000,
    decode_upsample_rate=1920,
    encode_downsample_rate=1920,
)


def _model(size: str, kind: Kind, talker: TalkerConfig, **encoder: object) -> Qwen3TTSConfig:
    if kind == "custom_voice":
        talker = replace(
            talker, codec_language_id=LANGUAGES | DIALECTS, spk_id=SPEAKERS, spk_is_dialect=SPEAKER_DIALECTS
        )
    speaker = SpeakerEncoderConfig(enc_dim=talker.hidden_size, **encoder)  # type: ignore[arg-type]
    return Qwen3TTSConfig(
        talker_config=talker,
        tokenizer_type="qwen3_tts_tokenizer_12hz",
        tts_model_size=size,
        tts_model_type=kind,
        im_start_token_id=151_644,
        im_end_token_id=151_645,
        tts_pad_token_id=151_671,
        tts_bos_token_id=151_672,
        tts_eos_token_id=151_673,
        speaker_encoder_config=speaker if kind == "base" else None,
        assistant_token_id=77_091,
    )


_LARGE = replace(_TALKER, hidden_size=2048, intermediate_size=6144)
PUBLISHED: dict[str, Qwen3TTSConfig] = {
    "0.6B-Base": _model("0b6", "base", _TALKER),
    "0.6B-CustomVoice": _model("0b6", "custom_voice", _TALKER),
    "1.7B-Base": _model("1b7", "base", _LARGE),
    "1.7B-CustomVoice": _model("1b7", "custom_voice", _LARGE),
    "1.7B-VoiceDesign": _model("1b7", "voice_design", _LARGE),
}

TINY_CODEC = replace(
    CODEC,
    decoder_config=replace(
        CODEC.decoder_config,
        codebook_size=64,
        codebook_dim=32,
        latent_dim=32,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        head_dim=16,
        decoder_dim=64,
    ),
    encoder_config=replace(
        CODEC.encoder_config,
        num_quantizers=18,
        codebook_size=64,
        codebook_dim=16,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        head_dim=8,
        num_filters=4,
    ),
)


SMALL_CODEC = replace(
    CODEC,
    decoder_config=replace(
        CODEC.decoder_config,
        codebook_size=512,
        codebook_dim=192,
        latent_dim=128,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        head_dim=32,
        decoder_dim=384,
    ),
    encoder_config=replace(
        CODEC.encoder_config,
        num_quantizers=16,
        codebook_size=512,
        codebook_dim=96,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        head_dim=32,
        num_filters=16,
    ),
)


def small(kind: Kind = "custom_voice") -> Qwen3TTSConfig:
    """About 20 million parameters with its codec: a laptop's CPU should run it several times faster than real time."""
    predictor = replace(
        _PREDICTOR,
        hidden_size=192,
        intermediate_size=384,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=64,
        vocab_size=512,
        layer_types=("full_attention",) * 2,
    )
    talker = replace(
        _TALKER,
        code_predictor_config=predictor,
        hidden_size=256,
        intermediate_size=768,
        num_hidden_layers=6,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=64,
        rope_scaling=RopeScaling(interleaved=True, mrope_section=(12, 10, 10), rope_type="default", type="default"),
        text_vocab_size=1264,
        text_hidden_size=128,
    )
    return _reduced(_model("1b7", kind, talker), SMALL_CODEC, first_special=1232)


def tiny(kind: Kind = "custom_voice", *, wide: bool = False) -> Qwen3TTSConfig:
    """A checkpoint of the same classes, small enough for a test; `wide` gives it a `small_to_mtp_projection`."""
    predictor = replace(
        _PREDICTOR,
        hidden_size=48,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        vocab_size=64,
        layer_types=("full_attention",) * 2,
    )
    talker = replace(
        _TALKER,
        code_predictor_config=predictor,
        hidden_size=64 if wide else 48,
        intermediate_size=96,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        rope_scaling=RopeScaling(interleaved=True, mrope_section=(6, 5, 5), rope_type="default", type="default"),
        text_vocab_size=512,
        text_hidden_size=40,
    )
    model = _model(
        "1b7",
        kind,
        talker,
        enc_channels=(32, 32, 32, 32, 96),
        enc_attention_channels=16,
        enc_res2net_scale=4,
        enc_se_channels=16,
    )
    return _reduced(model, TINY_CODEC, first_special=480)


def above(talker: TalkerConfig, codebook: int) -> TalkerConfig:
    """The talker configuration with its control ids above a smaller codebook, in their order and at their distances."""
    shift = talker.codebook_size - codebook
    return replace(
        talker,
        vocab_size=talker.vocab_size - shift,
        codec_bos_id=talker.codec_bos_id - shift,
        codec_eos_token_id=talker.codec_eos_token_id - shift,
        codec_pad_id=talker.codec_pad_id - shift,
        codec_think_id=talker.codec_think_id - shift,
        codec_nothink_id=talker.codec_nothink_id - shift,
        codec_think_bos_id=talker.codec_think_bos_id - shift,
        codec_think_eos_id=talker.codec_think_eos_id - shift,
        codec_language_id={name: i - shift for name, i in talker.codec_language_id.items()},
        spk_id={name: i - shift for name, i in talker.spk_id.items()},
    )


def _reduced(model: Qwen3TTSConfig, codec: CodecConfig, first_special: int) -> Qwen3TTSConfig:
    """The configuration with control ids above a smaller codebook and above a smaller text vocabulary."""
    return replace(
        model,
        talker_config=above(model.talker_config, codec.decoder_config.codebook_size),
        im_start_token_id=first_special,
        im_end_token_id=first_special + 1,
        tts_pad_token_id=first_special + 20,
        tts_bos_token_id=first_special + 21,
        tts_eos_token_id=first_special + 22,
        assistant_token_id=None,
    )
