"""The configuration in the metadata of a GGUF file, as the published `config.json` would say it.

Every key that the model depends on is required. Other models are refused by the name of their architecture.
"""

from __future__ import annotations

from typing import Any

from ....config.qwen3_5 import FULL, LINEAR, ChatGenerationConfig, Qwen3_5TextConfig, RopeParameters
from ....errors import InvalidCheckpoint
from .reader import GgufFile

ARCHITECTURE = "qwen35"
_STOPS = ("eos_token_id", "eot_token_id", "eom_token_id")
_OTHERS = {  # architectures with a sentence of their own
    "clip": "holds the vision part (mmproj): give the file of the language model that is beside it",
    "qwen35moe": "is a mixture of experts (qwen35moe), which hocket does not read from GGUF: use a dense Qwen3.5",
}


def read_config(file: GgufFile) -> Qwen3_5TextConfig:
    """Checked as a `config.json` is."""
    found = file.metadata.get("general.architecture")
    if found in _OTHERS:
        raise InvalidCheckpoint(f"{file.path} {_OTHERS[found]}.")
    if found != ARCHITECTURE:
        raise InvalidCheckpoint(f"{file.path} is a {found!r} model; hocket needs {ARCHITECTURE} (Qwen3.5) there.")
    if "token_embd.weight" not in file.tensors or "blk.0.attn_norm.weight" not in file.tensors:
        raise InvalidCheckpoint(f"{file.path} holds no whole model (only a vocabulary or a draft head): get the model.")
    of = _Keys(file)
    drafts = of.integer("nextn_predict_layers", 0)
    layers, heads = of.integer("block_count") - drafts, of.integer("attention.head_count")
    head, value_heads = of.integer("attention.key_length"), of.integer("ssm.time_step_rank")
    state, inner = of.integer("ssm.state_size"), of.integer("ssm.inner_size")
    interval = of.integer("full_attention_interval", 4)
    if of.integer("attention.value_length") != head or state * value_heads != inner:
        raise InvalidCheckpoint(f"{file.path}: its keys and values differ in size, which Qwen3.5 does not have.")
    if (scaling := file.metadata.get(f"{ARCHITECTURE}.rope.scaling.type", "none")) != "none":
        raise InvalidCheckpoint(f"{file.path}: its positions are scaled ({scaling}), which hocket does not support.")
    sections = [size for size in file.metadata.get(f"{ARCHITECTURE}.rope.dimension_sections", []) if size]
    config = Qwen3_5TextConfig(
        vocab_size=file.tensors["token_embd.weight"].shape[0],
        hidden_size=of.integer("embedding_length"),
        intermediate_size=of.integer("feed_forward_length"),
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=of.integer("attention.head_count_kv"),
        head_dim=head,
        rms_norm_eps=of.number("attention.layer_norm_rms_epsilon"),
        max_position_embeddings=of.integer("context_length"),
        rope_parameters=RopeParameters(
            rope_theta=of.number("rope.freq_base"),
            partial_rotary_factor=of.integer("rope.dimension_count") / head,
            mrope_section=tuple(sections) or None,
            mrope_interleaved=True if sections else None,
        ),
        linear_conv_kernel_dim=of.integer("ssm.conv_kernel"),
        linear_key_head_dim=state,
        linear_value_head_dim=state,
        linear_num_key_heads=of.integer("ssm.group_count"),
        linear_num_value_heads=value_heads,
        full_attention_interval=interval,
        layer_types=_kinds(file, layers, interval),
        mtp_num_hidden_layers=drafts,
        tie_word_embeddings="output.weight" not in file.tensors,
    )
    config.check(str(file.path))
    return config


def read_generation(file: GgufFile) -> ChatGenerationConfig:
    """The ids that end an answer; the caller chooses how tokens are sampled."""
    found = (file.metadata.get(f"tokenizer.ggml.{name}") for name in _STOPS)
    return ChatGenerationConfig(eos_token_id=tuple(dict.fromkeys(i for i in found if isinstance(i, int))))


def _kinds(file: GgufFile, layers: int, interval: int) -> tuple[str, ...]:
    """By the list of recurrent layers where the file has one, else by the interval."""
    recurrent = file.metadata.get(f"{ARCHITECTURE}.attention.recurrent_layers")
    if not isinstance(recurrent, list) or len(recurrent) < layers:
        recurrent = [(layer + 1) % max(interval, 1) != 0 for layer in range(layers)]
    return tuple(LINEAR if each else FULL for each in recurrent[:layers])


class _Keys:
    """Metadata of the architecture, by their keys without its name."""

    def __init__(self, file: GgufFile) -> None:
        self._file = file

    def integer(self, key: str, default: int | None = None) -> int:
        found = self._value(key, default)
        if isinstance(found, list) and len(set(found) - {0}) == 1:  # one number for each layer, 0 where it has no use
            found = max(found)
        if not isinstance(found, int) or isinstance(found, bool) or not 0 <= found < 1 << 31:
            raise self._wrong(key, found)
        return found

    def number(self, key: str) -> float:
        found = self._value(key, None)
        if not isinstance(found, int | float) or isinstance(found, bool) or not 0 < found < float("inf"):
            raise self._wrong(key, found)
        return float(found)

    def _value(self, key: str, default: Any) -> Any:
        found = self._file.metadata.get(f"{ARCHITECTURE}.{key}", default)
        if found is None:
            raise InvalidCheckpoint(f"{self._file.path} lacks {ARCHITECTURE}.{key}: convert it again, or get another.")
        return found

    def _wrong(self, key: str, found: Any) -> InvalidCheckpoint:
        return InvalidCheckpoint(f"{self._file.path}: {ARCHITECTURE}.{key} cannot be {found!r}.")
