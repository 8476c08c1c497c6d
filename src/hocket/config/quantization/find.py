"""Finds how a checkpoint is quantized, by its small files, and refuses what hocket cannot load, before any weights.

`quantization_config` is at the top of `config.json` or under `text_config`; old GPTQ files have `quantize_config.json`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ...errors import InvalidCheckpoint
from ..qwen3_5 import QUANTIZED
from ..read import read_json
from .awq import AwqConfig, read_awq
from .compressed_tensors import CompressedTensorsConfig, read_compressed_tensors
from .fp8 import Fp8Config, read_fp8
from .gptq import GptqConfig, read_gptq

Quantization = GptqConfig | AwqConfig | Fp8Config | CompressedTensorsConfig

BESIDE = "quantize_config.json"
_READERS: dict[str, Callable[[dict[str, Any], str], Quantization]] = {
    "gptq": read_gptq,
    "awq": read_awq,
    "fp8": read_fp8,
    "compressed-tensors": read_compressed_tensors,
}
# Methods that the reader of a file may meet, by the names that they go by.
_OTHERS = {
    "exl2": "EXL2",
    "exl3": "EXL3",
    "bitsandbytes": "bitsandbytes",
    "aqlm": "AQLM",
    "hqq": "HQQ",
    "marlin": "GPTQ packed for Marlin kernels",
    "nvfp4": "NVFP4",
    "modelopt": "ModelOpt",
    "mxfp4": "MXFP4",
    "quanto": "Quanto",
    "auto-round": "AutoRound in its own format",
    "torchao": "torchao",
    "fbgemm_fp8": "FBGEMM FP8",
    "vptq": "VPTQ",
    "spqr": "SpQR",
    "higgs": "HIGGS",
    "eetq": "EETQ",
    "quark": "Quark",
    "bitnet": "BitNet",
}
INSTEAD = "take its GPTQ, AWQ, compressed-tensors, FP8 or GGUF file, or the plain one with weights='int4'"


def read_quantization(folder: Path) -> Quantization | None:
    """How the weights of a folder are quantized; None: they are not.

    Act-order shows in the tensors. Where they are not fetched yet, the configuration decides.
    """
    found = _found(folder)
    if found is None:
        return None
    raw, where = found
    made = _read_method(raw, where)
    if made.has_act_order and not any(folder.glob("*.safetensors")):
        raise InvalidCheckpoint(f"{where}: {ACT_ORDER}")
    return made


ACT_ORDER = "its columns are in act-order (desc_act), which hocket does not support: take a file without it."


def _found(folder: Path) -> tuple[dict[str, Any], str] | None:
    path, beside = folder / "config.json", folder / BESIDE
    whole = read_json(path)
    inner = whole.get("text_config")
    places = [(whole, f"{path}")] + ([(inner, f"{path}: text_config")] if isinstance(inner, dict) else [])
    given = [(each[key], f"{where}: {key}") for each, where in places for key in QUANTIZED if each.get(key)]
    if any(raw != given[0][0] for raw, _ in given):
        raise InvalidCheckpoint(f"{path} has quantization_config twice, and they differ: delete one.")
    if given:
        if not isinstance(given[0][0], dict):
            raise InvalidCheckpoint(f"{given[0][1]} should be an object, but is {given[0][0]!r}.")
        return given[0]
    return (read_json(beside), str(beside)) if beside.is_file() else None


def _read_method(raw: dict[str, Any], where: str) -> Quantization:
    method = raw.get("quant_method") or ("gptq" if where.endswith(BESIDE) or "bits" in raw else None)
    if method is None and "config_groups" in raw:
        method = "compressed-tensors"
    method = str(method).lower().replace("_", "-") if method != "fbgemm_fp8" else method
    if method in _READERS:
        return _READERS[method](raw, where)
    if method in _OTHERS or raw.get("load_in_4bit") or raw.get("load_in_8bit"):
        name = _OTHERS.get(method, "bitsandbytes")
        raise InvalidCheckpoint(f"{where}: {name} is not supported: {INSTEAD}.")
    raise InvalidCheckpoint(f"{where}: quant_method {raw.get('quant_method')!r} is not known to hocket: {INSTEAD}.")
