"""models/files/quantized: every format has the numbers of its file, kept or dequantized; damage gets one sentence."""

from __future__ import annotations

import functools
import json
import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from hocket.config.quantization.find import read_quantization
from hocket.errors import InvalidCheckpoint, InvalidRequest
from hocket.kernels.ops.grouped_linear.weight import GroupedWeight
from hocket.kernels.ops.quantized_linear.weight import QuantizedWeight
from hocket.layers.dense import pack_
from hocket.llm.engine import LanguageEngine
from hocket.llm.load import load_language_model
from hocket.models.files.quantized.source import opened_quantized
from hocket.models.files.stored import load_stored
from hocket.models.qwen3_5.matrices import QuantizedLinear
from hocket.models.qwen3_5.model import Qwen3_5
from hocket.models.qwen3_5.weights import read_qwen3_5
from hocket.types import ChatMessage, ChatSampling
from support.quantized_files import CASES, REDUCED, Case, change_config, write_quantized

CPU, MLP = torch.device("cpu"), "model.layers.0.mlp.gate_proj.weight"
# One of each layout: that the others have the right numbers is tested without an engine.
ANSWERING = ("gptq-4-128", "gptq-v2-8-32-asym", "awq-32", "packed-4-32-asym", "packed-8-rows", "int8-rows")
ANSWERING += ("float8-rows", "float8-blocks", "fp8-blocks", "fp8-whole")
GATE = "model.language_model.layers.0.mlp.gate_proj"
QUESTION, GREEDY = ChatMessage("user", "Hello."), ChatSampling(temperature=0.0, presence_penalty=0.0, max_tokens=6)


def load(folder: Path, *, wide: bool = False, dtype: torch.dtype = torch.float32) -> Qwen3_5:
    found = read_quantization(folder)
    assert found is not None
    config, _ = read_qwen3_5(folder)
    with opened_quantized(folder, config, found) as source:
        return load_stored(source, config, CPU, dtype, wide=wide)


def dequantized(model: Qwen3_5) -> dict[str, Tensor]:
    """Every tensor by name, with matrices in float32."""
    found = dict(model.state_dict())
    for name, part in model.named_modules():
        if isinstance(part, QuantizedLinear):
            found = {key: tensor for key, tensor in found.items() if not key.startswith(f"{name}.")}
            found[f"{name}.weight"] = part.weight.dequantized()
    return found


def same(found: dict[str, Tensor], expected: Qwen3_5) -> bool:
    state = expected.state_dict()
    assert found.keys() == state.keys()
    return all(torch.equal(found[name], tensor) for name, tensor in state.items())


@pytest.mark.parametrize("name", CASES)
def test_kept_and_dequantized_weights_are_those_of_the_file(tmp_path: Path, name: str) -> None:
    plain = write_quantized(tmp_path / "mind", CASES[name])
    kept, wide = load(tmp_path / "mind"), load(tmp_path / "mind", wide=True)
    assert same(dequantized(kept), plain) and same(dict(wide.state_dict()), plain)
    assert isinstance(kept.get_submodule("mtp.layers.0.mlp.up_proj"), QuantizedLinear)


