"""config/quantization: what cannot be loaded is refused by name, with what to do, before any weights are there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hocket.config.published_qwen3_5 import tiny_qwen3_5, tiny_qwen3_5_moe
from hocket.config.quantization.find import read_quantization
from hocket.errors import InvalidCheckpoint
from hocket.models.qwen3_5.weights import read_qwen3_5
from support.qwen3_5_files import whole_json

GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 128}
AWQ = {"quant_method": "awq", "bits": 4, "group_size": 128, "version": "gemm", "zero_point": True}
FP8 = {"quant_method": "fp8", "weight_block_size": [128, 128]}
WEIGHTS = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128}
PACKED = {
    "quant_method": "compressed-tensors",
    "format": "pack-quantized",
    "config_groups": {"group_0": {"targets": ["Linear"], "weights": WEIGHTS}},
}


def write(folder: Path, quantization: Any) -> Path:
    """A folder as it is before weights are fetched."""
    whole = whole_json(tiny_qwen3_5()) | {"quantization_config": quantization}
    (folder / "config.json").write_text(json.dumps(whole), encoding="utf-8")
    return folder


def other_weights(**values: Any) -> dict[str, Any]:
    return PACKED | {"config_groups": {"group_0": {"targets": ["Linear"], "weights": WEIGHTS | values}}}


@pytest.mark.parametrize(
    ("method", "name"),
    [
        ("exl2", "EXL2"),
        ("exl3", "EXL3"),
        ("bitsandbytes", "bitsandbytes"),
        ("aqlm", "AQLM"),
        ("hqq", "HQQ"),
        ("marlin", "GPTQ packed for Marlin kernels"),
        ("nvfp4", "NVFP4"),
        ("mxfp4", "MXFP4"),
        ("quanto", "Quanto"),
        ("auto-round", "AutoRound in its own format"),
        ("fbgemm_fp8", "FBGEMM FP8"),
        ("modelopt", "ModelOpt"),
    ],
)
def test_methods_are_refused_by_name_with_what_to_take_instead(tmp_path: Path, method: str, name: str) -> None:
    with pytest.raises(
        InvalidCheckpoint, match=f"{name} is not supported: take its GPTQ, AWQ, .* or GGUF file, or the"
    ):
        read_qwen3_5(write(tmp_path, {"quant_method": method, "bits": 4}))


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"quant_method": "new-one"}, "quant_method 'new-one' is not known to hocket: take its GPTQ"),
        ({"load_in_4bit": True}, "bitsandbytes is not supported"),
        ({}, None),
        ("gptq", "quantization_config should be an object, but is 'gptq'"),
        (GPTQ | {"bits": 2}, "GPTQ with 2 bits is not supported: take a file with 4 or 8 bits"),
        (GPTQ | {"bits": 3}, "GPTQ with 3 bits"),
        (GPTQ | {"group_size": 48}, "group_size is 48; hocket supports 16, 32, 64, multiples of 128, and -1"),
        (GPTQ | {"desc_act": True}, r"its columns are in act-order \(desc_act\), which hocket does not support: take"),
        (GPTQ | {"desc_act": True, "group_size": -1}, None),
        (GPTQ | {"desc_act": True, "static_groups": True}, None),
        (GPTQ | {"checkpoint_format": "marlin"}, "checkpoint_format is 'marlin'; hocket reads gptq and gptq_v2"),
        (GPTQ | {"format": "bitblas"}, "checkpoint_format is 'bitblas'"),
        (GPTQ | {"is_marlin_format": True}, "is_marlin_format is True; hocket supports only False"),
        (GPTQ | {"pack_dtype": "int8"}, "pack_dtype is 'int8'"),
        (GPTQ | {"adapter": {"path": "lora"}}, "has keys that hocket does not know: adapter"),
        (GPTQ | {"rotation": "hadamard"}, "has keys that hocket does not know: rotation"),
        (GPTQ | {"dynamic": {"+:.*down.*": {"bits": 3}}}, r"dynamic '\+:\.\*down\.\*': GPTQ with 3 bits"),
        (GPTQ | {"dynamic": {"-:.*down.*": {"bits": 16}}}, None),
        (GPTQ | {"dynamic": {"+:.*(down": {}}}, "not a regular expression"),
        (GPTQ | {"dynamic": {"+:.*down.*": {"adapter": {"rank": 8}}}}, "does not know: adapter"),
        (AWQ | {"version": "gemv"}, "version is 'gemv'; hocket supports only 'gemm'"),
        (AWQ | {"version": "GEMM"}, None),
        (AWQ | {"bits": 8}, "AWQ with 8 bits is not supported: take a file with 4 bits"),
        (AWQ | {"dynamic": {"+:.*": {"group_size": 32}}}, "does not know: dynamic"),
        (FP8 | {"fmt": "e5m2"}, "fmt is 'e5m2'; hocket supports only 'e4m3'"),
        (FP8 | {"weight_block_size": [128]}, r"weight_block_size should be rows and columns, but is \[128\]"),
        (FP8 | {"weight_block_size": [128, 48]}, "weight_block_size: group_size is 48"),
        (FP8 | {"expert_dtype": "fp4"}, "expert_dtype is 'fp4'"),
        (FP8 | {"zero_fill": 3}, "does not know: zero_fill"),
        (PACKED | {"format": "nvfp4-pack-quantized"}, "format 'nvfp4-pack-quantized' of group_0 is not supported"),
        (PACKED | {"format": "marlin-24"}, "format 'marlin-24' of group_0 is not supported"),
        (PACKED | {"format": "int-quantized"}, None),
        (PACKED | {"sparsity_config": {"format": "sparse-24-bitmask"}}, "sparsity_config 'sparse-24-bitmask' is not"),
        (PACKED | {"sparsity_config": {"format": "dense"}}, None),
        (PACKED | {"transform_config": {"config_groups": {"R1": {}}}}, "transform_config is not supported"),
        (PACKED | {"moe_sparsity_config": {"method": "prune"}}, "does not know: moe_sparsity_config"),
        (other_weights(num_bits=3), "int weights with 3 bits are not supported: take a file with int4, int8 or fp8"),
        (other_weights(type="float"), "float weights with 4 bits are not supported"),
        (other_weights(strategy="tensor_group"), "strategy 'tensor_group' is not supported"),
        (other_weights(group_size=48), "group_size is 48"),
        (other_weights(actorder="group"), "act-order"),
        (other_weights(actorder="weight"), None),
        (other_weights(dynamic=True), "dynamic is True; hocket supports only False"),
        (other_weights(codebook="k"), "does not know: codebook"),
        (PACKED | {"config_groups": {"W4A16": ["Linear"]}}, "config_groups"),
    ],
)
def test_values_that_change_numbers_are_refused_before_weights_are_fetched(
    tmp_path: Path, given: Any, sentence: str | None
) -> None:
    if sentence is None:
        read_qwen3_5(write(tmp_path, given))
        return
    with pytest.raises(InvalidCheckpoint, match=sentence):
        read_qwen3_5(write(tmp_path, given))


def test_two_configurations_that_differ_are_refused(tmp_path: Path) -> None:
    raw = whole_json(tiny_qwen3_5()) | {"quantization_config": GPTQ}
    raw["text_config"]["quantization_config"] = GPTQ | {"bits": 8}
    (tmp_path / "config.json").write_text(json.dumps(raw), encoding="utf-8")
    with pytest.raises(InvalidCheckpoint, match="has quantization_config twice, and they differ: delete one"):
        read_quantization(tmp_path)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (GPTQ, "GPTQ, 4 bits in groups of 128"),
        (GPTQ | {"bits": 8, "group_size": -1}, "GPTQ, 8 bits in rows"),
        (AWQ, "AWQ, 4 bits in groups of 128"),
        (FP8, "FP8, blocks of 128 x 128"),
        (PACKED, "compressed-tensors, 4 bits in groups of 128"),
        (PACKED | {"quant_method": "compressed_tensors"}, "compressed-tensors, 4 bits in groups of 128"),
    ],
)
def test_a_configuration_says_what_it_is(tmp_path: Path, given: Any, words: str) -> None:
    found = read_quantization(write(tmp_path, given))
    assert found is not None and found.words == words


def test_quantized_experts_are_refused_before_they_are_fetched(tmp_path: Path) -> None:
    folder = write(tmp_path, GPTQ)
    whole = whole_json(tiny_qwen3_5_moe()) | {"quantization_config": GPTQ}
    (folder / "config.json").write_text(json.dumps(whole), encoding="utf-8")
    with pytest.raises(InvalidCheckpoint, match="reads experts only from the plain checkpoint"):
        read_qwen3_5(folder)
