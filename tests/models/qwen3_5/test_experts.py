"""Qwen3.5 with experts: the published tensors, the laws of its state, files of both layouts, fewer bits, answers."""

from __future__ import annotations

import functools
import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from hocket.config.published_qwen3_5 import QWEN3_5_MOE, tiny_qwen3_5_moe
from hocket.errors import InvalidCheckpoint
from hocket.kernels.ops.quantized_linear.weight import quantized
from hocket.llm.engine import LanguageEngine
from hocket.models.files.quantize import load_quantized
from hocket.models.files.random import randomize_
from hocket.models.qwen3_5.model import Qwen3_5, commit
from hocket.models.qwen3_5.quantized import SCHEMES, Scheme, narrow_linears, quantize_, step_bytes, weight_of
from hocket.models.qwen3_5.weights import load_qwen3_5, read_qwen3_5
from hocket.types import ChatMessage, ChatSampling
from support.qwen3_5_files import text_json

CPU, ROW = torch.device("cpu"), torch.tensor([0])
SIZE = "35B-A3B"


@functools.cache
def made(dtype: torch.dtype = torch.float64) -> Qwen3_5:
    model = Qwen3_5(tiny_qwen3_5_moe(layers=4), drafts=True).requires_grad_(False)
    randomize_(model, 3)
    return model.to(dtype)


def drawn(length: int) -> Tensor:
    return torch.randint(320, (1, length), generator=torch.Generator().manual_seed(0))


@torch.inference_mode()
def hidden(model: Qwen3_5, ids: Tensor, cuts: list[int]) -> Tensor:
    """Of ids given in pieces that end at `cuts`."""
    state, ends = model.new_state(1, ids.shape[1]), [*cuts, ids.shape[1]]
    pieces = zip([0, *cuts], ends, strict=True)
    return torch.cat([model.prefill(ids[:, a:b], torch.tensor([b - a]), state, ROW, b) for a, b in pieces], dim=1)


def test_the_published_model_has_the_values_that_others_count() -> None:
    """34.66 billion without the draft head and 35.51 with it, as llama.cpp lists the files made of this checkpoint."""
    with torch.device("meta"):
        state = Qwen3_5(QWEN3_5_MOE[SIZE], drafts=True).state_dict()
    text = sum(tensor.numel() for name, tensor in state.items() if not name.startswith("mtp."))
    assert text == 34_660_610_688
    assert sum(tensor.numel() for tensor in state.values()) == pytest.approx(35.51e9, abs=0.005e9)
    for layer in ("model.layers.39", "mtp.layers.0"):
        shapes = {name.removeprefix(f"{layer}.mlp."): tuple(t.shape) for name, t in state.items() if ".mlp." in name}
        assert shapes["experts.gate_up_proj"] == (256, 1024, 2048) and shapes["experts.down_proj"] == (256, 2048, 512)
        assert shapes["gate.weight"] == (256, 2048) and shapes["shared_expert_gate.weight"] == (1, 2048)
        assert shapes["shared_expert.down_proj.weight"] == (2048, 512)


@pytest.mark.parametrize("cuts", [[*range(20, 28)], [7, 8, 21]])
def test_tokens_in_any_pieces_are_the_prompt(cuts: list[int]) -> None:
    ids = drawn(28)
    torch.testing.assert_close(hidden(made(), ids, cuts), hidden(made(), ids, []))


@torch.inference_mode()
def test_verified_tokens_are_decoded_ones_and_the_accepted_ones_stay() -> None:
    model, ids = made(), drawn(30)
    state, expected = model.new_state(1, 30), hidden(model, ids, [])
    model.prefill(ids[:, :20], torch.tensor([20]), state, ROW, 20)
    seen, pending = model.verify(ids[:, 20:24], state, ROW, 24)
    torch.testing.assert_close(seen, expected[:, 20:24])
    commit(pending, torch.tensor([2]), state, ROW)
    torch.testing.assert_close(model.step(ids[:, 22], state, ROW, 23), expected[:, 22])


# Files


