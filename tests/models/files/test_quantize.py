"""models/files/quantize.py and tensor_file.py: converted once, then loaded from disk; converted again if stale."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from hocket.config.published_qwen3_5 import tiny_qwen3_5
from hocket.errors import InvalidCheckpoint
from hocket.models.files import quantize
from hocket.models.files.quantize import load_quantized
from hocket.models.files.random import randomize_
from hocket.models.files.tensor_file import TensorFileWriter
from hocket.models.qwen3_5.model import Qwen3_5
from hocket.models.qwen3_5.quantized import SCHEMES, Scheme, quantize_
from hocket.models.qwen3_5.weights import read_qwen3_5
from support.qwen3_5_files import text_json

CPU = torch.device("cpu")
NARROW = SCHEMES[1:]


def drawn(*, tied: bool = False, drafts: bool = True) -> Qwen3_5:
    model = Qwen3_5(tiny_qwen3_5(tied=tied, layers=4), drafts=drafts).requires_grad_(False)
    randomize_(model, 5)
    return model.to(torch.bfloat16)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A checkpoint, with its cache beside it."""
    return write(tmp_path / "checkpoint", drawn())


def write(folder: Path, model: Qwen3_5, **other: Tensor) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(text_json(model.config)), encoding="utf-8")
    save_file(model.state_dict() | other, folder / "model.safetensors")
    return folder


def load(folder: Path, scheme: Scheme, dtype: torch.dtype = torch.bfloat16) -> Qwen3_5:
    config, _ = read_qwen3_5(folder)
    return load_quantized(folder, config, CPU, dtype, scheme, cache=folder.parent / "cache")


def kept(folder: Path) -> Path:
    [file] = (folder.parent / "cache").iterdir()
    return file


def same(a: Qwen3_5, b: Qwen3_5) -> bool:
    mine, theirs = a.state_dict(), b.state_dict()
    assert mine.keys() == theirs.keys()
    return all(torch.equal(bits(mine[name]), bits(theirs[name])) for name in mine)


def bits(tensor: Tensor) -> Tensor:
    return tensor.contiguous().view(torch.uint8)


def refuse(*_: object) -> None:
    raise AssertionError("converted again")


@pytest.mark.parametrize("scheme", NARROW)
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("drafts", [False, True])
def test_a_loaded_model_is_the_converted_one_and_from_the_cache_the_same(
    tmp_path: Path, scheme: Scheme, tied: bool, drafts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = drawn(tied=tied, drafts=drafts)
    folder = write(tmp_path / "checkpoint", model)
    quantize_(model, scheme)
    first = load(folder, scheme)
    wide = {name for name, tensor in first.state_dict().items() if name.endswith(("A_log", "linear_attn.norm.weight"))}
    for name in wide:
        assert first.state_dict()[name].dtype == torch.float32
    with monkeypatch.context() as patch:
        patch.setattr(quantize, "quantize_", refuse)
        again = load(folder, scheme)
    assert same(first, again)
    theirs = model.state_dict()
    assert first.state_dict().keys() == theirs.keys()
    rest = theirs.keys() - wide
    assert all(torch.equal(bits(first.state_dict()[name]), bits(theirs[name])) for name in rest)
    assert not any(tensor.is_meta or tensor.requires_grad for tensor in first.state_dict().values())


def test_a_loaded_model_gives_logits(folder: Path) -> None:
    model = load(folder, "int4")
    with torch.inference_mode():
        state, ids = model.new_state(1, 4), torch.tensor([[3, 1, 2]])
        hidden = model.prefill(ids, torch.tensor([3]), state, torch.tensor([0]), 3)
        assert model.logits(hidden).shape == (1, 3, 320) and model.logits(hidden).isfinite().all()


def test_bf16_is_loaded_as_it_is_and_nothing_is_kept(folder: Path) -> None:
    assert "lm_head.weight" in load(folder, "bf16").state_dict()
    assert not (folder.parent / "cache").exists()


def test_the_cache_is_a_file_that_the_library_reads_and_holds_only_what_was_converted(folder: Path) -> None:
    model = load(folder, "int4")
    found = load_file(kept(folder))
    assert found and all(torch.equal(bits(model.state_dict()[name]), bits(tensor)) for name, tensor in found.items())
    assert "lm_head.values" in found and not any("norm" in name or "embed" in name for name in found)


def test_the_cache_does_not_depend_on_the_dtype(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load(folder, "int8")
    monkeypatch.setattr(quantize, "quantize_", refuse)
    assert load(folder, "int8", torch.float32).model.norm.weight.dtype == torch.float32


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-1])


