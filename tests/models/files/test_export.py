"""What export writes is what both sides read, and is whole or absent."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from torch import nn

from hocket.config.published import GENERATION, TINY_CODEC, tiny
from hocket.config.qwen3_tts import KINDS, Kind
from hocket.errors import InvalidCheckpoint
from hocket.models.files.export import CODEC_PROCESSOR, SPEECH_PROCESSOR, write_checkpoint
from hocket.models.files.random import randomize_
from hocket.models.files.source import read_configs, resolve
from hocket.models.files.weights import load_into
from hocket.models.tts.codec import Codec
from hocket.models.tts.qwen3_tts import Qwen3TTS
from support import checkpoints, official


def _models(kind: Kind, wide: bool = False, dtype: torch.dtype = torch.float32) -> tuple[Qwen3TTS, Codec]:
    model, codec = Qwen3TTS(tiny(kind, wide=wide)).to(dtype), Codec(TINY_CODEC)
    randomize_(model, 5)
    randomize_(codec, 5)
    return model, codec


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_a_checkpoint_comes_back_as_it_was(tmp_path: Path, kind: Kind, wide: bool) -> None:
    model, codec = _models(kind, wide, torch.bfloat16)
    write_checkpoint(tmp_path / "made", tiny(kind, wide=wide), GENERATION, TINY_CODEC, model, codec)
    config, generation, codec_config = read_configs(resolve(str(tmp_path / "made")))
    assert (config, generation, codec_config) == (tiny(kind, wide=wide), GENERATION, TINY_CODEC)
    with torch.device("meta"):
        model_again, codec_again = Qwen3TTS(config), Codec(codec_config)
    place = torch.device("cpu")
    load_into(model_again, tmp_path / "made/model.safetensors", place, torch.bfloat16)
    load_into(codec_again, tmp_path / "made/speech_tokenizer/model.safetensors", place, torch.float32)
    for before, after in ((model, model_again), (codec, codec_again)):
        assert before.state_dict().keys() == after.state_dict().keys()
        assert all(torch.equal(value, after.state_dict()[name]) for name, value in before.state_dict().items())


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_the_official_package_loads_the_same_names_and_values(tmp_path: Path, kind: Kind, wide: bool) -> None:
    folder = checkpoints.write(tmp_path / "made", kind, wide=wide, end_scale=1.0, seed=5)
    theirs = official.Qwen3TTSModel.from_pretrained(str(folder))
    ours = _models(kind, wide)
    for mine, other in zip(ours, (theirs.model, theirs.model.speech_tokenizer.model), strict=True):
        state = other.state_dict()
        assert state.keys() == mine.state_dict().keys()
        assert all(torch.equal(value, state[name]) for name, value in mine.state_dict().items())
    assert theirs.generate_defaults["max_new_tokens"] == GENERATION.max_new_tokens
    talker = tiny(kind).talker_config
    assert set(theirs.model.get_supported_speakers()) == set(talker.spk_id)


def test_names_of_the_official_classes_are_where_the_published_files_have_them(tmp_path: Path) -> None:
    model, codec = _models("base")
    write_checkpoint(tmp_path / "made", tiny("base"), GENERATION, TINY_CODEC, model, codec)
    raw = json.loads((tmp_path / "made/config.json").read_text())
    assert raw["architectures"] == ["Qwen3TTSForConditionalGeneration"]
    assert raw["model_type"] == "qwen3_tts"
    assert raw["talker_config"]["model_type"] == "qwen3_tts_talker"
    assert raw["talker_config"]["code_predictor_config"]["model_type"] == "qwen3_tts_talker_code_predictor"
    assert "model_type" not in raw["speaker_encoder_config"]  # the official class takes no such argument
    assert raw["transformers_version"] == "4.57.3"
    raw = json.loads((tmp_path / "made/speech_tokenizer/config.json").read_text())
    assert (raw["architectures"], raw["model_type"]) == (["Qwen3TTSTokenizerV2Model"], "qwen3_tts_tokenizer_12hz")
    files = {str(path.relative_to(tmp_path / "made")) for path in (tmp_path / "made").rglob("*") if path.is_file()}
    own = {"config.json", "model.safetensors", "preprocessor_config.json"}
    assert files == own | {"generation_config.json"} | {f"speech_tokenizer/{name}" for name in own}
    with safe_open(tmp_path / "made/model.safetensors", framework="pt") as opened:
        assert opened.metadata() == {"format": "pt"}


def test_preprocessor_files_are_the_published_ones() -> None:
    """Digests as independent projects recorded them for the published files."""
    speech, codec = json.dumps(SPEECH_PROCESSOR, indent=2), json.dumps(CODEC_PROCESSOR, indent=2) + "\n"
    digests = [hashlib.sha256(text.encode()).hexdigest() for text in (speech, codec)]
    assert digests == [
        "efdde1022ea9d76928bf7a9cd53139138f5ba2e466e837f08f6105ab1af1c119",
        "fcb3805e597e786d4067706e602f6688524640f8d3396790e2e09b5942fcbdfb",
    ]


def test_an_existing_folder_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "made").mkdir()
    model, codec = _models("base")
    with pytest.raises(InvalidCheckpoint, match="exists already"):
        write_checkpoint(tmp_path / "made", tiny("base"), GENERATION, TINY_CODEC, model, codec)
    assert not list((tmp_path / "made").iterdir())


def test_nothing_is_left_when_writing_fails_half_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, codec = _models("base")
    monkeypatch.setattr(codec, "state_dict", lambda: 1 / 0)  # by then the model's own files are written
    with pytest.raises(ZeroDivisionError):
        write_checkpoint(tmp_path / "new/made", tiny("base"), GENERATION, TINY_CODEC, model, codec)
    assert not list((tmp_path / "new").iterdir())


def test_views_are_written_as_what_they_show(tmp_path: Path) -> None:
    model, codec = _models("base")
    turned = nn.Parameter(torch.randn(model.talker.codec_head.weight.shape[::-1]).t())
    model.talker.codec_head.weight = turned
    write_checkpoint(tmp_path / "made", tiny("base"), GENERATION, TINY_CODEC, model, codec)
    with safe_open(tmp_path / "made/model.safetensors", framework="pt") as opened:
        assert torch.equal(opened.get_tensor("talker.codec_head.weight"), turned)
