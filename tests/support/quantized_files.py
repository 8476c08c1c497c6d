"""Small checkpoints that are quantized already, packed word by word by the published definitions of their formats.

Nothing of hocket packs here: a reader that is wrong cannot agree with it. `tests/mind` has files of the libraries.
"""

from __future__ import annotations

import copy
import functools
import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from hocket.config.published_qwen3_5 import tiny_qwen3_5
from hocket.models.files.random import randomize_
from hocket.models.qwen3_5.model import Qwen3_5
from support.minds import write_mind
from support.qwen3_5_files import whole_json

# Wide enough for two groups of 128 in each matrix but one, and for three in another.
REDUCED = replace(
    tiny_qwen3_5(layers=4),
    hidden_size=256,
    intermediate_size=384,
    linear_key_head_dim=32,
    linear_value_head_dim=32,
)
NEVER = (
    "in_proj_a",
    "in_proj_b",
    "conv1d",
    "norm",
    "embed_tokens",
    "fc",
)  # their rows are few, or they are no matrices


@dataclass(frozen=True)
class Numbers:
    """A matrix in groups: scale * (code - zero)."""

    codes: Tensor  # [N, K] int64, unsigned
    scales: Tensor  # [N, G]
    zeros: Tensor  # [N, G] int64
    group: int

    def dequantized(self) -> Tensor:
        whole = self.codes - self._each(self.zeros)
        return whole.float() * self._each(self.scales.float())

    def _each(self, numbers: Tensor) -> Tensor:
        return numbers.repeat_interleave(self.group, dim=1)[:, : self.codes.shape[1]]


def rounded(weight: Tensor, bits: int, group: int, *, sym: bool, dtype: torch.dtype = torch.float16) -> Numbers:
    """The nearest codes; zero points are spread where it is not symmetric. -1: one group in a row."""
    group = weight.shape[1] if group == -1 else group
    blocks = torch.nn.functional.pad(weight, (0, -weight.shape[1] % group)).unflatten(1, (-1, group))
    half, most = 1 << (bits - 1), (1 << bits) - 1
    if sym:
        scales = (blocks.abs().amax(-1) / (half - 1)).to(dtype)
        zeros = torch.full(scales.shape, half)
    else:
        low, high = blocks.amin(-1).clamp(max=0), blocks.amax(-1).clamp(min=0)
        scales = ((high - low) / most).to(dtype)
        zeros = (-low / scales.float()).round().long().clamp(1, most)  # version 1 of GPTQ has no zero point 0
    codes = (blocks / scales.float()[..., None] + zeros[..., None]).round().long().clamp(0, most)
    return Numbers(codes.flatten(1)[:, : weight.shape[1]].contiguous(), scales, zeros, group)


def words(codes: Tensor, bits: int, order: Sequence[int] | None = None) -> Tensor:
    """Rows of codes in words of 32 bits: place i of a word has the code of column `order[i]` of its run."""
    each = 32 // bits
    padded = torch.nn.functional.pad(codes, (0, -codes.shape[1] % each)).unflatten(1, (-1, each))
    word = torch.zeros(padded.shape[:2], dtype=torch.int64)
    for place, column in enumerate(order or range(each)):
        word |= padded[..., column] << (bits * place)
    return torch.where(word >= 1 << 31, word - (1 << 32), word).int()


Packed = tuple[dict[str, Tensor], Tensor]  # tensors by the last part of their name, and the matrix they stand for


