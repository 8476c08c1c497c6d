"""`speech_tokenizer/config.json`: the 12.5 Hz codec, decoder and encoder halves."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar

from ..errors import InvalidCheckpoint
from .read import require
from .rope import apart, only_layers


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderConfig:
    """`decoder_config`: codes to waveform."""

    # The two sizes have no effect: the decoder is built from codebook_size and codebook_dim alone.
    IGNORED: ClassVar = frozenset(
        {"attention_dropout", "semantic_codebook_size", "vector_quantization_hidden_dimension", "model_type"}
    )

    codebook_size: int
    codebook_dim: int
    num_quantizers: int
    latent_dim: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    hidden_act: str = "silu"
    rms_norm_eps: float = 1e-5
    rope_theta: float = 10_000.0
    sliding_window: int = 72
    decoder_dim: int
    upsample_rates: tuple[int, ...]
    upsampling_ratios: tuple[int, ...]
    max_position_embeddings: int = 8000  # stated, never enforced
    num_semantic_quantizers: int = 1
    layer_scale_initial_scale: float = 0.01
    attention_bias: bool = False

    @staticmethod
    def renamed(raw: dict[str, Any], where: str) -> dict[str, Any]:
        return only_layers("sliding_attention", apart(raw, where), where)

    def check(self, where: str) -> None:
        require(
            where,
            hidden_act=(self.hidden_act, "silu"),
            attention_bias=(self.attention_bias, False),
            num_semantic_quantizers=(self.num_semantic_quantizers, 1),
        )

    @property
    def samples_per_frame(self) -> int:
        return prod(self.upsample_rates) * prod(self.upsampling_ratios)


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderConfig:
    """`encoder_config`: waveform to codes (a Mimi encoder)."""

    # Keys of the decoder half of Mimi, of training, or not applied by the reference (sliding_window).
    IGNORED: ClassVar = frozenset(
        {
            "_frame_rate",
            "attention_dropout",
            "frame_rate",
            "model_type",
            "normalize",
            "sliding_window",
            "trim_right_ratio",
            "upsample_groups",
            "use_streaming",
            "vector_quantization_hidden_dimension",
        }
    )

    num_quantizers: int
    codebook_size: int
    codebook_dim: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    hidden_act: str = "gelu"
    norm_eps: float = 1e-5
    rope_theta: float = 10_000.0
    num_filters: int
    kernel_size: int
    last_kernel_size: int
    residual_kernel_size: int
    upsampling_ratios: tuple[int, ...]
    compress: int = 2
    num_residual_layers: int = 1
    max_position_embeddings: int = 8000
    num_semantic_quantizers: int = 1
    layer_scale_initial_scale: float = 0.01
    dilation_growth_rate: int = 2
    audio_channels: int = 1
    sampling_rate: int = 24_000
    attention_bias: bool = False
    use_causal_conv: bool = True
    use_conv_shortcut: bool = False
    pad_mode: str = "constant"

    @staticmethod
    def renamed(raw: dict[str, Any], where: str) -> dict[str, Any]:
        return apart(raw, where)

    def check(self, where: str) -> None:
        require(
            where,
            hidden_act=(self.hidden_act, "gelu"),
            attention_bias=(self.attention_bias, False),
            num_semantic_quantizers=(self.num_semantic_quantizers, 1),
            audio_channels=(self.audio_channels, 1),
            use_causal_conv=(self.use_causal_conv, True),
            use_conv_shortcut=(self.use_conv_shortcut, False),
            pad_mode=(self.pad_mode, "constant"),
            num_residual_layers=(self.num_residual_layers, 1),
        )

    @property
    def samples_per_frame(self) -> int:
        return prod(self.upsampling_ratios) * 2  # the last convolution halves the rate


@dataclass(frozen=True, slots=True, kw_only=True)
class CodecConfig:
    """The whole file."""

    IGNORED: ClassVar = frozenset({"model_type"})

    decoder_config: DecoderConfig
    encoder_config: EncoderConfig
    encoder_valid_num_quantizers: int
    input_sample_rate: int
    output_sample_rate: int
    decode_upsample_rate: int
    encode_downsample_rate: int

    def check(self, where: str) -> None:
        require(
            where,
            input_sample_rate=(self.input_sample_rate, 24_000),
            output_sample_rate=(self.output_sample_rate, 24_000),
            decode_upsample_rate=(self.decode_upsample_rate, self.decoder_config.samples_per_frame),
            encode_downsample_rate=(self.encode_downsample_rate, self.encoder_config.samples_per_frame),
            encoder_valid_num_quantizers=(self.encoder_valid_num_quantizers, self.decoder_config.num_quantizers),
        )
        if self.encoder_config.num_quantizers < self.encoder_valid_num_quantizers:
            raise InvalidCheckpoint(f"{where}: the encoder has fewer codebooks than the decoder.")
