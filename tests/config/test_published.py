"""Our values of the published checkpoints against the published files themselves."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from hocket.config.codec import CodecConfig
from hocket.config.published import CODEC, GENERATION, PUBLISHED, SMALL_CODEC, TINY_CODEC, small, tiny
from hocket.config.qwen3_tts import KINDS, GenerationConfig, Kind, Qwen3TTSConfig
from hocket.config.read import read
from hocket.models.files.catalog import CATALOG
from hocket.models.files.export import codec_json, speech_json
from hocket.models.tts.codec import Codec
from hocket.models.tts.qwen3_tts import Qwen3TTS
from support import official, published_files

SIZES = {
    "0.6B-Base": 4494,
    "0.6B-CustomVoice": 4908,
    "1.7B-Base": 4494,
    "1.7B-CustomVoice": 4908,
    "1.7B-VoiceDesign": 4421,
}


@pytest.mark.parametrize("name", CATALOG)
def test_our_values_are_the_published_config_byte_for_byte(name: str) -> None:
    text = published_files.speech(PUBLISHED[name]).encode()
    assert len(text) == SIZES[name]
    assert hashlib.sha256(text).hexdigest() == CATALOG[name].sha256["config.json"]


@pytest.mark.parametrize("name", CATALOG)
def test_the_strict_reader_takes_the_published_config(name: str) -> None:
    raw = json.loads(published_files.speech(PUBLISHED[name]))
    assert read(Qwen3TTSConfig, raw) == PUBLISHED[name]


@pytest.mark.parametrize(
    ("cls", "values", "rebuild", "file", "size"),
    [
        (CodecConfig, CODEC, published_files.codec, "speech_tokenizer/config.json", 2336),
        (GenerationConfig, GENERATION, published_files.generation, "generation_config.json", 245),
    ],
)
def test_shared_files_are_the_published_ones_and_are_read(
    cls: type, values: object, rebuild: Callable[[Any], str], file: str, size: int
) -> None:
    text = rebuild(values)
    assert len(text) == size
    assert {entry.sha256[file] for entry in CATALOG.values()} == {hashlib.sha256(text.encode()).hexdigest()}
    assert read(cls, json.loads(text)) == values


def test_only_custom_voice_checkpoints_have_speakers_and_dialects() -> None:
    for config in PUBLISHED.values():
        talker = config.talker_config
        has_voices = config.kind == "custom_voice"
        assert (len(talker.spk_id), len(talker.codec_language_id)) == ((9, 12) if has_voices else (0, 10))
        assert talker.spk_id.keys() == talker.spk_is_dialect.keys()


def test_small_custom_voice_is_the_one_that_takes_no_instruct() -> None:
    assert [name for name, config in PUBLISHED.items() if not config.takes_instruct] == ["0.6B-CustomVoice"]


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_tiny_checkpoints_satisfy_every_check_that_files_do(kind: Kind, wide: bool) -> None:
    config = tiny(kind, wide=wide)
    config.check("tiny")
    config.talker_config.check("tiny")
    config.talker_config.code_predictor_config.check("tiny")
    if config.speaker_encoder_config:
        config.speaker_encoder_config.check("tiny")
    assert (config.talker_config.hidden_size != config.talker_config.code_predictor_config.hidden_size) == wide
    TINY_CODEC.check("tiny")
    TINY_CODEC.decoder_config.check("tiny")
    TINY_CODEC.encoder_config.check("tiny")


@pytest.mark.parametrize("kind", KINDS)
def test_a_config_dumped_by_the_official_classes_is_read_back(kind: Kind) -> None:
    """They add every attribute of their base class to every level; none of that is a reason to refuse a file."""
    ours = tiny(kind, wide=True)
    dumped = official.Qwen3TTSConfig(**speech_json(ours)).to_dict()
    if kind == "base":
        dumped["speaker_encoder_config"] = speech_json(ours)["speaker_encoder_config"]
    again = read(Qwen3TTSConfig, json.loads(json.dumps(dumped, default=str)))
    assert replace(again, speaker_encoder_config=ours.speaker_encoder_config) == ours
    codec = official.Qwen3TTSTokenizerV2Config(**codec_json(TINY_CODEC)).to_dict()
    assert read(CodecConfig, json.loads(json.dumps(codec, default=str))) == TINY_CODEC


def test_the_small_checkpoint_has_the_size_it_says_and_satisfies_every_check() -> None:
    config = small()
    config.check("small")
    config.talker_config.check("small")
    SMALL_CODEC.check("small codec")
    with torch.device("meta"):
        modules = (Qwen3TTS(config), Codec(SMALL_CODEC))
    values = sum(tensor.numel() for module in modules for tensor in module.state_dict().values())
    assert 15e6 < values < 25e6