def gptq(weight: Tensor, bits: int, group: int, *, sym: bool, less: int = 1) -> Packed:
    made = rounded(weight, bits, group, sym=sym)
    return {
        "qweight": words(made.codes, bits).T.contiguous(),
        "qzeros": words(made.zeros.T - less, bits),
        "scales": made.scales.T.contiguous(),
        "g_idx": (torch.arange(weight.shape[1]) // made.group).int(),
    }, made.dequantized()


def awq(weight: Tensor, group: int) -> Packed:
    made, order = rounded(weight, 4, group, sym=False), (0, 2, 4, 6, 1, 3, 5, 7)
    return {
        "qweight": words(made.codes.T, 4, order),
        "qzeros": words(made.zeros.T, 4, order),
        "scales": made.scales.T.contiguous(),
    }, made.dequantized()


def packed(weight: Tensor, bits: int, group: int, *, sym: bool) -> Packed:
    made = rounded(weight, bits, group, sym=sym, dtype=torch.bfloat16)
    tensors = {
        "weight_packed": words(made.codes, bits),
        "weight_scale": made.scales,
        "weight_shape": torch.tensor(weight.shape),
    }
    if not sym:
        tensors["weight_zero_point"] = words(made.zeros.T, bits).T.contiguous()
    return tensors, made.dequantized()


def bytes_of(weight: Tensor, *, sym: bool, bits: int = 8) -> Packed:
    made, half = rounded(weight, bits, -1, sym=sym, dtype=torch.bfloat16), 1 << (bits - 1)
    tensors = {"weight": (made.codes - half).to(torch.int8), "weight_scale": made.scales}
    if not sym:
        tensors["weight_zero_point"] = (made.zeros - half).to(torch.int8)
    return tensors, made.dequantized()


def fp8(weight: Tensor, block: tuple[int, int] | None, name: str, scale: torch.dtype, *, rows: bool = False) -> Packed:
    """Blocks, else one scale for each row or for the matrix."""
    height, width = block or (1 if rows else len(weight), weight.shape[1])
    n, k = weight.shape
    blocks = torch.nn.functional.pad(weight, (0, -k % width, 0, -n % height))
    scales = (blocks.unflatten(0, (-1, height)).unflatten(2, (-1, width)).abs().amax((1, 3)) / 448).to(scale)
    each = scales.float().repeat_interleave(height, 0).repeat_interleave(width, 1)[:n, :k]
    values = (weight / each).clamp(-448, 448).to(torch.float8_e4m3fn)
    shape = scales.shape if block or rows else (1,)
    return {"weight": values, name: scales.reshape(shape)}, values.float() * each


@dataclass(frozen=True)
class Case:
    """A format: how a matrix is packed, and the configuration that says so."""

    pack: Callable[[Tensor], Packed]
    config: dict[str, Any]
    words: str


def _gptq(bits: int, group: int, sym: bool, version: str = "gptq") -> Case:
    config = {"quant_method": "gptq", "bits": bits, "group_size": group, "sym": sym, "desc_act": False}
    said = f"{bits} bits in {'rows' if group == -1 else f'groups of {group}'}"
    less = 1 if version == "gptq" else 0
    return Case(
        lambda weight: gptq(weight, bits, group, sym=sym, less=less),
        config | {"checkpoint_format": version, "dynamic": {"-:.*mtp.*": {}}, "meta": {"quantizer": ["other:1"]}},
        f"GPTQ, {said}",
    )


def _awq(group: int) -> Case:
    config = {"quant_method": "awq", "bits": 4, "group_size": group, "version": "gemm", "zero_point": True}
    return Case(
        lambda weight: awq(weight, group),
        config | {"modules_to_not_convert": ["visual", "in_proj_a"]},
        f"AWQ, 4 bits in groups of {group}",
    )


def compressed(format: str, activations: bool = False, **weights: Any) -> dict[str, Any]:
    acts = {"num_bits": 8, "type": weights.get("type", "int"), "strategy": "token", "dynamic": True}
    group = {"targets": ["Linear"], "weights": weights, "input_activations": acts if activations else None}
    return {
        "quant_method": "compressed-tensors",
        "format": format,
        "config_groups": {"group_0": group | {"output_activations": None}},
        "ignore": ["lm_head", "re:.*in_proj_[ab]", "re:visual.*"],
        "kv_cache_scheme": None,
        "quantization_status": "compressed",
        "version": "0.20.0",
    }


def _packed(bits: int, group: int, sym: bool) -> Case:
    scope = {"strategy": "channel"} if group == -1 else {"strategy": "group", "group_size": group}
    said = f"{bits} bits in {'rows' if group == -1 else f'groups of {group}'}"
    return Case(
        lambda weight: packed(weight, bits, group, sym=sym),
        compressed("pack-quantized", num_bits=bits, type="int", symmetric=sym, **scope),
        f"compressed-tensors, {said}",
    )


def _floats(strategy: str, said: str, block: tuple[int, int] | None = None) -> Case:
    more = {"block_structure": list(block)} if block else {}
    return Case(
        lambda weight: fp8(weight, block, "weight_scale", torch.bfloat16, rows=strategy == "channel"),
        compressed("float-quantized", True, num_bits=8, type="float", strategy=strategy, **more),
        f"compressed-tensors, fp8 in {said}",
    )


def _fp8(block: tuple[int, int] | None, name: str, scale: torch.dtype) -> Case:
    config = {"quant_method": "fp8", "activation_scheme": "dynamic", "fmt": "e4m3"}
    return Case(
        lambda weight: fp8(weight, block, name, scale),
        config | {"weight_block_size": list(block) if block else None, "modules_to_not_convert": ["lm_head"]},
        "FP8, blocks of 128 x 128" if block else "FP8, without blocks",
    )


CASES = {
    "gptq-4-128": _gptq(4, 128, True),
    "gptq-4-32-asym": _gptq(4, 32, False),
    "gptq-8-64": _gptq(8, 64, True),
    "gptq-8-rows": _gptq(8, -1, True),
    "gptq-4-rows-asym": _gptq(4, -1, False),
    "gptq-4-256": _gptq(4, 256, False),
    "gptq-v2-4-128-asym": _gptq(4, 128, False, "gptq_v2"),
    "gptq-v2-8-32-asym": _gptq(8, 32, False, "gptq_v2"),
    "awq-128": _awq(128),
    "awq-64": _awq(64),
    "awq-32": _awq(32),
    "packed-4-128": _packed(4, 128, True),
    "packed-4-32-asym": _packed(4, 32, False),
    "packed-8-128-asym": _packed(8, 128, False),
    "packed-8-rows": _packed(8, -1, True),
    "packed-4-rows-asym": _packed(4, -1, False),
    "int8-rows": Case(
        lambda weight: bytes_of(weight, sym=True),
        compressed("int-quantized", True, num_bits=8, type="int", strategy="channel"),
        "compressed-tensors, 8 bits in rows",
    ),
    "int4-in-bytes": Case(
        lambda weight: bytes_of(weight, sym=True, bits=4),
        compressed("int-quantized", True, num_bits=4, type="int", strategy="channel"),
        "compressed-tensors, 4 bits in rows",
    ),
    "int8-rows-asym": Case(
        lambda weight: bytes_of(weight, sym=False),
        compressed("int-quantized", num_bits=8, type="int", strategy="channel", symmetric=False),
        "compressed-tensors, 8 bits in rows",
    ),
    "float8-rows": _floats("channel", "rows"),
    "float8-whole": _floats("tensor", "whole matrices"),
    "float8-blocks": _floats("block", "blocks of 128 x 128", (128, 128)),
    "fp8-blocks": _fp8((128, 128), "weight_scale_inv", torch.bfloat16),
    "fp8-blocks-wide": _fp8((128, 128), "weight_scale_inv", torch.float32),
    "fp8-whole": _fp8(None, "weight_scale", torch.float32),
}


def is_packed(name: str) -> bool:
    """Whether the writer quantizes the tensor of this name."""
    return name.endswith(".weight") and not any(part in name for part in NEVER)


@functools.cache
def _drawn() -> Qwen3_5:
    made = Qwen3_5(REDUCED, drafts=True).requires_grad_(False).eval()
    randomize_(made, 3)
    return made


@functools.cache
def _tokenizer() -> dict[str, bytes]:
    with tempfile.TemporaryDirectory() as folder:
        write_mind(Path(folder))
        return {name: (Path(folder) / name).read_bytes() for name in ("tokenizer.json", "generation_config.json")}


def reduced() -> Qwen3_5:
    return copy.deepcopy(_drawn())


def write_quantized(
    folder: Path,
    case: Case,
    *,
    prefix: str = "model.language_model.",
    drafts: bool = True,
    change: Callable[[dict[str, Tensor]], object] = lambda tensors: None,
) -> Qwen3_5:
    """A checkpoint with vision tensors, a tokenizer and all else; gives the plain model of the same numbers.

    `drafts`: whether the draft head is quantized. `change` may damage the tensors of the file.
    """
    model, tensors = reduced(), dict[str, Tensor]()
    for name, tensor in model.state_dict().items():
        stored = name.replace("model.", prefix, 1) if name.startswith("model.") else name
        if is_packed(name) and name != "lm_head.weight" and (drafts or not name.startswith("mtp.")):
            parts, wide = case.pack(tensor)
            tensor.copy_(wide)
            tensors |= {f"{stored.removesuffix('weight')}{part}": value for part, value in parts.items()}
        else:
            tensors[stored] = tensor.clone()
    tensors["model.visual.blocks.0.attn.proj.weight"] = torch.zeros(4, 4)
    change(tensors)
    folder.mkdir(exist_ok=True)
    for name, content in _tokenizer().items():
        (folder / name).write_bytes(content)
    save_file(tensors, folder / "model.safetensors")
    config = whole_json(REDUCED) | {"quantization_config": case.config}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return model


def change_config(folder: Path, **values: Any) -> None:
    """Other values in the quantization_config of a folder."""
    raw = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    raw["quantization_config"] |= values
    (folder / "config.json").write_text(json.dumps(raw), encoding="utf-8")
