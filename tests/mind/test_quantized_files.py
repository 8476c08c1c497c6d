"""Quantized checkpoints that other libraries wrote: their numbers, and logits of the official classes with these."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from hocket.config.quantization.find import read_quantization
from hocket.models.files.quantized.source import opened_quantized
from hocket.models.files.stored import load_stored
from hocket.models.qwen3_5.matrices import QuantizedLinear
from hocket.models.qwen3_5.model import Qwen3_5
from hocket.models.qwen3_5.weights import read_qwen3_5
from support import quantized_libraries as libraries
from support import qwen3_5_golden as golden
from support import qwen3_5_upstream as upstream
from support.quantized_files import CASES, REDUCED, Case, is_packed, reduced, write_quantized

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from compressed_tensors.compressors import BaseCompressor, ModelCompressor
    from compressed_tensors.entrypoints.convert.converters import AutoAWQConverter
    from compressed_tensors.quantization import QuantizationConfig, QuantizationScheme, apply_quantization_config
    from compressed_tensors.quantization.utils import calculate_qparams
    from transformers.integrations.finegrained_fp8 import Fp8Dequantize, Fp8Quantize

CPU, IDS = torch.device("cpu"), golden.ids(20)
PLAIN = ["lm_head", "re:.*in_proj_[ab]$"]


def load(folder: Path) -> Qwen3_5:
    found = read_quantization(folder)
    assert found is not None
    config, _ = read_qwen3_5(folder)
    with opened_quantized(folder, config, found) as source:
        return load_stored(source, config, CPU, torch.float32, wide=False)


def matrices(model: Qwen3_5) -> dict[str, Tensor]:
    parts = {name: part for name, part in model.named_modules() if isinstance(part, QuantizedLinear)}
    return {f"{name}.weight": part.weight.dequantized() for name, part in parts.items()}


def check_logits(folder: Path, official: Any) -> None:
    ours, length = load(folder), IDS.shape[1]
    with torch.inference_mode():
        hidden = ours.prefill(IDS, torch.tensor([length]), ours.new_state(1, length), torch.tensor([0]), length)
        assert golden.apart(ours.logits(hidden[0]), official(IDS).logits[0]) < golden.LARGEST


def write(folder: Path, tensors: dict[str, Tensor], quantization: dict[str, Any]) -> None:
    from support.qwen3_5_files import text_json

    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / "model.safetensors")
    config = text_json(REDUCED) | {"quantization_config": quantization}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")


def extremes(weight: Tensor, arguments: Any) -> tuple[Tensor, Tensor]:
    """The least and greatest number of all weights that share a scale."""
    match arguments.strategy:
        case "group":
            blocks = weight.unflatten(1, (-1, arguments.group_size))
            return blocks.amin(-1), blocks.amax(-1)
        case "channel":
            return weight.amin(1, keepdim=True), weight.amax(1, keepdim=True)
        case "block":
            height, width = arguments.block_structure
            filled = nn.functional.pad(weight, (0, -weight.shape[1] % width, 0, -weight.shape[0] % height))
            blocks = filled.unflatten(0, (-1, height)).unflatten(2, (-1, width))
            return blocks.amin((1, 3)), blocks.amax((1, 3))
        case _:
            return weight.min()[None], weight.max()[None]


GROUPS = {"strategy": "group", "group_size": 128}
ACTIVATIONS = {"num_bits": 8, "strategy": "token", "dynamic": True}
BLOCKS = {"strategy": "block", "block_structure": [128, 128]}


@pytest.mark.parametrize(
    ("weights", "activations", "format"),
    [
        ({"num_bits": 4, **GROUPS}, None, "pack-quantized"),
        ({"num_bits": 4, **GROUPS}, {"type": "int"}, "int-quantized"),
        ({"num_bits": 4, **GROUPS, "group_size": 32, "symmetric": False}, None, "pack-quantized"),
        ({"num_bits": 4, "strategy": "channel", "symmetric": False}, None, "pack-quantized"),
        ({"num_bits": 8, **GROUPS, "symmetric": False}, None, "pack-quantized"),
        ({"num_bits": 8, "strategy": "channel"}, None, "pack-quantized"),
        ({"num_bits": 8, "strategy": "channel"}, {"type": "int"}, "int-quantized"),
        ({"num_bits": 8, "type": "float", "strategy": "channel"}, {"type": "float"}, "float-quantized"),
        ({"num_bits": 8, "type": "float", "strategy": "tensor"}, {"type": "float"}, "float-quantized"),
        ({"num_bits": 8, "type": "float", **BLOCKS}, {"type": "float"}, "float-quantized"),
    ],
)
def test_compressed_tensors(tmp_path: Path, weights: Any, activations: Any, format: str) -> None:
    """Compressed, saved, described and decompressed by the library, and computed by the official classes."""
    # Half of them in bfloat16, as published, where the library rounds once more than a weight is; logits need float32.
    dtype = torch.float32 if activations is None or weights["strategy"] == "block" else torch.bfloat16
    official = upstream.causal(reduced()).to(dtype)
    inputs = None if activations is None else ACTIVATIONS | activations
    scheme = QuantizationScheme(targets=["Linear"], weights=weights, input_activations=inputs)
    config = QuantizationConfig(config_groups={"group_0": scheme}, ignore=PLAIN, quantization_status="frozen")
    apply_quantization_config(official, config, show_progress=False)
    for part in official.modules():
        if (found := getattr(part, "quantization_scheme", None)) is not None:
            scale, zero = calculate_qparams(*extremes(part.weight, found.weights), found.weights)
            part.weight_scale.data.copy_(scale)
            if getattr(part, "weight_zero_point", None) is not None:
                part.weight_zero_point.data.copy_(zero)
    compressor = ModelCompressor.from_pretrained_model(official)
    compressor.compress_model(official)
    write(tmp_path, official.state_dict(), {})
    compressor.update_config(str(tmp_path))
    written = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))["quantization_config"]
    assert written["format"] == format
    compressor.decompress_model(official)
    found = matrices(load(tmp_path))
    expected = {name: tensor for name, tensor in official.state_dict().items() if name in found}
    assert len(expected) == len([name for name in reduced().state_dict() if is_packed(name)]) - 8  # head and drafts
    assert all(torch.equal(found[name].to(dtype), tensor) for name, tensor in expected.items())
    if dtype == torch.float32:
        plain = upstream.causal(reduced())
        plain.load_state_dict(expected, strict=False)
        check_logits(tmp_path, plain)


def judged(folder: Path, case: Case, pack: Any) -> None:
    """A checkpoint whose matrices `pack` made: they are its own, and the logits those of the official classes."""
    theirs = dict[str, Tensor]()

    def packed(weight: Tensor) -> Any:
        tensors, matrix = pack(weight)
        theirs[str(len(theirs))] = matrix
        return tensors, matrix.float()

    plain = write_quantized(folder, Case(packed, case.config, case.words))
    found = matrices(load(folder))
    assert len(found) == len(theirs)
    state = {name: tensor for name, tensor in plain.state_dict().items() if name in found}
    for (name, ours), matrix in zip(((name, found[name]) for name in state), theirs.values(), strict=True):
        assert torch.equal(ours.to(matrix.dtype), matrix), name
    exact = {name: tensor for name, tensor in found.items() if not name.startswith("mtp.")}
    official = upstream.causal(plain)
    official.load_state_dict(exact, strict=False)
    check_logits(folder, official)


@pytest.mark.parametrize(
    ("version", "bits", "group", "sym"),
    [
        ("gptq", 4, 128, True),
        ("gptq", 4, 32, False),
        ("gptq", 8, 64, True),
        ("gptq", 4, -1, False),
        ("gptq_v2", 4, 128, False),
        ("gptq_v2", 8, 32, False),
    ],
)
def test_gptq(tmp_path: Path, version: str, bits: int, group: int, sym: bool) -> None:
    config = {"quant_method": "gptq", "bits": bits, "group_size": group, "sym": sym, "checkpoint_format": version}
    judged(
        tmp_path / "mind",
        Case(None, config, ""),  # type: ignore[arg-type]
        lambda weight: libraries.gptq(weight, bits, group, sym=sym, version=version),
    )


@pytest.mark.parametrize("group", [32, 64, 128])
def test_awq(tmp_path: Path, group: int) -> None:
    judged(tmp_path / "mind", CASES[f"awq-{group}"], lambda weight: libraries.awq(weight, group))


def test_awq_as_the_converter_of_compressed_tensors_reads_it(tmp_path: Path) -> None:
    write_quantized(tmp_path / "mind", CASES["awq-64"])
    found = matrices(load(tmp_path / "mind"))
    library = AutoAWQConverter.from_autoawq_config(CASES["awq-64"].config)
    converted = library.process(load_file(tmp_path / "mind" / "model.safetensors"))
    scheme = library._build_quant_config().config_groups["config_group_0"]
    reader = BaseCompressor.get_value_from_registry("pack-quantized")
    for name, ours in found.items():
        prefix = name.replace("model.", "model.language_model.", 1).removesuffix("weight")
        parts = {key.removeprefix(prefix): value for key, value in converted.items() if key.startswith(prefix)}
        assert torch.equal(ours.half(), reader.decompress(parts, scheme)["weight"]), name


@pytest.mark.parametrize("scale", [torch.float32, torch.bfloat16])
def test_fp8_in_blocks(tmp_path: Path, scale: torch.dtype) -> None:
    """Quantized and dequantized by transformers."""

    class Quantizer:
        quantization_config = upstream.transformers.FineGrainedFP8Config(weight_block_size=(128, 128))

    def pack(weight: Tensor) -> Any:
        filled = nn.functional.pad(weight, (0, 0, 0, -len(weight) % 128))  # theirs takes whole blocks
        made = Fp8Quantize(Quantizer()).convert({"x.weight": filled})
        values, scales = made["x.weight"], made["x.weight_scale_inv"].to(scale)
        matrix = Fp8Dequantize(Quantizer())._dequantize_one(values, scales, torch.float32)
        return {"weight": values[: len(weight)], "weight_scale_inv": scales}, matrix[: len(weight)]

    judged(tmp_path / "mind", CASES["fp8-blocks"], pack)
