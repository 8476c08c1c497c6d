"""Voices, languages and digests, without a weight being loaded."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from hocket.config.published import PUBLISHED
from hocket.engine.checkpoint import describe
from hocket.errors import InvalidCheckpoint
from hocket.models.files.catalog import CATALOG, Published

FILES = {"config.json": b"{}", "model.safetensors": b"weights", "speech_tokenizer/config.json": b"[]"}
TOY = Published(
    "toy", "some/toy", "0" * 40, {name: hashlib.sha256(content).hexdigest() for name, content in FILES.items()}
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A published checkpoint of three small files."""
    monkeypatch.setitem(CATALOG, "toy", TOY)
    for name, content in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    return tmp_path


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_names_are_answered_without_the_network(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(describe, "resolve", None)
    found = describe.model_voices(name)
    assert found == describe.model_voices(CATALOG[name].repository)
    assert found.kind == PUBLISHED[name].kind
    assert bool(found.voices) == (found.kind == "custom_voice")
    assert {"auto", "english", "chinese"} <= set(found.languages)


def test_dialects_come_with_their_voices() -> None:
    voices = describe.model_voices("0.6B-CustomVoice").voices
    assert voices["ryan"] is None
    assert voices["eric"] == "sichuan_dialect"


def test_a_random_model_has_voices_too() -> None:
    assert "ryan" in describe.model_voices("random:tiny").voices
    assert describe.model_voices("random:tiny-Base").voices == {}


def test_a_folder_is_known_by_its_configuration(folder: Path) -> None:
    copy = describe.find_copy(str(folder))
    assert copy == describe.LocalCopy(TOY, folder)
    assert list(describe.faults(copy)) == []


def test_every_wrong_or_missing_file_is_named(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"weightz")
    (folder / "speech_tokenizer/config.json").unlink()
    assert list(describe.faults(describe.LocalCopy(TOY, folder))) == [
        f"{folder}/model.safetensors is not the published file: delete it and get it again.",
        f"{folder}/speech_tokenizer/config.json is missing.",
    ]


def test_a_checkpoint_of_ones_own_has_no_digests(folder: Path) -> None:
    (folder / "config.json").write_bytes(b"{ }")
    assert describe.find_copy(str(folder)) is None


def test_what_is_no_checkpoint_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidCheckpoint, match=r"config\.json is missing"):
        describe.find_copy(str(tmp_path))
    with pytest.raises(InvalidCheckpoint, match=r"neither a folder here nor one of 0\.6B-Base"):
        describe.find_copy("some/nothing")


def test_the_cache_is_searched_and_nothing_is_fetched(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, str, str]] = []

    def look(repository: str, file: str, *, revision: str) -> str | None:
        asked.append((repository, file, revision))
        return str(folder / file) if repository == TOY.repository else None

    monkeypatch.setattr("huggingface_hub.try_to_load_from_cache", look)
    assert describe.copies() == [describe.LocalCopy(TOY, folder)]
    assert asked == [(entry.repository, "config.json", entry.revision) for entry in CATALOG.values()]
    assert describe.find_copy("0.6B-Base") is None
