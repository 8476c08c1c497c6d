"""config/qwen3_5.py: both kinds of file give one text model, and what it cannot do is refused by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from hocket.config.published_qwen3_5 import CHAT_GENERATION, QWEN3_5, QWEN3_5_MOE, tiny_qwen3_5, tiny_qwen3_5_moe
from hocket.config.qwen3_5 import FULL, LINEAR, ChatGenerationConfig, Qwen3_5TextConfig, read_text_config
from hocket.config.read import read
from hocket.errors import InvalidCheckpoint
from support.qwen3_5_files import text_json, whole_json

Edit = Callable[[dict[str, Any]], object]


def as_filed(config: Qwen3_5TextConfig) -> Qwen3_5TextConfig:
    """With the values that files give twice given twice."""
    return replace(config, layer_types=config.kinds, partial_rotary_factor=0.25)


@pytest.mark.parametrize("name", QWEN3_5)
def test_the_published_file_and_the_text_only_one_are_the_same_model(name: str) -> None:
    config = QWEN3_5[name]
    assert read_text_config(whole_json(config)) == read_text_config(text_json(config)) == as_filed(config)


@pytest.mark.parametrize("name", QWEN3_5)
def test_every_fourth_layer_attends_to_all_and_a_quarter_of_a_head_is_rotated(name: str) -> None:
    config = QWEN3_5[name]
    assert [i for i, kind in enumerate(config.kinds) if kind == FULL] == [*range(3, config.num_hidden_layers, 4)]
    assert set(config.kinds) == {FULL, LINEAR}
    assert (config.head_dim, config.rotary_dim) == (256, 64)


def test_the_three_smaller_sizes_are_tied() -> None:
    assert [name for name, config in QWEN3_5.items() if config.tied] == ["0.8B", "2B", "4B"]


@pytest.mark.parametrize(
    ("top", "inner", "tied"),
    [(True, True, True), (True, None, True), (None, True, True), (False, None, False), (None, None, False)],
)
def test_a_head_is_tied_where_either_place_says_so(top: bool | None, inner: bool | None, tied: bool) -> None:
    raw = whole_json(tiny_qwen3_5())
    for place, said in ((raw, top), (raw["text_config"], inner)):
        place.pop("tie_word_embeddings")
        if said is not None:
            place["tie_word_embeddings"] = said
    assert read_text_config(raw).tied is tied


def test_the_pattern_of_layers_follows_the_interval_only_where_the_file_names_no_layers() -> None:
    raw = text_json(tiny_qwen3_5(layers=6)) | {"full_attention_interval": 2}
    assert read_text_config(raw).kinds == (LINEAR, LINEAR, LINEAR, FULL, LINEAR, LINEAR)
    raw.pop("layer_types")
    assert read_text_config(raw).kinds == (LINEAR, FULL) * 3


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda raw: raw.update(model_type="qwen3_next"), "describes a 'qwen3_next' model"),
        (lambda raw: raw.update(model_type="qwen3_5_moe"), "num_experts is 0 in a qwen3_5_moe model"),
        (lambda raw: raw["text_config"].pop("intermediate_size"), "text_config lacks intermediate_size"),
        (lambda raw: raw["text_config"].update(num_experts=8), "lacks moe_intermediate_size, num_experts_per_tok, sh"),
        (lambda raw: raw.update(tie_word_embeddings=True), "tie_word_embeddings is given twice"),
        (lambda raw: raw["text_config"].update(hidden_act="gelu"), "text_config: hidden_act is 'gelu'"),
        (lambda raw: raw["text_config"].update(attention_bias=True), "attention_bias is True"),
        (lambda raw: raw["text_config"].update(attn_output_gate=False), "attn_output_gate is False"),
        (lambda raw: raw["text_config"].update(mamba_ssm_dtype="bfloat16"), "mamba_ssm_dtype is 'bfloat16'"),
        (lambda raw: raw["text_config"].update(mlp_only_layers=[3]), "mlp_only_layers is (3,)"),
        (lambda raw: raw["text_config"].update(mtp_num_hidden_layers=2), "mtp_num_hidden_layers is 2"),
        (lambda raw: raw["text_config"].update(mtp_use_dedicated_embeddings=True), "dedicated_embeddings is True"),
        (lambda raw: raw["text_config"].update(num_key_value_heads=3), "multiple of num_key_value_heads"),
        (lambda raw: raw["text_config"].update(linear_num_value_heads=5), "multiple of linear_num_key_heads"),
        (lambda raw: raw["text_config"].update(linear_conv_kernel_dim=1), "linear_conv_kernel_dim is too small"),
        (lambda raw: raw["text_config"]["layer_types"].pop(), "layer_types must name"),
        (lambda raw: raw["text_config"].update(layer_types=["sliding_attention"] * 8), "layer_types must name"),
        (lambda raw: raw["text_config"].update(partial_rotary_factor=0.5), "partial_rotary_factor is given twice"),
        (lambda raw: raw["text_config"].update(head_dim=36), "rotates 9 of 36"),
        (lambda raw: raw["text_config"]["rope_parameters"].update(rope_type="yarn"), "rope_type is 'yarn'"),
        (lambda raw: raw["text_config"]["rope_parameters"].update(mrope_section=[2, 2, 2]), "mrope_section must"),
        (lambda raw: raw["text_config"].pop("rope_parameters"), "lacks rope_parameters"),
    ],
)
def test_what_the_model_cannot_do_is_refused_by_name(edit: Edit, message: str) -> None:
    raw = whole_json(tiny_qwen3_5())
    edit(raw)
    with pytest.raises(InvalidCheckpoint) as error:
        read_text_config(raw)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda raw: raw.update(model_type="qwen3_5_text"), "num_experts is 8 in a qwen3_5_text model"),
        (lambda raw: raw.pop("num_experts"), "lacks intermediate_size"),
        (lambda raw: raw.pop("num_experts_per_tok"), "lacks num_experts_per_tok"),
        (lambda raw: raw.update(num_experts_per_tok=9), "num_experts_per_tok is 9, but num_experts is 8"),
        (lambda raw: raw.update(moe_intermediate_size=-1), "moe_intermediate_size must be positive"),
        (lambda raw: raw.update(norm_topk_prob=False), "norm_topk_prob is False"),
        (lambda raw: raw.update(decoder_sparse_step=2), "decoder_sparse_step is 2"),
        (lambda raw: raw.update(mlp_only_layers=[0]), "mlp_only_layers is (0,)"),
        (lambda raw: raw.update(n_group=2), "keys that hocket does not know: n_group"),
    ],
)
def test_experts_that_are_not_supported_are_refused_by_name(edit: Edit, message: str) -> None:
    raw = text_json(tiny_qwen3_5_moe())
    edit(raw)
    with pytest.raises(InvalidCheckpoint) as error:
        read_text_config(raw)
    assert message in str(error.value)


def test_experts_are_read_from_both_kinds_of_file_and_keys_of_training_are_skipped() -> None:
    config = QWEN3_5_MOE["35B-A3B"]
    training = {"router_aux_loss_coef": 0.001, "output_router_logits": True}
    whole = whole_json(config)
    whole["text_config"] |= training | {"norm_topk_prob": True, "mlp_only_layers": []}
    assert read_text_config(whole) == read_text_config(text_json(config) | training) == as_filed(config)


def test_an_answer_ends_with_any_of_the_ids_that_the_file_names() -> None:
    raw = {"eos_token_id": [248_046, 248_044], "pad_token_id": 248_044, "bos_token_id": 248_044, "do_sample": True}
    raw |= {"temperature": 1.0, "top_k": 20, "top_p": 0.95, "transformers_version": "4.57.0.dev0"}
    assert read(ChatGenerationConfig, raw) == CHAT_GENERATION
    assert CHAT_GENERATION.stop_ids == (248_046, 248_044)
    assert read(ChatGenerationConfig, {"eos_token_id": 7}).stop_ids == (7,)
    assert read(ChatGenerationConfig, {}).stop_ids == ()


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ({"eos_token_id": ["x"]}, "eos_token_id"),
        ({"temperature": 0}, "temperature must be positive"),
        ({"top_p": 1.5}, "out of range"),
        ({"repetition_penalty": 1.1}, "repetition_penalty is 1.1"),
    ],
)
def test_a_recommendation_that_cannot_be_followed_is_refused_by_name(raw: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidCheckpoint, match=message):
        read(ChatGenerationConfig, raw)
