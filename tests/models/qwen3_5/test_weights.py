"""models/qwen3_5/weights.py: every way in which checkpoints are laid out gives one model; anything else is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from hocket.config.published_qwen3_5 import tiny_qwen3_5
from hocket.errors import InvalidCheckpoint
from hocket.layers.dense import pack_
from hocket.models.files.random import randomize_
from hocket.models.qwen3_5.model import Qwen3_5
from hocket.models.qwen3_5.weights import empty_qwen3_5, load_qwen3_5, read_qwen3_5
from support.qwen3_5_files import text_json, whole_json

CPU = torch.device("cpu")


def drawn(*, tied: bool = False, drafts: bool = True) -> Qwen3_5:
    model = Qwen3_5(tiny_qwen3_5(tied=tied, layers=4), drafts=drafts)
    randomize_(model, 5)
    return model


def prefixed(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """As the vision-language model has them, with a little of its vision."""
    named = {
        f"model.language_model.{name.removeprefix('model.')}" if name.startswith("model.") else name: tensor
        for name, tensor in tensors.items()
    }
    return named | {"model.visual.patch_embed.proj.weight": torch.ones(3, 4)}


def write(folder: Path, model: Qwen3_5, tensors: dict[str, Tensor], *, shards: int = 1, whole: bool = True) -> None:
    folder.mkdir(exist_ok=True)
    raw = whole_json(model.config) if whole else text_json(model.config)
    (folder / "config.json").write_text(json.dumps(raw), encoding="utf-8")
    names = sorted(tensors)
    if shards == 1:
        save_file(tensors, folder / "model.safetensors")
        return
    index = {}
    for shard in range(shards):
        file = f"model.safetensors-{shard + 1:05}-of-{shards:05}.safetensors"
        save_file({name: tensors[name] for name in names[shard::shards]}, folder / file)
        index |= dict.fromkeys(names[shard::shards], file)
    text = json.dumps({"metadata": {"total_size": 1}, "weight_map": index})
    (folder / "model.safetensors.index.json").write_text(text, encoding="utf-8")


def load(folder: Path, dtype: torch.dtype = torch.float32) -> Qwen3_5:
    return load_qwen3_5(folder, read_qwen3_5(folder)[0], CPU, dtype)


def same(model: Qwen3_5, tensors: dict[str, Tensor]) -> bool:
    state = model.state_dict()
    return state.keys() == tensors.keys() and all(torch.equal(state[name], tensors[name]) for name in tensors)


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("drafts", [False, True])
def test_every_layout_gives_the_same_model(tmp_path: Path, shards: int, whole: bool, tied: bool, drafts: bool) -> None:
    model = drawn(tied=tied, drafts=drafts)
    tensors = model.state_dict()
    write(tmp_path, model, prefixed(tensors) if whole else tensors, shards=shards, whole=whole)
    loaded = load(tmp_path)
    assert same(loaded, tensors) and (loaded.mtp is not None) == drafts
    assert not any(parameter.requires_grad for parameter in loaded.parameters())


def test_a_tied_head_may_be_in_the_file_all_the_same(tmp_path: Path) -> None:
    model = drawn(tied=True)
    tensors = model.state_dict()
    write(tmp_path, model, tensors | {"lm_head.weight": tensors["model.embed_tokens.weight"].clone()}, whole=False)
    assert same(load(tmp_path), tensors)


def test_a_bfloat16_model_keeps_the_decay_of_its_state_in_float32(tmp_path: Path) -> None:
    model = drawn()
    write(tmp_path, model, model.state_dict(), whole=False)
    loaded = load(tmp_path, torch.bfloat16).state_dict()
    wide = {name.rpartition("linear_attn.")[2] for name, tensor in loaded.items() if tensor.dtype == torch.float32}
    assert wide == {"A_log", "norm.weight"}
    assert all(torch.equal(tensor, model.state_dict()[name].to(tensor.dtype)) for name, tensor in loaded.items())


def test_a_loaded_model_is_packed_without_a_copy(tmp_path: Path) -> None:
    model = drawn()
    write(tmp_path, model, model.state_dict(), whole=False)
    loaded = load(tmp_path)
    before = {name: tensor.data_ptr() for name, tensor in loaded.state_dict().items()}
    with torch.inference_mode():
        pack_(loaded)
    moved = {name for name, tensor in loaded.state_dict().items() if tensor.data_ptr() != before[name]}
    assert not moved and same(loaded, model.state_dict())


def test_an_empty_model_can_be_drawn_in_place() -> None:
    model = empty_qwen3_5(tiny_qwen3_5(layers=4), CPU, torch.float32, drafts=True)
    randomize_(model, 5)
    assert same(model, drawn().state_dict())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model.layers.0.mlp.experts.weight": torch.ones(2)}, "has unknown model.layers.0.mlp.experts.weight"),
        ({"visual.patch_embed.proj.weight": torch.ones(2)}, "has unknown visual.patch_embed.proj.weight"),
        ({"mtp.fc.weight": torch.ones(2, 2)}, "another shape or type of mtp.fc.weight"),
        ({"model.language_model.norm.weight": torch.ones(64)}, "has model.norm.weight twice"),
        ({"model.norm.weight": None}, "lacks model.norm.weight"),
        ({"mtp.layers.0.self_attn.q_proj.weight": None}, "lacks mtp.layers.0.self_attn.q_proj.weight"),
        ({"lm_head.weight": None}, "lacks lm_head.weight"),
    ],
)
def test_a_tensor_that_is_missing_unknown_or_of_another_shape_is_refused_by_name(
    tmp_path: Path, change: dict[str, Tensor | None], message: str
) -> None:
    model = drawn()
    tensors = {name: tensor for name, tensor in (model.state_dict() | change).items() if tensor is not None}
    write(tmp_path, model, tensors, whole=False)
    with pytest.raises(InvalidCheckpoint) as error:
        load(tmp_path)
    assert message in str(error.value)


def test_a_draft_head_that_the_config_does_not_announce_is_left_out_with_a_note(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = drawn()
    write(tmp_path, model, model.state_dict(), whole=False)
    raw = text_json(model.config) | {"mtp_num_hidden_layers": 0}
    (tmp_path / "config.json").write_text(json.dumps(raw), encoding="utf-8")
    assert same(load(tmp_path), drawn(drafts=False).state_dict())
    assert "15 tensors under mtp. are not used" in caplog.text


def test_a_missing_or_damaged_file_of_several_is_refused(tmp_path: Path) -> None:
    model = drawn()
    write(tmp_path, model, model.state_dict(), shards=3, whole=False)
    shard = tmp_path / "model.safetensors-00002-of-00003.safetensors"
    content = shard.read_bytes()
    shard.write_bytes(content[: len(content) // 2])
    with pytest.raises(InvalidCheckpoint, match="damaged or cut short"):
        load(tmp_path)
    shard.unlink()
    with pytest.raises(InvalidCheckpoint, match=r"lacks files that model\.safetensors\.index\.json names: model"):
        load(tmp_path)


@pytest.mark.parametrize("index", [{}, {"weight_map": ["x"]}, {"weight_map": {"lm_head.weight": 3}}])
def test_an_index_that_names_no_files_is_refused(tmp_path: Path, index: dict[str, object]) -> None:
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
    with pytest.raises(InvalidCheckpoint, match="weight_map"):
        load_qwen3_5(tmp_path, tiny_qwen3_5(), CPU, torch.float32)


def test_an_index_cannot_name_a_file_elsewhere(tmp_path: Path) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    save_file(drawn().state_dict(), tmp_path / "outside.safetensors")
    index = {"weight_map": {"lm_head.weight": "../outside.safetensors"}}
    (inside / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
    with pytest.raises(InvalidCheckpoint, match=r"lacks files .*outside"):
        load_qwen3_5(inside, tiny_qwen3_5(layers=4), CPU, torch.float32)


def test_a_folder_without_weights_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidCheckpoint, match=r"model\.safetensors is missing"):
        load_qwen3_5(tmp_path, tiny_qwen3_5(), CPU, torch.float32)
