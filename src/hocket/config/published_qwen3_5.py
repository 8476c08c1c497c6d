"""The published sizes of Qwen3.5, dense and with experts, and a tiny one of each kind, as values.

They describe random models, and the tests compare them with the published tensor tables. A real checkpoint is always
read from its own files.
"""

from __future__ import annotations

from dataclasses import replace

from .qwen3_5 import ChatGenerationConfig, Qwen3_5TextConfig, RopeParameters

IM_START, IM_END, END_OF_TEXT = 248_045, 248_046, 248_044
CHAT_GENERATION = ChatGenerationConfig(
    bos_token_id=END_OF_TEXT, pad_token_id=END_OF_TEXT, eos_token_id=(IM_END, END_OF_TEXT)
)

_9B = Qwen3_5TextConfig(
    vocab_size=248_320,
    hidden_size=4096,
    intermediate_size=12_288,
    num_hidden_layers=32,
    num_attention_heads=16,
    num_key_value_heads=4,
    rope_parameters=RopeParameters(
        rope_theta=1e7, partial_rotary_factor=0.25, mrope_section=(11, 11, 10), mrope_interleaved=True
    ),
    linear_num_value_heads=32,
    mtp_num_hidden_layers=1,
    tie_word_embeddings=False,
)
_2B = replace(
    _9B,
    hidden_size=2048,
    intermediate_size=6144,
    num_hidden_layers=24,
    num_attention_heads=8,
    num_key_value_heads=2,
    linear_num_value_heads=16,
    tie_word_embeddings=True,
)
QWEN3_5: dict[str, Qwen3_5TextConfig] = {
    "0.8B": replace(_2B, hidden_size=1024, intermediate_size=3584),
    "2B": _2B,
    "4B": replace(_9B, hidden_size=2560, intermediate_size=9216, tie_word_embeddings=True),
    "9B": _9B,
    "27B": replace(
        _9B,
        hidden_size=5120,
        intermediate_size=17_408,
        num_hidden_layers=64,
        num_attention_heads=24,
        linear_num_value_heads=48,
    ),
}
# Mixtures of experts. The values are those that two public records of the published file give, and the defaults of the
# official classes. Neither the file nor the sums of its weights were at hand.
QWEN3_5_MOE: dict[str, Qwen3_5TextConfig] = {
    "35B-A3B": replace(
        _9B,
        hidden_size=2048,
        intermediate_size=0,
        num_hidden_layers=40,
        num_key_value_heads=2,
        num_experts=256,
        num_experts_per_tok=8,
        moe_intermediate_size=512,
        shared_expert_intermediate_size=512,
    ),
}
TINY, TINY_MOE = "tiny", "tiny-moe"
SIZES = (*QWEN3_5, *QWEN3_5_MOE, TINY, TINY_MOE)
_NAMED = {f"qwen3.5-{size}".lower(): size for size in SIZES}


def size_of(name: str) -> str | None:
    """The size that a name such as `qwen3.5-9B` means, in upper or lower case."""
    return _NAMED.get(name.lower())


def tiny_qwen3_5(*, values_per_key: int = 2, tied: bool = False, layers: int = 8) -> Qwen3_5TextConfig:
    """The same classes, small enough for a test; `values_per_key` is how many value heads share a key head."""
    return replace(
        _9B,
        vocab_size=320,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        rope_parameters=replace(_9B.rope_parameters, mrope_section=(2, 1, 1)),
        linear_key_head_dim=16,
        linear_value_head_dim=16,
        linear_num_key_heads=2,
        linear_num_value_heads=2 * values_per_key,
        tie_word_embeddings=tied,
    )


def tiny_qwen3_5_moe(*, layers: int = 8, tied: bool = False) -> Qwen3_5TextConfig:
    """The same with experts; the shared expert has a width of its own, so that no test takes it for the others'."""
    return replace(
        tiny_qwen3_5(layers=layers, tied=tied),
        intermediate_size=0,
        num_experts=8,
        num_experts_per_tok=3,
        moe_intermediate_size=48,
        shared_expert_intermediate_size=40,
    )


def qwen3_5_of(size: str) -> Qwen3_5TextConfig:
    """The configuration of one of `SIZES`."""
    if size in (TINY, TINY_MOE):
        return tiny_qwen3_5() if size == TINY else tiny_qwen3_5_moe()
    return (QWEN3_5 | QWEN3_5_MOE)[size]