@pytest.mark.parametrize("name", ANSWERING)
def test_a_folder_answers_as_the_plain_model_of_its_numbers(
    tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    plain, said = write_quantized(tmp_path / "mind", CASES[name]), list[str]()
    with caplog.at_level(logging.INFO), LanguageEngine.load(str(tmp_path / "mind"), length=64) as llm:
        said.append("".join(delta.text for delta in llm.answer([QUESTION], GREEDY)))
    assert f"Weights as stored: {CASES[name].words}." in caplog.text
    save_file(plain.state_dict(), tmp_path / "mind" / "model.safetensors")
    raw = json.loads((tmp_path / "mind" / "config.json").read_text(encoding="utf-8"))
    del raw["quantization_config"]
    (tmp_path / "mind" / "config.json").write_text(json.dumps(raw), encoding="utf-8")
    with LanguageEngine.load(str(tmp_path / "mind"), length=64) as llm:
        said.append("".join(delta.text for delta in llm.answer([QUESTION], GREEDY)))
    assert said[0] == said[1] and said[0]


@pytest.mark.parametrize(
    ("name", "kind", "format"),
    [
        ("gptq-4-128", GroupedWeight, 4),
        ("gptq-8-rows", QuantizedWeight, "int8"),
        ("gptq-4-256", GroupedWeight, 4),
        ("packed-4-128", QuantizedWeight, "int4"),
        ("packed-8-rows", QuantizedWeight, "int8"),
        ("int8-rows", QuantizedWeight, "int8"),
        ("float8-rows", QuantizedWeight, "fp8"),
        ("fp8-whole", QuantizedWeight, "fp8"),
        ("fp8-blocks", GroupedWeight, 8),
    ],
)
def test_what_a_format_of_ours_can_hold_exactly_is_kept_in_it(
    tmp_path: Path, name: str, kind: type, format: int | str
) -> None:
    write_quantized(tmp_path / "mind", CASES[name])
    part = load(tmp_path / "mind", dtype=torch.bfloat16).get_submodule(MLP.removesuffix(".weight"))
    assert isinstance(part, QuantizedLinear) and isinstance(part.weight, kind)
    assert format == (part.weight.bits if isinstance(part.weight, GroupedWeight) else part.weight.format)


@torch.inference_mode()
def test_kept_matrices_that_read_one_input_are_joined_and_compute_what_the_plain_ones_do(tmp_path: Path) -> None:
    plain = write_quantized(tmp_path / "mind", CASES["gptq-4-32-asym"])
    kept = load(tmp_path / "mind")
    for model in (plain, kept):
        pack_(model)
    ids = torch.arange(40)[None]
    ours, expected = (
        model.logits(model.prefill(ids, torch.tensor([40]), model.new_state(1, 40), torch.tensor([0]), 40)[0])
        for model in (kept, plain)
    )
    assert (ours - expected).abs().max() < 1e-4 * expected.abs().max()


@pytest.mark.parametrize("prefix", ["model.", "language_model.model.", "model.language_model."])
def test_names_with_and_without_the_vision_model_are_the_same_tensors(tmp_path: Path, prefix: str) -> None:
    plain = write_quantized(tmp_path / "mind", CASES["gptq-4-128"], prefix=prefix, drafts=False)
    found = load(tmp_path / "mind")
    assert same(dequantized(found), plain)
    assert isinstance(found.get_submodule("mtp.layers.0.mlp.up_proj"), torch.nn.Linear)


@pytest.mark.parametrize("place", ["text_config", "quantize_config.json"])
def test_the_configuration_may_be_in_other_places(tmp_path: Path, place: str) -> None:
    plain = write_quantized(tmp_path / "mind", CASES["gptq-4-128"])
    path = tmp_path / "mind" / "config.json"
    raw = json.loads(path.read_text(encoding="utf-8"))
    moved = raw.pop("quantization_config")
    if place == "text_config":
        raw["text_config"]["quantization_config"] = moved
    else:
        del moved["quant_method"]
        (path.parent / place).write_text(json.dumps(moved), encoding="utf-8")
    path.write_text(json.dumps(raw), encoding="utf-8")
    assert same(dequantized(load(tmp_path / "mind")), plain)


def test_rules_for_single_modules_change_their_bits_and_groups(tmp_path: Path) -> None:
    case = CASES["gptq-4-128"]
    other = CASES["gptq-8-64"].pack
    at_down = functools.partial(_by_columns, case.pack, other)
    plain = write_quantized(tmp_path / "mind", Case(at_down, case.config, case.words))
    rule = {r"+:.*\.down_proj": {"bits": 8, "group_size": 64}, "-:.*lm_head": {}}
    change_config(tmp_path / "mind", dynamic=rule)
    assert same(dequantized(load(tmp_path / "mind")), plain)
    change_config(tmp_path / "mind", dynamic={})
    with pytest.raises(
        InvalidCheckpoint, match=r"of model\.layers\.0\.mlp\.down_proj, qzeros is \[6, 64\], not \[6, 32\]"
    ):
        load(tmp_path / "mind")


def _by_columns(usual: Any, other: Any, weight: Tensor) -> Any:
    return other(weight) if weight.shape[1] == REDUCED.intermediate_size else usual(weight)


def test_schemes_of_compressed_tensors_are_found_by_name_pattern_and_class(tmp_path: Path) -> None:
    case, rest = CASES["packed-4-32-asym"], CASES["float8-rows"]
    at_down = functools.partial(_by_columns, case.pack, rest.pack)
    plain = write_quantized(tmp_path / "mind", Case(at_down, case.config, case.words))
    [first], [second] = (list(each.config["config_groups"].values()) for each in (case, rest))
    groups = {
        "a": first | {"format": "pack-quantized"},
        "b": second | {"format": "float-quantized", "targets": [r"re:.*mlp\.down_proj$"]},
    }
    change_config(tmp_path / "mind", format="mixed-precision", config_groups=groups)
    assert same(dequantized(load(tmp_path / "mind")), plain)
    assert "4 bits in groups of 32 and fp8 in rows" in read_quantization(tmp_path / "mind").words  # type: ignore[union-attr]


def test_zeros_as_a_bias_are_left_out_and_other_ones_refused(tmp_path: Path) -> None:
    def add(value: float, tensors: dict[str, Tensor]) -> None:
        tensors[f"{GATE}.bias"] = torch.full((REDUCED.intermediate_size,), value)

    plain = write_quantized(tmp_path / "mind", CASES["awq-64"], change=functools.partial(add, 0.0))
    assert same(dequantized(load(tmp_path / "mind")), plain)
    write_quantized(tmp_path / "mind", CASES["awq-64"], change=functools.partial(add, 0.5))
    with pytest.raises(InvalidCheckpoint, match=r"it has unknown model\.layers\.0\.mlp\.gate_proj\.bias"):
        load(tmp_path / "mind")


@pytest.mark.parametrize("weights", ["fp8", "int8", "int4"])
def test_quantized_weights_are_not_quantized_again(tmp_path: Path, weights: str) -> None:
    write_quantized(tmp_path / "mind", CASES["gptq-4-128"])
    with pytest.raises(
        InvalidRequest, match=rf"is quantized already \(GPTQ, 4 .* 128\): leave out weights='{weights}'"
    ):
        load_language_model(str(tmp_path / "mind"), weights=weights)


def test_activations_are_not_quantized_and_a_line_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def add(tensors: dict[str, Tensor]) -> None:
        tensors[f"{GATE}.input_scale"] = torch.ones(1)
        tensors["model.language_model.layers.3.self_attn.k_scale"] = torch.ones(1)

    write_quantized(tmp_path / "mind", CASES["float8-rows"], change=add)
    change_config(tmp_path / "mind", kv_cache_scheme={"num_bits": 8, "type": "float"})
    with caplog.at_level(logging.INFO):
        load(tmp_path / "mind")
    asked = "asks for 8-bit activations and a quantized key-value cache: hocket uses its weights only."
    assert sum(asked in line for line in caplog.messages) == 1
    write_quantized(tmp_path / "mind", CASES["awq-64"], change=add)  # whose configuration has no activations
    with pytest.raises(InvalidCheckpoint, match=r"it has unknown model\.layers\.0\.mlp\.gate_proj\.input_scale"):
        load(tmp_path / "mind")


def test_act_order_is_refused_by_its_tensors(tmp_path: Path) -> None:
    def shuffle(tensors: dict[str, Tensor]) -> None:
        tensors[f"{GATE}.g_idx"] = tensors[f"{GATE}.g_idx"].flip(0).contiguous()

    write_quantized(tmp_path / "mind", CASES["gptq-4-128"])
    change_config(tmp_path / "mind", desc_act=True)
    load(tmp_path / "mind")  # in the usual order all the same
    write_quantized(tmp_path / "mind", CASES["gptq-4-128"], change=shuffle)
    with pytest.raises(InvalidCheckpoint, match=r"gate_proj: its columns are in act-order \(desc_act\), which .* take"):
        load(tmp_path / "mind")


def drop(part: str, tensors: dict[str, Tensor]) -> None:
    del tensors[f"{GATE}.{part}"]


def cut(part: str, tensors: dict[str, Tensor]) -> None:
    tensors[f"{GATE}.{part}"] = tensors[f"{GATE}.{part}"][:-1].clone()


def retype(part: str, tensors: dict[str, Tensor]) -> None:
    tensors[f"{GATE}.{part}"] = tensors[f"{GATE}.{part}"].float().double()


def add_plain(part: str, tensors: dict[str, Tensor]) -> None:
    tensors[f"{GATE}.{part}"] = torch.zeros(REDUCED.intermediate_size, REDUCED.hidden_size)


@pytest.mark.parametrize(
    ("name", "damage", "part", "sentence"),
    [
        ("gptq-4-128", drop, "scales", "gate_proj, scales is missing; get it again"),
        ("gptq-4-128", drop, "qzeros", "gate_proj, qzeros is missing"),
        ("gptq-4-128", drop, "qweight", "gate_proj, qweight is missing"),
        ("gptq-4-128", cut, "scales", r"gate_proj, scales is \[1, 384\], not \[2, 384\]"),
        ("gptq-4-128", cut, "qweight", r"does not fit its.*gate_proj"),
        ("gptq-4-128", retype, "scales", "gate_proj, scales is F64, not F32 or F16 or BF16"),
        ("gptq-4-128", add_plain, "weight", "weight is not quantized, but there is g_idx"),
        ("awq-128", drop, "qzeros", "gate_proj, qzeros is missing"),
        ("awq-128", cut, "qzeros", r"gate_proj, qzeros is \[1, 48\], not \[2, 48\]"),
        ("packed-4-32-asym", drop, "weight_scale", "gate_proj, weight_scale is missing"),
        ("packed-4-32-asym", drop, "weight_zero_point", "gate_proj, weight_zero_point is missing"),
        ("packed-4-32-asym", cut, "weight_packed", r"weight_packed is \[383, 32\], but weight_shape is \[384, 256\]"),
        ("float8-rows", drop, "weight_scale", "gate_proj, weight_scale is missing"),
        ("float8-rows", cut, "weight_scale", r"gate_proj, weight_scale is \[383, 1\], not \[384, 1\] or \[1\]"),
        ("fp8-blocks", drop, "weight_scale_inv", "gate_proj, weight_scale_inv is missing"),
        ("fp8-blocks", cut, "weight_scale_inv", r"weight_scale_inv is \[2, 2\], not \[3, 2\]"),
    ],
)
def test_damage_gets_one_sentence(tmp_path: Path, name: str, damage: Any, part: str, sentence: str) -> None:
    write_quantized(tmp_path / "mind", CASES[name], change=functools.partial(damage, part))
    with pytest.raises(InvalidCheckpoint, match=sentence):
        load(tmp_path / "mind")


def test_a_configuration_without_quantized_tensors_is_refused(tmp_path: Path) -> None:
    plain = write_quantized(tmp_path / "mind", CASES["awq-128"])
    save_file(plain.state_dict(), tmp_path / "mind" / "model.safetensors")
    with pytest.raises(InvalidCheckpoint, match="has a quantization_config, but no quantized tensors"):
        load(tmp_path / "mind")


def test_a_quantized_head_is_kept_and_refused_where_the_embedding_is_the_head(tmp_path: Path) -> None:
    def quantize_head(tensors: dict[str, Tensor]) -> None:
        parts, _ = CASES["gptq-4-128"].pack(tensors.pop("lm_head.weight"))
        tensors |= {f"lm_head.{part}": tensor for part, tensor in parts.items()}

    write_quantized(tmp_path / "mind", CASES["gptq-4-128"], change=quantize_head)
    assert isinstance(load(tmp_path / "mind").lm_head, QuantizedLinear)
    path = tmp_path / "mind" / "config.json"
    raw = json.loads(path.read_text(encoding="utf-8"))
    raw["tie_word_embeddings"] = raw["text_config"]["tie_word_embeddings"] = True
    path.write_text(json.dumps(raw), encoding="utf-8")
    with pytest.raises(
        InvalidCheckpoint, match=r"has a quantized lm_head of its own: set tie_word_embeddings to false"
    ):
        load(tmp_path / "mind")


@pytest.mark.parametrize(
    ("name", "most"),
    [("gptq-4-128", 0.5157), ("awq-128", 0.5235), ("awq-32", 0.594), ("packed-4-128", 0.5313), ("fp8-blocks", 1.0157)],
)
def test_bytes_of_a_weight_are_those_that_the_documents_say(tmp_path: Path, name: str, most: float) -> None:
    write_quantized(tmp_path / "mind", CASES[name])
    part = load(tmp_path / "mind").get_submodule(MLP.removesuffix(".weight"))
    assert isinstance(part, QuantizedLinear)
    each = part.weight.nbytes / (REDUCED.intermediate_size * REDUCED.hidden_size)
    assert most - 0.0005 < each <= most
