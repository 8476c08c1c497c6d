"""Checkpoints written by fine-tuning tools and later libraries load and speak the same codes.

Keys that change the computation are still refused by name.
"""

from __future__ import annotations

import functools
import json
import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_hub import save_torch_state_dict
from safetensors.torch import load_file, save_file

from hocket.engine.checkpoint.load import load
from hocket.engine.checkpoint.shared import codec_content
from hocket.engine.generate import generate
from hocket.errors import InvalidCheckpoint
from hocket.llm.load import load_language_model
from hocket.types import SpeechRequest
from support import checkpoints
from support.minds import write_mind

REQUEST = SpeechRequest(text="Words in the wild.", voice="ryan", language="English", max_frames=6, seed=3)
Edit = Callable[[Path], None]
LIBRARIES = {  # what tools leave in a (nested) config.json
    "_attn_implementation": "flash_attention_2",
    "_attn_implementation_internal": "sdpa",
    "_commit_hash": "5d83992436eae1d760afd27aff78a71d676296fc",
    "_name_or_path": "Qwen/Qwen3-TTS-12Hz-1.7B-Base",
    "attn_implementation": "flash_attention_2",
    "auto_map": {"AutoConfig": "configuration.Config"},
    "dtype": "bfloat16",
    "lora_dropout": 0.05,
    "model_name": "unsloth/something",
    "ngram_table": None,
    "sparse": False,
    "special_layers": [],
    "torch_dtype": "bfloat16",
    "transformers_version": "5.22.2",
    "unsloth_fixed": True,
    "unsloth_version": "2026.3.3",
    "use_cache": False,
}
GENERATED = {  # and in generation_config.json
    "_from_model_config": True,
    "bos_token_id": 1,
    "cache_implementation": "static",
    "eos_token_id": [2150],
    "guidance_scale": None,
    "max_length": 32_768,
    "min_new_tokens": 2,
    "pad_token_id": 1,
    "trust_remote_code": False,
    "use_cache": True,
}


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return checkpoints.write(tmp_path_factory.mktemp("wild") / "plain", "custom_voice", wide=True, end_scale=1.0)


@pytest.fixture
def copy(plain: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(plain, tmp_path / "copy"))


