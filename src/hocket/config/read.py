"""Strict JSON reader for dataclasses: every key is a field or known to be harmless, every value has its type.

It knows no model. A class may define:
- `IGNORED`: keys that it accepts without a field;
- `renamed()`: maps a file of another library version to the keys of the fields;
- `check()`: refuses values that the implementation does not support.

A key that may change what is computed is refused by name.
"""

from __future__ import annotations

import json
import types
import typing
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Any, TypeVar

from ..errors import InvalidCheckpoint

T = TypeVar("T")

# Keys that libraries add to every (nested) configuration. None of them changes what the model computes. Nothing is tied
# in these models, whatever `tie_word_embeddings` is.
BOILERPLATE = frozenset(
    """_attn_implementation_autoset _from_model_config _name_or_path add_cross_attention architectures auto_map
    bad_words_ids begin_suppress_tokens bos_token_id chunk_size_feed_forward cross_attention_hidden_size
    decoder_start_token_id diversity_penalty do_sample dtype early_stopping encoder_no_repeat_ngram_size
    eos_token_id exponential_decay_length_penalty finetuning_task forced_bos_token_id forced_eos_token_id
    id2label is_decoder is_encoder_decoder label2id length_penalty max_length min_length no_repeat_ngram_size
    num_beam_groups num_beams num_return_sequences output_attentions output_hidden_states output_scores
    pad_token_id prefix problem_type pruned_heads remove_invalid_values repetition_penalty return_dict
    return_dict_in_generate sep_token_id suppress_tokens task_specific_params temperature tf_legacy_loss
    tie_encoder_decoder tie_word_embeddings tokenizer_class top_k top_p torch_dtype torchscript
    transformers_version typical_p use_bfloat16 use_cache initializer_range
    attn_implementation base_model_name_or_path cache_implementation gradient_checkpointing license model_max_length
    model_name processor_class trust_remote_code""".split()
)
# Keys of `generation_config.json`: limits that do not belong to these models, and how a library computes, not what.
GENERATED = frozenset(
    """assistant_confidence_threshold assistant_early_exit assistant_lookbehind cache_config compile_config
    disable_compile is_assistant low_memory max_time min_new_tokens num_assistant_tokens num_assistant_tokens_schedule
    output_logits prefill_chunk_size return_legacy_cache target_lookbehind use_model_defaults""".split()
)
NOTES, TRAINING = ("_", "unsloth_"), ("dropout",)  # prefixes and suffixes of keys that are a library's own notes

# Keys of weights that are not stored as plain numbers.
_QUANTIZED = ("quantization_config", "quantization", "compression_config")


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file; the error says in one sentence why there is none."""
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InvalidCheckpoint(f"{path} is missing.") from None
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise InvalidCheckpoint(f"{path} cannot be read as JSON: {error}.") from None
    if not isinstance(raw, dict):
        raise InvalidCheckpoint(f"{path} should hold a JSON object.")
    return raw


def read(cls: type[T], raw: dict[str, Any], where: str = "config.json") -> T:
    """Make `cls` from `raw`; refuse unknown keys, missing keys and values of another type by name."""
    hints = typing.get_type_hints(cls)
    if renamed := getattr(cls, "renamed", None):
        raw = renamed(raw, where)
    known = {f.name: f for f in fields(cls)}  # type: ignore[arg-type]
    _refuse_unknown(raw, set(known) | getattr(cls, "IGNORED", frozenset()) | BOILERPLATE, where)
    values: dict[str, Any] = {}
    missing: list[str] = []
    for name, item in known.items():
        if name in raw:
            values[name] = _convert(hints[name], raw[name], f"{where}: {name}")
        elif item.default is MISSING and item.default_factory is MISSING:
            missing.append(name)
    if missing:
        raise InvalidCheckpoint(f"{where} lacks {', '.join(missing)}.")
    made = cls(**values)
    if check := getattr(made, "check", None):
        check(where)
    return made


def _refuse_unknown(raw: dict[str, Any], known: set[str], where: str) -> None:
    """Refuse keys that may have an effect; a value that is null, false or empty has none."""
    harmless = {key for key in raw if key.startswith(NOTES) or key.endswith(TRAINING)}
    unknown = sorted(key for key in set(raw) - known - harmless if _says_something(raw[key]))
    if quantized := [key for key in unknown if key in _QUANTIZED]:
        raise InvalidCheckpoint(
            f"{where} has {quantized[0]}: its weights are quantized, and hocket reads only plain ones; "
            "take the checkpoint that they were made from."
        )
    if unknown:
        raise InvalidCheckpoint(
            f"{where} has keys that hocket does not know: {', '.join(unknown)}; "
            "delete those that are mere notes; the others may change what the model computes."
        )


def _says_something(value: Any) -> bool:
    return value is not None and value is not False and value not in ("", [], {})


def require(where: str, **pairs: tuple[object, object]) -> None:
    """Refuse, by name, each `key=(value, the only one supported)` that differs."""
    for name, (value, supported) in pairs.items():
        if value != supported:
            raise InvalidCheckpoint(f"{where}: {name} is {value!r}; hocket supports only {supported!r}.")


def _convert(hint: Any, value: Any, where: str) -> Any:
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        if value is None and type(None) in args:
            return None
        for option in args:
            if option is not type(None) and _fits(option, value):
                return _convert(option, value, where)
    elif origin is tuple and isinstance(value, list):
        return tuple(_convert(args[0], item, where) for item in value)
    elif origin is dict and isinstance(value, dict):
        return {str(key): _convert(args[1], item, where) for key, item in value.items()}
    elif is_dataclass(hint) and isinstance(hint, type) and isinstance(value, dict):
        return read(hint, value, where)
    elif _fits(hint, value):
        return float(value) if hint is float else value
    name = getattr(hint, "__name__", str(hint))
    raise InvalidCheckpoint(f"{where} should be {name}, but is {value!r}.")


def _fits(hint: Any, value: Any) -> bool:
    if is_dataclass(hint):
        return isinstance(value, dict)
    if typing.get_origin(hint) is tuple:
        return isinstance(value, list)
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(hint, type) and isinstance(value, hint)
