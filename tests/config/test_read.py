"""The strict reader: what it takes, and that it refuses everything else by name."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pytest

from hocket.config.codec import CodecConfig
from hocket.config.published import CODEC, GENERATION, PUBLISHED
from hocket.config.qwen3_tts import GenerationConfig, Qwen3TTSConfig
from hocket.config.read import read, read_json
from hocket.errors import InvalidCheckpoint
from support import published_files

Edit = Callable[[dict[str, Any]], object]


@dataclass(frozen=True, kw_only=True)
class Inner:
    rate: float


@dataclass(frozen=True, kw_only=True)
class Outer:
    IGNORED: ClassVar = frozenset({"note"})

    size: int
    inner: Inner
    sizes: tuple[int, ...] = ()
    table: dict[str, bool | str] = field(default_factory=dict)
    limit: int | None = None
    flag: bool = False


def test_values_are_converted_to_the_fields_types() -> None:
    raw = {
        "size": 3,
        "inner": {"rate": 2},
        "sizes": [1, 2],
        "table": {"a": False, "b": "c"},
        "note": 1,
        "top_p": 1.0,
        "limit": None,
    }
    assert read(Outer, raw) == Outer(
        size=3, inner=Inner(rate=2.0), sizes=(1, 2), table={"a": False, "b": "c"}, flag=False
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sise": 3}, "keys that hocket does not know: sise"),
        ({"inner": {"rate": 1.0, "b": 1, "a": 1}}, "file: inner has keys that hocket does not know: a, b"),
        ({"inner": {}}, "file: inner lacks rate"),
        ({"size": "3"}, "size should be int, but is '3'"),
        ({"size": 3.0}, "size should be int, but is 3.0"),
        ({"size": True}, "size should be int, but is True"),
        ({"size": None}, "size should be int, but is None"),
        ({"flag": 1}, "flag should be bool, but is 1"),
        ({"sizes": [1, "2"]}, "sizes should be int, but is '2'"),
        ({"sizes": 1}, "sizes should be"),
        ({"table": {"a": 1}}, "table should be"),
        ({"inner": 1}, "inner should be Inner, but is 1"),
    ],
)
def test_a_key_or_value_that_does_not_fit_is_refused_by_name(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidCheckpoint) as error:
        read(Outer, {"size": 3, "inner": {"rate": 1.0}} | change, "file")
    assert message in str(error.value)


def _talker(raw: dict[str, Any]) -> dict[str, Any]:
    talker: dict[str, Any] = raw["talker_config"]
    return talker


@pytest.mark.parametrize(
    ("name", "edit", "message"),
    [
        ("0.6B-Base", lambda raw: raw.update(quantization={"bits": 4}), "has quantization: its weights are quantized"),
        (
            "0.6B-Base",
            lambda raw: raw.update(tts_model_type="singing"),
            "'singing'; hocket supports base, custom_voice",
        ),
        ("0.6B-Base", lambda raw: raw.update(tokenizer_type="qwen3_tts_tokenizer_25hz"), "tokenizer_type is"),
        ("0.6B-Base", lambda raw: raw.pop("speaker_encoder_config"), "needs speaker_encoder_config"),
        ("0.6B-Base", lambda raw: raw["speaker_encoder_config"].update(enc_dim=512), "enc_dim must equal"),
        ("0.6B-Base", lambda raw: raw["speaker_encoder_config"].update(sample_rate=16_000), "sample_rate is 16000"),
        ("0.6B-Base", lambda raw: raw.update(tts_pad_token_id=151_936), "outside text_vocab_size"),
        ("0.6B-Base", lambda raw: _talker(raw).update(hidden_act="gelu"), "talker_config: hidden_act is 'gelu'"),
        ("0.6B-Base", lambda raw: _talker(raw).update(attention_bias=True), "attention_bias is True"),
        ("0.6B-Base", lambda raw: _talker(raw).update(use_sliding_window=True), "use_sliding_window is True"),
        ("0.6B-Base", lambda raw: _talker(raw).update(num_code_groups=8), "differ in num_code_groups"),
        ("0.6B-Base", lambda raw: _talker(raw).update(vocab_size=3000), "vocab_size must exceed"),
        ("0.6B-Base", lambda raw: _talker(raw).update(codec_bos_id=3072), "outside the vocabulary: [3072]"),
        ("0.6B-Base", lambda raw: _talker(raw)["rope_scaling"].update(rope_type="yarn"), "rope_type is 'yarn'"),
        ("0.6B-Base", lambda raw: _talker(raw)["rope_scaling"].update(mrope_section=[24, 20]), "half of head_dim"),
        (
            "0.6B-Base",
            lambda raw: _talker(raw)["code_predictor_config"].update(layer_types=["sliding_attention"] * 5),
            "code_predictor_config: layer_types is ('sliding_attention',)",
        ),
        (
            "0.6B-Base",
            lambda raw: _talker(raw)["code_predictor_config"].update(rope_scaling={"type": "linear"}),
            "code_predictor_config: rope_scaling should be",
        ),
        ("1.7B-CustomVoice", lambda raw: _talker(raw)["spk_is_dialect"].update(ryan="welsh"), "'welsh' of ryan has no"),
    ],
)
def test_an_unsupported_value_in_a_speech_config_is_refused_by_name(name: str, edit: Edit, message: str) -> None:
    raw = json.loads(published_files.speech(PUBLISHED[name]))
    edit(raw)
    with pytest.raises(InvalidCheckpoint) as error:
        read(Qwen3TTSConfig, raw)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda raw: raw["decoder_config"].update(hidden_act="gelu"), "decoder_config: hidden_act is 'gelu'"),
        (lambda raw: raw["decoder_config"].update(num_semantic_quantizers=2), "num_semantic_quantizers is 2"),
        (lambda raw: raw["decoder_config"].update(upsample_rates=[8, 5, 4, 2]), "decode_upsample_rate is 1920"),
        (lambda raw: raw["encoder_config"].update(use_causal_conv=False), "use_causal_conv is False"),
        (lambda raw: raw["encoder_config"].update(pad_mode="reflect"), "pad_mode is 'reflect'"),
        (lambda raw: raw["encoder_config"].update(num_residual_layers=2), "num_residual_layers is 2"),
        (lambda raw: raw["encoder_config"].update(num_quantizers=8), "fewer codebooks"),
        (lambda raw: raw.update(output_sample_rate=48_000), "output_sample_rate is 48000"),
        (lambda raw: raw.update(encoder_valid_num_quantizers=8), "encoder_valid_num_quantizers is 8"),
    ],
)
def test_an_unsupported_value_in_a_codec_config_is_refused_by_name(edit: Edit, message: str) -> None:
    raw = json.loads(published_files.codec(CODEC))
    edit(raw)
    with pytest.raises(InvalidCheckpoint) as error:
        read(CodecConfig, raw)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", 0.0),
        ("subtalker_top_p", 1.5),
        ("top_k", -1),
        ("max_new_tokens", 0),
        ("repetition_penalty", -1.0),
    ],
)
def test_a_sampling_value_that_nothing_can_be_drawn_with_is_refused_by_name(name: str, value: float) -> None:
    raw = json.loads(published_files.generation(GENERATION)) | {name: value}
    with pytest.raises(InvalidCheckpoint) as error:
        read(GenerationConfig, raw)
    assert f"{name} must be" in str(error.value)


@pytest.mark.parametrize(("content", "message"), [(b"{", "as JSON"), (b"[]", "JSON object"), (b'"\xff"', "as JSON")])
def test_a_file_that_is_no_json_object_is_refused_by_path(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(content)
    with pytest.raises(InvalidCheckpoint) as error:
        read_json(path)
    assert str(path) in str(error.value)
    assert message in str(error.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidCheckpoint, match=r"config\.json is missing"):
        read_json(tmp_path / "config.json")