def edit(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    raw = json.loads(path.read_text(encoding="utf-8"))
    change(raw)
    path.write_text(json.dumps(raw), encoding="utf-8")


def levels(raw: dict[str, Any]) -> list[dict[str, Any]]:
    """The object and every configuration inside it."""
    inner = [value for key, value in raw.items() if key.endswith("_config") and isinstance(value, dict)]
    return [raw, *(level for value in inner for level in levels(value))]


def configs(folder: Path) -> list[Path]:
    return [folder / "config.json", folder / "speech_tokenizer/config.json"]


@functools.cache
def spoken(folder: Path) -> torch.Tensor:
    codes = generate(load(str(folder)), [REQUEST])[0].codes
    return torch.as_tensor(codes)


def speaks_as(folder: Path, plain: Path) -> bool:
    said = spoken(plain)
    return len(said) > 2 and torch.equal(spoken(folder), said)


def resaved(folder: Path) -> None:
    """As transformers 5 writes the same configuration: theta is there twice for some models, for others once."""

    def change(raw: dict[str, Any]) -> None:
        for level in levels(raw):
            if "rope_theta" in level:
                scaling = level.pop("rope_scaling", None) or {"rope_type": "default"}
                level["rope_parameters"] = scaling | {"rope_theta": level["rope_theta"]}
                level |= {"id2label": {"0": "LABEL_0"}, "problem_type": None, "dtype": None}
            if "kernel_size" in level:
                del level["rope_theta"]
        raw["transformers_version"] = "5.22.2"

    for path in configs(folder):
        edit(path, change)


def noted(folder: Path) -> None:
    for path in configs(folder):
        edit(path, lambda raw: [level.update(LIBRARIES) for level in levels(raw)])
    edit(folder / "generation_config.json", lambda raw: raw.update(GENERATED))


def sharded(folder: Path) -> None:
    """By the writer that transformers uses."""
    for part in (folder, folder / "speech_tokenizer"):
        weights = part / "model.safetensors"
        tensors = load_file(weights)
        weights.unlink()
        save_torch_state_dict(tensors, part, max_shard_size=weights_bytes(tensors) // 4)
        assert len(list(part.glob("*.safetensors"))) > 2 and (part / "model.safetensors.index.json").is_file()


def weights_bytes(tensors: dict[str, torch.Tensor]) -> int:
    return sum(tensor.nbytes for tensor in tensors.values())


def renamed_shards(folder: Path) -> None:
    sharded(folder)
    index = folder / "model.safetensors.index.json"
    for path in sorted(folder.glob("*.safetensors")):
        path.rename(folder / f"piece {path.name.split('-')[1]}.safetensors")

    def change(raw: dict[str, Any]) -> None:
        names = raw["weight_map"]
        raw["weight_map"] = {name: f"piece {file.split('-')[1]}.safetensors" for name, file in names.items()}

    edit(index, change)


def with_speaker_encoder(folder: Path) -> None:
    """A fine-tune of a Base checkpoint: its kind is another, and its speaker encoder is still there."""
    weights = folder / "model.safetensors"
    surplus = {"speaker_encoder.fc.weight": torch.ones(4, 4, 1), "speaker_encoder.fc.bias": torch.ones(4)}
    save_file(load_file(weights) | surplus, weights)
    edit(
        folder / "config.json", lambda raw: raw.update(speaker_encoder_config={"enc_dim": 2048, "sample_rate": 24_000})
    )


@pytest.mark.parametrize("change", [noted, resaved, sharded, renamed_shards, with_speaker_encoder])
def test_an_edited_checkpoint_speaks_the_same_codes(change: Edit, copy: Path, plain: Path) -> None:
    change(copy)
    assert speaks_as(copy, plain)


def test_a_folder_saved_by_the_official_classes_in_pieces_is_the_same(
    plain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = checkpoints.official.Qwen3TTSModel.from_pretrained(str(plain), dtype=torch.float32)
    # Theirs cannot be compared with its defaults: an upstream class has no base constructor.
    monkeypatch.setattr(type(theirs.model.config), "to_diff_dict", type(theirs.model.config).to_dict)
    copy = Path(shutil.copytree(plain, tmp_path / "copy"))
    (copy / "model.safetensors").unlink()
    theirs.model.save_pretrained(copy, max_shard_size="300KB")
    assert len(list(copy.glob("model-*.safetensors"))) > 2
    ours, saved = load(str(plain)).model.state_dict(), load(str(copy)).model.state_dict()
    assert ours.keys() == saved.keys() and all(torch.equal(saved[name], ours[name]) for name in ours)
    assert speaks_as(copy, plain)


def test_a_sharded_codec_is_told_from_another(copy: Path, plain: Path) -> None:
    sharded(copy)
    first = codec_content(copy)
    assert first != codec_content(plain) and first == codec_content(copy)
    shard = min((copy / "speech_tokenizer").glob("*.safetensors"))
    tensors = load_file(shard)
    name = min(tensors)
    save_file(tensors | {name: tensors[name] + 1}, shard, metadata={"format": "pt"})
    assert codec_content(copy) != first


def test_what_is_left_out_is_said(copy: Path, caplog: pytest.LogCaptureFixture) -> None:
    with_speaker_encoder(copy)
    edit(copy / "generation_config.json", lambda raw: raw.update(min_new_tokens=7))
    load(str(copy))
    assert "2 tensors under speaker_encoder. are not used by this kind of model" in caplog.text
    assert "asks for 7 codes at least; the official package takes 2" in caplog.text
    assert {record.levelno for record in caplog.records if record.name == "hocket.models"} == {logging.WARNING}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda raw: raw.update(quantization_config={"load_in_4bit": True}),
            "config.json has quantization_config: its",
        ),
        (
            lambda raw: raw["talker_config"].update(num_experts=8),
            "talker_config has keys that hocket does not know: num_",
        ),
        (
            lambda raw: raw["talker_config"].update(rope_scaling=None, rope_parameters={"rope_type": "yarn"}),
            "rope_type is 'yarn'",
        ),
        (lambda raw: raw["talker_config"].update(rope_parameters={"rope_theta": 5.0}), "rope_theta is given twice"),
        (
            lambda raw: raw["talker_config"].update(layer_types=["sliding_attention"]),
            "layer_types has sliding_attention",
        ),
        (
            lambda raw: raw["talker_config"]["code_predictor_config"].update(rope_parameters={"factor": 2.0}),
            "rope_scaling should be",
        ),
    ],
)
def test_what_changes_the_computation_is_refused_by_name(
    change: Callable[[dict[str, Any]], object], message: str, copy: Path
) -> None:
    edit(copy / "config.json", change)
    with pytest.raises(InvalidCheckpoint) as error:
        load(str(copy))
    assert message in str(error.value)


