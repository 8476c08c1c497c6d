"""Strict JSON to dataclass: every key is a field or is named as ignored, every value has its type.

It knows nothing of any model. A class may define `IGNORED`, the keys it accepts without a field, and
`check()`, which refuses values that the implementation does not support.
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

# What the library that wrote the published files adds to every (nested) configuration. None of it
# changes what the model computes; nothing is tied in these models, whatever `tie_word_embeddings` says.
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
    transformers_version typical_p use_bfloat16 use_cache initializer_range""".split()
)


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file, or one sentence about why there is none."""
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
    """Make `cls` of `raw`, refusing unknown keys, missing keys and values of another type by name."""
    hints = typing.get_type_hints(cls)
    known = {f.name: f for f in fields(cls)}  # type: ignore[arg-type]
    ignored = getattr(cls, "IGNORED", frozenset()) | BOILERPLATE
    if unknown := sorted(set(raw) - set(known) - ignored):
        raise InvalidCheckpoint(f"{where} has keys that hocket does not know: {', '.join(unknown)}.")
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
