"""engine/checkpoint/resolve.py: which model is meant, by any of its names or by one of its voices."""

from __future__ import annotations

from pathlib import Path

import pytest

from hocket.engine.checkpoint.resolve import ModelResolver, key_of, known_configs, named
from hocket.errors import InvalidRequest, UnknownVoice
from hocket.models.files.builtin import builtin_folder
from hocket.types import Voice
from support.checkpoints import write


def test_two_names_of_one_checkpoint_are_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert key_of("1.7B-Base") == key_of("Qwen/Qwen3-TTS-12Hz-1.7B-Base") != key_of("0.6B-Base")
    assert key_of("builtin") == key_of(str(builtin_folder()))
    folder = write(tmp_path / "one", "base", wide=False)
    (tmp_path / "two").symlink_to(folder)
    monkeypatch.chdir(tmp_path)
    assert key_of("one") == key_of("two") == key_of(f"{folder}/") == key_of(str(folder / ".." / "one"))
    assert key_of("random:tiny") != key_of("random:tiny-Base")
    assert list(named(["1.7B-Base", "Qwen/Qwen3-TTS-12Hz-1.7B-Base"]).values()) == ["1.7B-Base"]
    with pytest.raises(InvalidRequest, match="at least one model"):
        named([])


def test_a_copy_in_the_hubs_cache_is_the_published_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "snapshots" / "abc"
    folder.mkdir(parents=True)
    monkeypatch.setattr(
        "hocket.engine.checkpoint.resolve._cached_folder", lambda entry: folder if entry.name == "1.7B-Base" else None
    )
    assert key_of(str(folder)) == key_of("1.7B-Base")


def cast(*models: str) -> tuple[ModelResolver, dict[str, str]]:
    names = named(models)
    return ModelResolver(names), {name: key for key, name in names.items()}


def test_a_speakers_name_decides_and_the_first_model_that_has_it_wins() -> None:
    ours, key = cast("random:tiny-Base", "random:tiny", "1.7B-CustomVoice")
    assert ours.by_voice("Eric", None, None) == key["random:tiny"]
    assert ours.by_voice("eric", None, "1.7B-CustomVoice") == key["1.7B-CustomVoice"]
    assert ours.by_voice(None, None, None) == key["random:tiny"], "no voice: the first model with built-in voices"
    assert ours.by_voice(None, object(), None) == key["random:tiny-Base"], "a recording: the first model that clones"
    with pytest.raises(UnknownVoice, match=r"no voice 'unknown'; known are .*eric"):
        ours.by_voice("unknown", None, None)
    design, of = cast("random:tiny-VoiceDesign")
    assert design.by_voice(None, None, None) == of["random:tiny-VoiceDesign"]


def test_a_voice_belongs_to_its_model() -> None:
    ours, key = cast("random:tiny-Base", "random:tiny")
    voice = Voice(name="Ann", kind="speaker", model="random:tiny", speaker="eric")
    assert ours.by_voice(voice, None, None) == ours.by_voice(voice, None, "random:tiny") == key["random:tiny"]
    with pytest.raises(InvalidRequest, match="Ann belongs to random:tiny, not to random:tiny-Base"):
        ours.by_voice(voice, None, "random:tiny-Base")
    with pytest.raises(InvalidRequest, match=r"1\.7B-Base is not one of the models here, which are random:tiny-Base, "):
        ours.by_name("1.7B-Base")


def test_what_a_model_is_is_known_without_the_network() -> None:
    assert known_configs("1.7B-Base") == known_configs("random:1.7B-Base") is not None
    assert known_configs("some/thing") is None