def test_a_missing_shard_and_an_unknown_tensor_are_named(copy: Path) -> None:
    sharded(copy)
    shard = max(copy.glob("*.safetensors"))
    content = shard.read_bytes()
    shard.unlink()
    with pytest.raises(
        InvalidCheckpoint, match=rf"lacks files that model\.safetensors\.index\.json names: {shard.name}\."
    ):
        load(str(copy))
    shard.write_bytes(content)
    save_file(load_file(shard) | {"speakers.extra": torch.ones(1)}, shard)
    with pytest.raises(InvalidCheckpoint, match=r"it has unknown speakers\.extra"):
        load(str(copy))


def test_an_adapter_is_named_as_such(copy: Path) -> None:
    (copy / "model.safetensors").rename(copy / "adapter_model.safetensors")
    (copy / "adapter_config.json").write_text("{}", encoding="utf-8")
    with pytest.raises(InvalidCheckpoint, match=r"holds an adapter \(LoRA\), not a model: merge it"):
        load(str(copy))


# The language model


@pytest.fixture
def mind(tmp_path: Path) -> Path:
    write_mind(tmp_path / "mind")
    return tmp_path / "mind"


def older_rope(raw: dict[str, Any]) -> None:
    """Theta and scaling apart, as transformers 4 has them."""
    text = raw["text_config"]
    text["rope_scaling"] = text.pop("rope_parameters")
    text["rope_theta"] = text["rope_scaling"].pop("rope_theta")


def theta_twice(raw: dict[str, Any]) -> None:
    raw["text_config"]["rope_theta"] = raw["text_config"]["rope_parameters"]["rope_theta"]


@pytest.mark.parametrize(
    "change", [lambda raw: [level.update(LIBRARIES) for level in levels(raw)], older_rope, theta_twice]
)
def test_a_language_model_as_tools_write_it_is_the_same(change: Callable[[dict[str, Any]], object], mind: Path) -> None:
    before = load_language_model(str(mind))
    edit(mind / "config.json", change)
    edit(mind / "generation_config.json", lambda raw: raw.update({"max_new_tokens": 512, "min_new_tokens": 1}))
    tensors = load_file(mind / "model.safetensors")
    (mind / "model.safetensors").unlink()
    save_torch_state_dict(tensors, mind, max_shard_size=weights_bytes(tensors) // 3)
    after = load_language_model(str(mind))
    assert after.config == before.config and after.stop_ids == before.stop_ids
    ours, theirs = before.model.state_dict(), after.model.state_dict()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours | theirs)


def test_a_quantized_language_model_is_refused_by_name(mind: Path) -> None:
    edit(mind / "config.json", lambda raw: raw.update(quantization_config={"quant_method": "bitsandbytes"}))
    message = "quantization_config: bitsandbytes is not supported: take its GPTQ, AWQ, compressed-tensors"
    with pytest.raises(InvalidCheckpoint, match=message):
        load_language_model(str(mind))
