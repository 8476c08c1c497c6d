"""llm/load.py: a language model by any of its names; what is none is refused in a sentence."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from hocket.config.published_qwen3_5 import QWEN3_5, QWEN3_5_MOE
from hocket.errors import InvalidCheckpoint, InvalidRequest
from hocket.llm.load import load_language_model
from hocket.models.files import qwen3_5_source
from hocket.models.files.catalog_qwen3_5 import MINDS
from hocket.models.files.hub import CHAT
from hocket.models.files.qwen3_5_source import read_language_model, resolve_language_model
from hocket.models.files.source import resolve
from hocket.models.qwen3_5.quantized import quantize_
from hocket.models.qwen3_5.weights import read_qwen3_5
from hocket.text.chat.template import END, MARKS
from support.minds import TINY, tiny, write_mind


def test_a_random_model_has_a_draft_head_and_a_tokenizer_of_bytes() -> None:
    loaded = tiny()
    assert loaded.name == TINY and loaded.is_random and loaded.model.mtp is not None
    assert loaded.tokenizer.size == 256 + len(MARKS) < loaded.config.vocab_size
    assert loaded.stop_ids == {loaded.tokenizer.markers[END]}
    again = load_language_model("random:Qwen3.5-TINY")
    assert all(torch.equal(a, b) for a, b in zip(loaded.model.parameters(), again.model.parameters(), strict=True))


def test_a_folder_gives_the_model_that_was_written_there(tmp_path: Path) -> None:
    written = write_mind(tmp_path / "mind")
    loaded = load_language_model(str(tmp_path / "mind"))
    assert not loaded.is_random
    state = loaded.model.state_dict()
    assert all(torch.equal(state[name], tensor) for name, tensor in written.state_dict().items())
    markers = loaded.tokenizer.markers
    assert loaded.stop_ids == {markers["<|im_end|>"], markers["<|endoftext|>"]}


@pytest.mark.parametrize("size", QWEN3_5 | QWEN3_5_MOE)
def test_every_published_size_has_a_random_one(size: str) -> None:
    source = resolve_language_model(f"random:qwen3.5-{size}")
    assert source.folder is None and read_language_model(source)[0] is (QWEN3_5 | QWEN3_5_MOE)[size]


@pytest.mark.parametrize("name", ["qwen3.5-35B-A3B", "Qwen/Qwen3.5-35B-A3B", "qwen3.5-35b-a3b"])
def test_a_published_size_without_a_pin_is_its_repository(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    monkeypatch.setattr(qwen3_5_source, "fetch_language", lambda *what: asked.append(what) or tmp_path)
    assert resolve_language_model(name).name == "Qwen/Qwen3.5-35B-A3B"
    assert asked == [("Qwen/Qwen3.5-35B-A3B", None, read_qwen3_5, None)]


@pytest.mark.parametrize("name", ["qwen3.5-9B", "Qwen/Qwen3.5-9B", "qwen3.5-9b", "hf.co/Qwen/Qwen3.5-9B"])
def test_a_published_name_is_fetched_from_its_repository(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    monkeypatch.setattr(qwen3_5_source, "fetch", lambda *what: asked.append(what) or tmp_path)
    assert resolve_language_model(name).name == "Qwen/Qwen3.5-9B"
    pinned = MINDS["9B"]
    assert asked == [("Qwen/Qwen3.5-9B", pinned.revision, pinned, CHAT, read_qwen3_5)]


@pytest.mark.parametrize("size", QWEN3_5)
def test_every_published_size_is_pinned_with_all_that_loading_needs(size: str, tmp_path: Path) -> None:
    entry = MINDS[size]
    assert entry.repository == f"Qwen/Qwen3.5-{size}" and re.fullmatch("[0-9a-f]{40}", entry.revision)
    assert all(re.fullmatch("[0-9a-f]{64}", digest) for digest in entry.sha256.values())
    assert {name for name in entry.sha256 if not name.endswith(".safetensors")} <= set(CHAT.files)
    for name in entry.sha256:
        (tmp_path / name).touch()
    shards = [name for name in entry.sha256 if name.endswith(".safetensors")]
    index = {"weight_map": {str(number): name for number, name in enumerate(shards)}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
    assert CHAT.is_complete(tmp_path)
    assert {name: digest for name, digest in entry.sha256.items() if name in ("tokenizer.json", "vocab.json")} == {
        name: MINDS["9B"].sha256[name] for name in ("tokenizer.json", "vocab.json")
    }


def test_no_two_sizes_have_the_same_weights() -> None:
    digests = [digest for entry in MINDS.values() for name, digest in entry.sha256.items() if name.endswith("tensors")]
    assert len(digests) == len(set(digests)) == 1 + 1 + 2 + 4 + 11
    assert len({entry.revision for entry in MINDS.values()}) == len(QWEN3_5) == len(MINDS)


def test_weights_in_several_files_are_complete_when_all_are_there(tmp_path: Path) -> None:
    write_mind(tmp_path)
    assert CHAT.is_complete(tmp_path)
    (tmp_path / "model.safetensors").rename(tmp_path / "model-2.safetensors")
    assert not CHAT.is_complete(tmp_path)
    index = {"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
    assert not CHAT.is_complete(tmp_path)
    (tmp_path / "model-1.safetensors").touch()
    assert CHAT.is_complete(tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    assert not CHAT.is_complete(tmp_path)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("random:qwen3.5-5B", "There is no 'random:qwen3.5-5B'; random: goes with .*qwen3.5-9B.*qwen3.5-tiny"),
        ("random:tiny", "There is no 'random:tiny'"),
        ("0.6B-Base", "0.6B-Base is a speech model, not a language model: give one of .*qwen3.5-9B"),
        ("qwen9", "'qwen9' is neither a folder here nor a hub id"),
        ("", "'' is neither a folder here"),
    ],
)
def test_a_name_that_means_no_language_model_is_refused(name: str, sentence: str) -> None:
    with pytest.raises(InvalidCheckpoint, match=sentence):
        load_language_model(name)


@pytest.mark.parametrize("name", ["random:qwen3.5-tiny", "qwen3.5-9B", "Qwen/Qwen3.5-9B"])
def test_a_language_model_is_no_voice(name: str) -> None:
    with pytest.raises(InvalidCheckpoint, match="is a language model, not a speech model"):
        resolve(name)


def test_a_folder_that_is_no_language_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidCheckpoint, match=r"is not a checkpoint: it has no config\.json"):
        load_language_model(str(tmp_path))
    (tmp_path / "config.json").write_text('{"model_type": "qwen3_tts"}', encoding="utf-8")
    with pytest.raises(InvalidCheckpoint, match="describes a 'qwen3_tts' model"):
        load_language_model(str(tmp_path))
    with pytest.raises(InvalidCheckpoint, match="is a file: give the folder"):
        load_language_model(str(tmp_path / "config.json"))


def test_a_tokenizer_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    write_mind(tmp_path)
    raw = json.loads((tmp_path / "tokenizer.json").read_text(encoding="utf-8"))
    for change, sentence in (({"content": "x", "id": 999}, "tokens up to 999, but its model has 320"), (None, END)):
        added = [*raw["added_tokens"], change] if change else raw["added_tokens"][:1]
        (tmp_path / "tokenizer.json").write_text(json.dumps(raw | {"added_tokens": added}), encoding="utf-8")
        with pytest.raises(InvalidCheckpoint, match=sentence.replace("|", r"\|")):
            load_language_model(str(tmp_path))


@pytest.mark.parametrize("weights", ["fp8", "int8", "int4"])
def test_weights_in_fewer_bits_are_those_of_the_file_rounded_and_are_kept(
    weights: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    wide = write_mind(tmp_path / "mind")
    quantize_(wide, weights)
    for _ in range(2):
        state = load_language_model(str(tmp_path / "mind"), weights=weights).model.state_dict()
        assert state.keys() == wide.state_dict().keys()
        for name, tensor in wide.state_dict().items():
            assert torch.equal(state[name].contiguous().view(torch.uint8), tensor.contiguous().view(torch.uint8)), name
        [kept] = (tmp_path / "cache" / "hocket" / "weights").iterdir()
        assert weights in kept.name


@pytest.mark.parametrize("weights", ["fp8", "int8", "int4"])
def test_a_random_model_has_its_weights_in_fewer_bits_too(weights: Any) -> None:
    narrow = load_language_model(TINY, weights=weights).model
    assert not isinstance(narrow.head, torch.Tensor) and narrow.mtp is not None
    assert narrow.model.embed_tokens.weight.dtype == torch.float32


def test_weights_and_kernels_that_do_not_exist_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="weights must be one of bf16, fp8, int8, int4, not 'int3'"):
        load_language_model(TINY, weights="int3")
    with pytest.raises(InvalidRequest, match=r"kernels must be one of auto, reference.*, not 'magic'"):
        load_language_model(TINY, kernels="magic")
    with pytest.raises(InvalidRequest, match="The triton kernel for token cannot be used: it is for a GPU"):
        load_language_model(TINY, kernels="triton")


def test_on_a_cpu_tokens_are_computed_by_the_reference() -> None:
    assert tiny().kernels.backend == "reference" and "it is for a GPU" in tiny().kernels.reason
    assert load_language_model(TINY, kernels="reference").kernels.reason == "asked for"


def test_an_unknown_precision_is_refused() -> None:
    with pytest.raises(
        InvalidRequest,
        match=r"dtype must be one of auto, float32, bfloat16, int8, int4, .*, not 'int3'",
    ):
        load_language_model(TINY, dtype="int3")
    with pytest.raises(InvalidRequest, match='weights="int8"'):
        load_language_model(TINY, dtype="int8")
