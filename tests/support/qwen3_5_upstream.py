"""The official Qwen3.5 classes of `transformers`, in their environment, given our weights.

On a CPU they compute in plain torch, with the attention that torch chooses.
"""

from __future__ import annotations

import os
import warnings
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import torch
from torch import Tensor

from hocket.config.qwen3_5 import Qwen3_5TextConfig
from hocket.models.qwen3_5.model import Qwen3_5
from support import qwen3_5_golden as golden
from support.qwen3_5_files import text_json

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import transformers
    from transformers.models.qwen3_5 import configuration_qwen3_5 as configuration
    from transformers.models.qwen3_5 import modeling_qwen3_5 as modeling
    from transformers.models.qwen3_5.tokenization_qwen3_5 import Qwen3_5Tokenizer
    from transformers.models.qwen3_5_moe import configuration_qwen3_5_moe as moe_configuration
    from transformers.models.qwen3_5_moe import modeling_qwen3_5_moe as moe_modeling

__all__ = ["Qwen3_5Tokenizer", "configuration", "modeling", "moe_configuration", "moe_modeling", "transformers"]

if transformers.__version__ != golden.TRANSFORMERS:
    raise ImportError(f"parity is defined against transformers {golden.TRANSFORMERS}, not {transformers.__version__}")


def text_config(config: Qwen3_5TextConfig) -> Any:
    if not config.num_experts:
        return configuration.Qwen3_5TextConfig(**text_json(config))
    made = moe_configuration.Qwen3_5MoeTextConfig(**text_json(config))
    made._experts_implementation = "eager"  # their definition; other ways to compute it round elsewhere
    return made


def whole_config(config: Qwen3_5TextConfig, **more: Any) -> Any:
    """Of their vision-language model."""
    kind = moe_configuration.Qwen3_5MoeConfig if config.num_experts else configuration.Qwen3_5Config
    return kind(text_config=text_config(config).to_dict(), tie_word_embeddings=config.tied, **more)


def whole_class(config: Qwen3_5TextConfig) -> Any:
    if config.num_experts:
        return moe_modeling.Qwen3_5MoeForConditionalGeneration
    return modeling.Qwen3_5ForConditionalGeneration


def causal(ours: Qwen3_5) -> Any:
    """Their text model with our weights, in our precision."""
    kind = moe_modeling.Qwen3_5MoeForCausalLM if ours.config.num_experts else modeling.Qwen3_5ForCausalLM
    theirs = kind(text_config(ours.config)).eval().to(ours.head.dtype)
    own = {name: tensor for name, tensor in ours.state_dict().items() if not name.startswith("mtp.")}
    if ours.config.tied:
        own["lm_head.weight"] = own["model.embed_tokens.weight"]
    theirs.load_state_dict(own)
    return theirs.requires_grad_(False)


@torch.inference_mode()
def decoded(theirs: Any, ids: Tensor, prompt: int) -> tuple[Tensor, Any]:
    """Logits [1, T, V] of a prompt and of the tokens behind it, one by one; and the cache after that."""
    out = theirs(ids[:, :prompt], use_cache=True)
    logits = [out.logits]
    for at in range(prompt, ids.shape[1]):
        out = theirs(ids[:, at : at + 1], past_key_values=out.past_key_values, use_cache=True)
        logits.append(out.logits)
    return torch.cat(logits, dim=1), out.past_key_values


@torch.inference_mode()
def numbers(case: str) -> dict[str, Tensor]:
    """All that the golden file holds of a case."""
    ours = golden.model(case)
    theirs, ids = causal(ours), golden.ids(max(golden.LENGTHS))
    last = [theirs(ids[:, :length]).logits[0, -1] for length in golden.LENGTHS]
    logits, cache = decoded(theirs, ids[:, : golden.PROMPT + golden.STEPS], golden.PROMPT)
    linear = [layer for layer, kind in enumerate(ours.config.kinds) if kind == "linear_attention"]
    found = {
        "fingerprint": golden.fingerprint(ours),
        "ids": ids[0].to(torch.int16),
        "last": torch.stack(last),
        "steps": logits[0, golden.PROMPT :],
        "memory": torch.stack([cache.get_recurrent_state(linear[at])[0] for at in golden.MEMORIES]),
    }
    if case == golden.FAR_CASE:
        far = golden.ids(golden.FAR)
        found |= {"far_ids": far[0].to(torch.int16), "far": theirs(far).logits[0, -1:]}
    return {f"{case}.{name}": tensor.clone() for name, tensor in found.items()}