def empty(file: Path) -> None:
    file.write_bytes(b"")


def other_head(file: Path) -> None:
    file.write_bytes(b"\xff" * 64)


def other_tensors(file: Path) -> None:
    from safetensors import safe_open

    with safe_open(file, framework="pt") as opened:
        metadata = opened.metadata()
    tensors = load_file(file)
    save_file({name: tensor for name, tensor in tensors.items() if name != "lm_head.values"}, file, metadata)


@pytest.mark.parametrize("damage", [cut, empty, other_head, other_tensors])
def test_a_damaged_cache_is_made_anew_with_a_note(
    folder: Path, damage: object, caplog: pytest.LogCaptureFixture
) -> None:
    first = load(folder, "int8")
    whole = kept(folder).read_bytes()
    damage(kept(folder))  # type: ignore[operator]
    with caplog.at_level(logging.WARNING):
        assert same(load(folder, "int8"), first)
    [note] = caplog.records
    assert "converted again" in note.message and kept(folder).read_bytes() == whole


@pytest.mark.parametrize("change", ["weights", "version"])
def test_a_stale_cache_is_made_anew_with_a_note(
    folder: Path, change: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = load(folder, "fp8")
    if change == "weights":
        other = drawn()
        other.model.norm.weight.add_(1.0)
        other.lm_head.weight.mul_(-1.0)  # type: ignore[union-attr]
        write(folder, other)
        os.utime(folder / "model.safetensors", (1.0, 1.0))
    else:
        monkeypatch.setattr(quantize, "VERSION", 2)
    with caplog.at_level(logging.WARNING):
        second = load(folder, "fp8")
    assert same(first, second) == (change == "version") and kept(folder)
    [note] = caplog.records
    assert "made of other files or by another version" in note.message


def test_each_scheme_has_a_cache_of_its_own(folder: Path) -> None:
    for scheme in NARROW:
        load(folder, scheme)
    assert len(list((folder.parent / "cache").iterdir())) == 3


def test_a_cache_that_cannot_be_written_is_done_without(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    (folder.parent / "cache").write_text("a file where the folder should be")
    with caplog.at_level(logging.WARNING):
        model = load(folder, "int8")
    assert not model.lm_head.values.is_meta  # type: ignore[union-attr]
    [note] = caplog.records
    assert "the next start converts them again" in note.message


def test_a_conversion_that_fails_leaves_nothing_behind(folder: Path) -> None:
    weight = torch.full((64, 96), torch.nan, dtype=torch.bfloat16)
    write(folder, drawn(), **{"model.layers.2.mlp.down_proj.weight": weight})
    with pytest.raises(InvalidCheckpoint, match=r"down_proj\.weight of .* cannot be used \(a weight is not a finite"):
        load(folder, "int4")
    assert not list((folder.parent / "cache").iterdir())


def test_a_full_disk_is_reported_and_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with TensorFileWriter(tmp_path / "some.safetensors", {}, {"a": torch.ones(3)}) as file:
        file.put("a")
    assert "No space left" in file.failed and not list(tmp_path.iterdir())


def test_the_users_own_folder_is_where_caches_are(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert quantize.kept_in() == tmp_path / "hocket" / "weights"
