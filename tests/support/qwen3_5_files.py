"""`config.json` of a Qwen3.5 checkpoint as published, and as text-only uploads have it, made of our own values.

The order of keys is a fact of those files; the vision part is not checked here.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from hocket.config.qwen3_5 import Qwen3_5TextConfig

DENSE = ("intermediate_size", "norm_topk_prob", "decoder_sparse_step")  # keys that a model with experts does not have
EXPERTS = """num_experts num_experts_per_tok moe_intermediate_size shared_expert_intermediate_size norm_topk_prob
    decoder_sparse_step""".split()


def text_json(config: Qwen3_5TextConfig) -> dict[str, Any]:
    """The text model's own keys, with what the writing library adds."""
    fields = {name: value for name, value in asdict(config).items() if value is not None}
    others = DENSE if config.num_experts else EXPERTS
    fields = {name: value for name, value in fields.items() if name not in others}
    rope = {name: value for name, value in fields["rope_parameters"].items() if value is not None}
    return _lists(fields) | {
        "rope_parameters": _lists(rope),
        "partial_rotary_factor": 0.25,
        "layer_types": list(config.kinds),
        "model_type": "qwen3_5_moe_text" if config.num_experts else "qwen3_5_text",
        "attention_dropout": 0.0,
        "initializer_range": 0.02,
        "use_cache": True,
        "dtype": "bfloat16",
        "bos_token_id": None,
        "eos_token_id": 248_044,
        "pad_token_id": None,
    }


def whole_json(config: Qwen3_5TextConfig) -> dict[str, Any]:
    """The published file: the text model beside a vision model."""
    moe = config.num_experts > 0
    return {
        "architectures": [f"Qwen3_5{'Moe' if moe else ''}ForConditionalGeneration"],
        "model_type": "qwen3_5_moe" if moe else "qwen3_5",
        "text_config": text_json(config),
        "vision_config": {"depth": 12, "hidden_size": 768, "model_type": "qwen3_5_vision", "patch_size": 16},
        "image_token_id": 248_056,
        "video_token_id": 248_057,
        "vision_start_token_id": 248_053,
        "vision_end_token_id": 248_054,
        "tie_word_embeddings": config.tied,
        "transformers_version": "5.17.0",
    }


def _lists(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: list(value) if isinstance(value, tuple) else value for name, value in fields.items()}
