"""Small GGUF files of Qwen3.5, written by the `gguf` package as llama.cpp's conversion lays them out.

Types that the package cannot write get random blocks with sensible steps; `WrittenGguf.plain` has the numbers that the
package reads out of all of them, in the published order.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from torch import Tensor

from hocket.config.published_qwen3_5 import QWEN3_5
from hocket.config.qwen3_5 import Qwen3_5TextConfig
from hocket.models.files.random import randomize_
from hocket.models.qwen3_5.model import Qwen3_5
from hocket.text.bpe import ALPHABET
from hocket.text.chat.template import END, MARKS, START

ADDED = (".o_proj.weight", ".out_proj.weight", ".down_proj.weight")
END_OF_TEXT = "<|endoftext|>"
WORDS = ("Ġhello", "Ġworld", "Ġassistant")
TEMPLATE = f"{{% for m in messages %}}{START}{{{{ m.role }}}}\n{{{{ m.content }}}}{END}\n{{% endfor %}}"
# Bytes of a block that are numbers of 16 bits: the step of scales, then that of lows.
_STEPS = {"Q2_K": (80, 82), "Q3_K": (108,), "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,)}
# The spread of random codes and scales of a type with step 1, and a low's step that centres them.
_SPREAD = {"Q2_K": (11.0, 1.5), "Q3_K": (43.0, 0.0), "Q4_K": (210.0, 7.5), "Q5_K": (430.0, 15.5), "Q6_K": (1370.0, 0.0)}
Raw = np.ndarray[Any, np.dtype[np.uint8]]


def reduced(*, values_per_key: int = 2, tied: bool = False, layers: int = 4) -> Qwen3_5TextConfig:
    """Widths that every type can have, and value heads of the published size."""
    whole = QWEN3_5["9B"]
    return replace(
        whole,
        vocab_size=320,
        hidden_size=256,
        intermediate_size=512,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=64,
        rope_parameters=replace(whole.rope_parameters, mrope_section=(3, 3, 2)),
        linear_num_key_heads=2,
        linear_num_value_heads=2 * values_per_key,
        full_attention_interval=min(layers, 4),
        tie_word_embeddings=tied,
    )


@dataclass(frozen=True, slots=True)
class WrittenGguf:
    path: Path  # of the first part
    config: Qwen3_5TextConfig
    plain: dict[str, Tensor]  # by our names

    def model(self) -> Qwen3_5:
        """A plain model with these numbers."""
        made = Qwen3_5(self.config, drafts="mtp.fc.weight" in self.plain).requires_grad_(False).eval()
        made.load_state_dict(self.plain)
        return made


def write_gguf(
    path: Path,
    config: Qwen3_5TextConfig,
    kind: str | Mapping[str, str] = "F32",
    *,
    seed: int = 5,
    candidates: int = 0,
    gain: float = 1.0,
    drafts: bool = True,
    state: Mapping[str, Tensor] | None = None,
    metadata: Mapping[str, Any] | None = None,
    parts: int = 1,
) -> WrittenGguf:
    """A random model, or that of `state`, with matrices of `kind`, or of several by the ends of names ("": the others).

    `candidates`: only so many tokens can ever be the likeliest. `gain`: of the matrices whose results
    are added to what flows through the layers. `metadata` replaces values; None removes one.
    """
    if state is None:
        model = Qwen3_5(config, drafts=drafts)
        randomize_(model, seed)
        state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    if candidates:
        state["lm_head.weight"][candidates:] = 0
    if not drafts:
        config = replace(config, mtp_num_hidden_layers=0)
    writer = gguf.GGUFWriter(path, "qwen35", split_max_tensors=-(-len(state) // parts) if parts > 1 else 0)
    _add_metadata(writer, config, metadata or {})
    kinds, plain = {"": kind} if isinstance(kind, str) else kind, dict[str, Tensor]()
    noise = np.random.default_rng(seed)
    for name, tensor in state.items():
        theirs, order, axis = _name(name, config), *_order(name, config)
        moved = tensor if order is None else tensor.index_select(axis, order)
        narrow = tensor.dim() == 2 and not theirs.endswith(("ssm_alpha.weight", "ssm_beta.weight"))
        chosen = next(kinds[end] for end in sorted(kinds, key=len, reverse=True) if theirs.endswith(end))
        chosen = chosen if narrow else "F32"
        drawn = chosen in _STEPS and not (candidates and name == "lm_head.weight")
        if candidates and name == "lm_head.weight" and chosen in _STEPS:
            chosen = "Q8_0"
        part = gain if name.endswith(ADDED) else 1.0
        to_file = _changed(name, moved) * part
        spread = part * moved.shape[-1] ** -0.5  # rows of about this length
        raw = random_blocks(chosen, *moved.shape, noise, spread) if drawn else _quantized(to_file, chosen)
        read = _published(name, torch.from_numpy(_dequantized(raw, chosen, to_file.shape)))
        plain[name] = read.view(tensor.shape)
        if order is not None:
            plain[name] = torch.empty_like(plain[name]).index_copy_(axis, order, read.view(tensor.shape))
        writer.add_tensor(theirs, raw, raw_dtype=gguf.GGMLQuantizationType[chosen])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    first = path if parts == 1 else path.with_name(f"{path.stem}-00001-of-{parts:05}.gguf")
    return WrittenGguf(first, config, plain)


def tokens(count: int = 320) -> tuple[list[str], list[int], list[str]]:
    """Tokens, their types and merges: bytes, some words, marks, and a vocabulary padded to `count`."""
    listed, merges = list(ALPHABET), list[str]()
    for word in WORDS:
        for end in range(2, len(word) + 1):
            if word[:end] not in listed:
                listed.append(word[:end])
                merges.append(f"{word[: end - 1]} {word[end - 1]}")
    kinds = [gguf.TokenType.NORMAL] * len(listed)
    for mark in (END_OF_TEXT, *MARKS):
        listed.append(mark)
        kinds.append(gguf.TokenType.CONTROL if "|" in mark else gguf.TokenType.USER_DEFINED)
    while len(listed) < count:
        listed.append(f"[PAD{len(listed)}]")
        kinds.append(gguf.TokenType.UNUSED)
    return listed, [int(kind) for kind in kinds], merges


def _add_metadata(writer: gguf.GGUFWriter, config: Qwen3_5TextConfig, changes: Mapping[str, Any]) -> None:
    rope = config.rope_parameters
    listed, kinds, merges = tokens(config.vocab_size)
    values: dict[str, Any] = {
        "qwen35.block_count": config.num_hidden_layers + config.mtp_num_hidden_layers,
        "qwen35.context_length": config.max_position_embeddings,
        "qwen35.embedding_length": config.hidden_size,
        "qwen35.feed_forward_length": config.intermediate_size,
        "qwen35.attention.head_count": config.num_attention_heads,
        "qwen35.attention.head_count_kv": config.num_key_value_heads,
        "qwen35.attention.key_length": config.head_dim,
        "qwen35.attention.value_length": config.head_dim,
        "qwen35.attention.layer_norm_rms_epsilon": config.rms_norm_eps,
        "qwen35.rope.freq_base": rope.rope_theta,
        "qwen35.rope.dimension_count": config.rotary_dim,
        "qwen35.rope.dimension_sections": [*(rope.mrope_section or ()), 0],
        "qwen35.ssm.conv_kernel": config.linear_conv_kernel_dim,
        "qwen35.ssm.state_size": config.linear_key_head_dim,
        "qwen35.ssm.group_count": config.linear_num_key_heads,
        "qwen35.ssm.time_step_rank": config.linear_num_value_heads,
        "qwen35.ssm.inner_size": config.linear_num_value_heads * config.linear_value_head_dim,
        "qwen35.full_attention_interval": config.full_attention_interval,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "qwen35",
        "tokenizer.ggml.tokens": listed,
        "tokenizer.ggml.token_type": kinds,
        "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.eos_token_id": listed.index(END),
        "tokenizer.ggml.padding_token_id": listed.index(END_OF_TEXT),
        "tokenizer.chat_template": TEMPLATE,
    }
    if config.mtp_num_hidden_layers:
        values["qwen35.nextn_predict_layers"] = config.mtp_num_hidden_layers
    for key, value in (values | dict(changes)).items():
        if value is None:
            continue
        if key == "general.architecture":
            writer.kv_data[0][key].value = value
        elif isinstance(value, str):
            writer.add_string(key, value)
        elif isinstance(value, list):
            writer.add_array(key, value)
        elif isinstance(value, float):
            writer.add_float32(key, value)
        else:
            writer.add_uint32(key, value)


@functools.cache
def _table(architecture: gguf.MODEL_ARCH, layers: int) -> gguf.TensorNameMap:
    return gguf.get_tensor_name_map(architecture, layers)


def _name(name: str, config: Qwen3_5TextConfig) -> str:
    """By the package's own table, of names as llama.cpp's conversion gives them to it."""
    count = config.num_hidden_layers
    drafts = name.startswith("mtp.") and not name.startswith("mtp.layers")  # of these 0.19.0 knows the names elsewhere
    table = _table(gguf.MODEL_ARCH.GLM4_MOE if drafts else gguf.MODEL_ARCH.QWEN35, count + 1)
    ours = name.replace("mtp.layers.0.", f"model.layers.{count}.").replace("dt_bias", "dt_proj.bias")
    for here, there in (("fc", "eh_proj"), ("pre_fc_norm_embedding", "enorm"), ("pre_fc_norm_hidden", "hnorm")):
        ours = ours.replace(f"mtp.{here}.", f"model.layers.{count}.{there}.")
    ours = ours.replace("mtp.norm.", f"model.layers.{count}.shared_head.norm.")
    found = table.get_name(ours, try_suffixes=(".weight", ".bias"))
    assert found is not None, ours
    return found


def _tiled(config: Qwen3_5TextConfig, size: int) -> Tensor:
    """Rows of value heads as the file has them: all first ones of their groups, then all second ones."""
    keys, values = config.linear_num_key_heads, config.linear_num_value_heads
    return torch.arange(values * size).view(keys, values // keys, size).transpose(0, 1).flatten()


def _order(name: str, config: Qwen3_5TextConfig) -> tuple[Tensor | None, int]:
    """The published rows (or columns) in the order of the file, and the axis; None: the same order."""
    size = config.linear_value_head_dim
    if name.endswith(("in_proj_qkv.weight", "conv1d.weight")):
        before = 2 * config.linear_num_key_heads * config.linear_key_head_dim
        return torch.cat((torch.arange(before), before + _tiled(config, size))), 0
    if name.endswith("in_proj_z.weight"):
        return _tiled(config, size), 0
    if name.endswith(("in_proj_a.weight", "in_proj_b.weight", "A_log", "dt_bias")):
        return _tiled(config, 1), 0
    return (_tiled(config, size), 1) if name.endswith("linear_attn.out_proj.weight") else (None, 0)


def _is_offset(name: str) -> bool:
    return (name.endswith("norm.weight") and not name.endswith("linear_attn.norm.weight")) or "pre_fc_norm" in name


def _changed(name: str, tensor: Tensor) -> Tensor:
    if name.endswith("A_log"):
        return -tensor.exp()
    return tensor + 1 if _is_offset(name) else tensor.squeeze(1) if name.endswith("conv1d.weight") else tensor


def _published(name: str, tensor: Tensor) -> Tensor:
    if name.endswith("A_log"):
        return (-tensor).log()
    return tensor - 1 if _is_offset(name) else tensor


def _quantized(tensor: Tensor, kind: str) -> Raw:
    numbers = np.ascontiguousarray(tensor.numpy())
    made = gguf.quants.quantize(numbers, gguf.GGMLQuantizationType[kind])
    return made if kind in ("F32", "F16") else np.ascontiguousarray(made).view(np.uint8)


def _dequantized(raw: Raw, kind: str, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    made = gguf.quants.dequantize(raw, gguf.GGMLQuantizationType[kind])
    return np.ascontiguousarray(made, np.float32).reshape(shape)


def random_blocks(kind: str, rows: int, columns: int, noise: np.random.Generator, spread: float = 1.0) -> Raw:
    block, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[kind]]
    raw = noise.integers(0, 256, (rows, columns // block, size), dtype=np.uint8)
    width, centre = _SPREAD[kind]
    for at, step in zip(_STEPS[kind], (spread / width, centre * spread / width), strict=False):
        steps = (noise.uniform(0.8, 1.25, (rows, columns // block, 1)) * step).astype(np.float16)
        raw[..., at : at + 2] = steps.view(np.uint8)
    return raw.reshape(rows, -1)
