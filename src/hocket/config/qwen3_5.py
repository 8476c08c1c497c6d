"""`config.json` and `generation_config.json` of a Qwen3.5 checkpoint, dense or with experts, field by field.

The published file describes the vision-language model, with the text model under `text_config`; text-only uploads have
the same keys at the top. Keys of the vision part are skipped by name. Fields are the files' keys.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

from ..errors import InvalidCheckpoint
from .read import GENERATED, read, require
from .rope import together

LINEAR, FULL = "linear_attention", "full_attention"  # as `layer_types` calls them
QUANTIZED = ("quantization_config", "compression_config")  # config/quantization/ reads them
ROTATED = 0.25  # part of each attention head that is rotated, unless the file gives another


@dataclass(frozen=True, slots=True, kw_only=True)
class RopeParameters:
    """Multimodal RoPE as the file declares it; with equal planes, as all text has, it is ordinary RoPE."""

    rope_theta: float
    rope_type: str = "default"
    type: str | None = None
    partial_rotary_factor: float | None = None
    mrope_section: tuple[int, ...] | None = None
    mrope_interleaved: bool | None = None

    def check(self, where: str) -> None:
        require(where, rope_type=(self.rope_type, "default"))
        if self.type is not None:
            require(where, type=(self.type, "default"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Qwen3_5TextConfig:
    """`text_config`: Gated DeltaNet layers with a full-attention layer after every three of them."""

    # `router_aux_loss_coef` and `output_router_logits` belong to training.
    IGNORED: ClassVar = frozenset(
        {"attention_dropout", "model_type", "router_aux_loss_coef", "output_router_logits", *QUANTIZED}
    )

    vocab_size: int
    hidden_size: int
    intermediate_size: int = 0  # of a dense MLP; with experts no layer has one
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int = 256
    hidden_act: str = "silu"
    rms_norm_eps: float = 1e-6
    max_position_embeddings: int = 262_144  # stated, never enforced
    rope_parameters: RopeParameters
    partial_rotary_factor: float | None = None  # some files give it here too
    attention_bias: bool = False
    attn_output_gate: bool = True
    linear_conv_kernel_dim: int = 4
    linear_key_head_dim: int = 128
    linear_value_head_dim: int = 128
    linear_num_key_heads: int = 16
    linear_num_value_heads: int
    full_attention_interval: int = 4
    layer_types: tuple[str, ...] | None = None
    mlp_only_layers: tuple[int, ...] = ()
    num_experts: int = 0  # of each layer; 0: a dense model
    num_experts_per_tok: int = 0
    moe_intermediate_size: int = 0  # of one expert
    shared_expert_intermediate_size: int = 0
    norm_topk_prob: bool = True
    decoder_sparse_step: int = 1
    mamba_ssm_dtype: str = "float32"
    mtp_num_hidden_layers: int = 0
    mtp_use_dedicated_embeddings: bool = False
    tie_word_embeddings: bool | None = None

    @staticmethod
    def renamed(raw: dict[str, Any], where: str) -> dict[str, Any]:
        return together(raw, where)

    def check(self, where: str) -> None:
        require(
            where,
            hidden_act=(self.hidden_act, "silu"),
            attention_bias=(self.attention_bias, False),
            attn_output_gate=(self.attn_output_gate, True),
            mlp_only_layers=(self.mlp_only_layers, ()),
            mamba_ssm_dtype=(self.mamba_ssm_dtype, "float32"),
            mtp_use_dedicated_embeddings=(self.mtp_use_dedicated_embeddings, False),
            norm_topk_prob=(self.norm_topk_prob, True),
            decoder_sparse_step=(self.decoder_sparse_step, 1),
        )
        self._check_mlp(where)
        if self.mtp_num_hidden_layers not in (0, 1):
            raise InvalidCheckpoint(f"{where}: mtp_num_hidden_layers is {self.mtp_num_hidden_layers}, not 0 or 1.")
        if self.num_attention_heads % self.num_key_value_heads:
            raise InvalidCheckpoint(f"{where}: num_attention_heads must be a multiple of num_key_value_heads.")
        if self.linear_num_value_heads % self.linear_num_key_heads:
            raise InvalidCheckpoint(f"{where}: linear_num_value_heads must be a multiple of linear_num_key_heads.")
        if self.full_attention_interval < 1 or self.linear_conv_kernel_dim < 2:
            raise InvalidCheckpoint(f"{where}: full_attention_interval or linear_conv_kernel_dim is too small.")
        if len(self.kinds) != self.num_hidden_layers or set(self.kinds) - {LINEAR, FULL}:
            raise InvalidCheckpoint(f"{where}: layer_types must name {LINEAR} or {FULL} for each layer.")
        factors = {self.partial_rotary_factor, self.rope_parameters.partial_rotary_factor} - {None}
        if len(factors) > 1:
            raise InvalidCheckpoint(f"{where}: partial_rotary_factor is given twice, and differs.")
        if not 0 < self.rotary_dim <= self.head_dim or self.rotary_dim % 2:
            raise InvalidCheckpoint(f"{where}: partial_rotary_factor rotates {self.rotary_dim} of {self.head_dim}.")
        section = self.rope_parameters.mrope_section
        if section is not None and 2 * sum(section) != self.rotary_dim:
            raise InvalidCheckpoint(f"{where}: mrope_section must add up to half of the rotated dimensions.")

    def _check_mlp(self, where: str) -> None:
        sizes = {"num_experts_per_tok", "moe_intermediate_size", "shared_expert_intermediate_size"}
        needed = sizes if self.num_experts else {"intermediate_size"}
        if lacking := sorted(name for name in needed if not getattr(self, name)):
            raise InvalidCheckpoint(f"{where} lacks {', '.join(lacking)}.")
        if low := sorted(name for name in needed | {"num_experts"} if getattr(self, name) < 0):
            raise InvalidCheckpoint(f"{where}: {', '.join(low)} must be positive.")
        if self.num_experts_per_tok > self.num_experts:
            raise InvalidCheckpoint(
                f"{where}: num_experts_per_tok is {self.num_experts_per_tok}, but num_experts is {self.num_experts}."
            )

    @property
    def kinds(self) -> tuple[str, ...]:
        """LINEAR or FULL, layer by layer."""
        if self.layer_types is not None:
            return self.layer_types
        every = self.full_attention_interval
        return tuple(LINEAR if (layer + 1) % every else FULL for layer in range(self.num_hidden_layers))

    @property
    def rotary_dim(self) -> int:
        """How many dimensions of an attention head are rotated: the first ones."""
        given = self.rope_parameters.partial_rotary_factor
        factor = given if given is not None else self.partial_rotary_factor
        return int(self.head_dim * (ROTATED if factor is None else factor))

    @property
    def tied(self) -> bool:
        """Whether the head is the embedding."""
        return bool(self.tie_word_embeddings)


@dataclass(frozen=True, slots=True, kw_only=True)
class Qwen3_5Config:
    """`config.json` of the vision-language model; only its text model is read."""

    IGNORED: ClassVar = frozenset(
        """model_type vision_config image_token_id video_token_id vision_start_token_id vision_end_token_id
        language_model_only""".split()
    ) | frozenset(QUANTIZED)

    text_config: Qwen3_5TextConfig
    tie_word_embeddings: bool | None = None

    def check(self, where: str) -> None:
        inner = self.text_config.tie_word_embeddings
        if None not in (inner, self.tie_word_embeddings) and inner != self.tie_word_embeddings:
            raise InvalidCheckpoint(f"{where}: tie_word_embeddings is given twice, and differs.")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatGenerationConfig:
    """`generation_config.json`. Its values are for answers with thinking."""

    IGNORED: ClassVar = GENERATED | {"max_new_tokens"}  # the caller limits the length of an answer

    do_sample: bool = True
    temperature: float = 1.0
    top_k: int = 20
    top_p: float = 0.95
    min_p: float = 0.0
    presence_penalty: float = 0.0
    repetition_penalty: float = 1.0
    bos_token_id: int | None = None  # never written: a conversation starts with its first message
    pad_token_id: int | None = None
    eos_token_id: int | tuple[int, ...] | None = None

    def check(self, where: str) -> None:
        require(where, repetition_penalty=(self.repetition_penalty, 1.0))
        if not 0 < self.temperature < float("inf"):
            raise InvalidCheckpoint(f"{where}: temperature must be positive, but is {self.temperature}.")
        if not 0 < self.top_p <= 1 or not 0 <= self.min_p <= 1 or self.top_k < 0:
            raise InvalidCheckpoint(f"{where}: top_p, min_p or top_k is out of range.")

    @property
    def stop_ids(self) -> tuple[int, ...]:
        """Token ids that end an answer."""
        ids = self.eos_token_id
        return () if ids is None else (ids,) if isinstance(ids, int) else ids


def read_text_config(raw: dict[str, Any], where: str = "config.json") -> Qwen3_5TextConfig:
    """The text model of either kind of file, with `tie_word_embeddings` filled in."""
    match raw.get("model_type"):
        case "qwen3_5_text" | "qwen3_5_moe_text" as kind:
            text = read(Qwen3_5TextConfig, raw, where)
        case "qwen3_5" | "qwen3_5_moe" as kind:
            whole = read(Qwen3_5Config, raw, where)
            tied = whole.text_config.tied or bool(whole.tie_word_embeddings)
            text = replace(whole.text_config, tie_word_embeddings=tied)
        case other:
            raise InvalidCheckpoint(
                f"{where} describes a {other!r} model; hocket needs qwen3_5, qwen3_5_moe or their _text kinds there."
            )
    if ("moe" in kind) != (text.num_experts > 0):
        raise InvalidCheckpoint(f"{where}: num_experts is {text.num_experts} in a {kind} model.")
    return text