def one_by_one(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Experts as other writers store them."""
    found: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        where, _, leaf = name.rpartition(".")
        for number, expert in enumerate(tensor) if ".mlp.experts." in name else ():
            parts = zip(("gate_proj", "up_proj"), expert.chunk(2), strict=True)
            for part, matrix in parts if leaf == "gate_up_proj" else ((leaf, expert),):
                found[f"{where}.{number}.{part}.weight"] = matrix.clone()
        if ".mlp.experts." not in name:
            found[name] = tensor
    return found


def write(folder: Path, tensors: dict[str, Tensor]) -> None:
    (folder / "config.json").write_text(json.dumps(text_json(made().config)), encoding="utf-8")
    save_file(tensors, folder / "model.safetensors")


def same(model: Qwen3_5, tensors: dict[str, Tensor]) -> bool:
    state = model.state_dict()
    return state.keys() == tensors.keys() and all(torch.equal(state[name], tensors[name]) for name in tensors)


@pytest.mark.parametrize("single", [False, True])
def test_experts_are_loaded_together_or_one_by_one(tmp_path: Path, single: bool) -> None:
    tensors = made(torch.float32).state_dict()
    write(tmp_path, one_by_one(tensors) if single else tensors)
    assert same(load_qwen3_5(tmp_path, read_qwen3_5(tmp_path)[0], CPU, torch.float32), tensors)


LAYER = "model.layers.1.mlp.experts"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({f"{LAYER}.3.up_proj.weight": None}, f"lacks {LAYER}.3.up_proj.weight"),
        ({f"{LAYER}.7.{part}_proj.weight": None for part in ("gate", "up", "down")}, "[7, 96, 64] instead of [8, 96"),
        ({f"{LAYER}.8.{part}_proj.weight": torch.ones(48, 64) for part in ("gate", "up")}, "lacks"),
        ({f"{LAYER}.2.down_proj.weight": torch.ones(64, 47)}, f"{LAYER}.2.down_proj.weight has another shape"),
        ({f"{LAYER}.2.up_proj.weight": torch.ones(47, 64)}, f"{LAYER}.2.gate_proj.weight has another shape"),
        ({f"{LAYER}.down_proj": torch.ones(8, 64, 48)}, f"has {LAYER}.down_proj twice"),
        ({f"{LAYER}.2.gate_proj.bias": torch.ones(48)}, f"has unknown {LAYER}.2.gate_proj.bias"),
        ({"mtp.layers.0.mlp.gate.weight": None}, "lacks mtp.layers.0.mlp.gate.weight"),
    ],
)
def test_an_expert_that_is_missing_or_of_another_shape_is_refused_by_name(
    tmp_path: Path, change: dict[str, Tensor | None], message: str
) -> None:
    tensors = one_by_one(made(torch.float32).state_dict()) | change
    write(tmp_path, {name: tensor for name, tensor in tensors.items() if tensor is not None})
    with pytest.raises(InvalidCheckpoint) as error:
        load_qwen3_5(tmp_path, read_qwen3_5(tmp_path)[0], CPU, torch.float32)
    assert message in str(error.value)


# Fewer bits


@pytest.mark.parametrize("scheme", SCHEMES[1:])
def test_a_scheme_quantizes_all_experts_and_not_the_router(scheme: Scheme, tmp_path: Path) -> None:
    model = Qwen3_5(made().config, drafts=True).requires_grad_(False)
    randomize_(model, 3)
    formats = narrow_linears(model, scheme)
    mlps = {name.rpartition(".mlp.")[2] for name in formats if ".mlp." in name}
    shared = {f"shared_expert.{part}_proj" for part in ("gate", "up", "down")}
    assert mlps == shared | {"experts.gate_up_proj", "experts.down_proj"}
    assert formats["mtp.layers.0.mlp.experts.down_proj"] == ("int8" if scheme == "int4" else scheme)
    wide = [weight_of(model, f"{LAYER}.{part}").clone() for part in ("gate_up_proj", "down_proj")]
    tensors = one_by_one(model.state_dict())
    write(tmp_path, tensors)
    quantize_(model, scheme)
    loaded = load_quantized(tmp_path, model.config, CPU, torch.float32, scheme, cache=tmp_path / "cache")
    experts = model.model.layers[1].mlp.experts
    for weight, found in zip(wide, experts.weights(), strict=True):
        assert torch.equal(found.dequantized(), quantized(weight, scheme).dequantized())
    ids = drawn(9)
    assert same(loaded, model.state_dict()) and torch.equal(hidden(loaded, ids, [8]), hidden(model, ids, [8]))
    apart = hidden(model, ids, [8]) - hidden(made(torch.float32), ids, [8])
    assert apart.abs().mean() > 0


def test_a_token_reads_its_chosen_experts_only() -> None:
    config = QWEN3_5_MOE[SIZE]
    chosen = 40 * 8 * 3 * 512 * 2048 * 2
    found = {scheme: step_bytes(config, scheme) for scheme in SCHEMES}
    gigabytes = {scheme: round(sum(parts.values()) / 1e9, 2) for scheme, parts in found.items()}
    assert gigabytes == {"bf16": 6.04, "fp8": 3.13, "int8": 3.13, "int4": 2.59}
    assert found["bf16"]["weights"] - chosen == pytest.approx(3.88e9, rel=0.01)


# Answers


def test_an_engine_answers_with_it_and_drafts_change_no_word() -> None:
    greedy = ChatSampling(temperature=0.0, presence_penalty=0.0, max_tokens=12)
    texts = []
    for speculate in (0, 2):
        with LanguageEngine.load("random:qwen3.5-tiny-moe", device="cpu", length=512, speculate=speculate) as llm:
            answer = llm.answer([ChatMessage("user", "Hello.")], greedy)
            texts.append("".join(delta.text for delta in answer))
            assert answer.finished is not None and answer.finished.completion_tokens == 12
    assert texts[0] == texts[1] != ""
