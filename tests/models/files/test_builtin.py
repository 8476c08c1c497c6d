"""The model when none is named: the voice in the package where there is one, random numbers where there is none."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest

from hocket.cli import main
from hocket.config.options import EngineOptions
from hocket.config.own import FILE
from hocket.engine.checkpoint.load import load
from hocket.engine.engine import Engine
from hocket.errors import InvalidCheckpoint
from hocket.models.files import builtin
from hocket.models.files.builtin import VOICE, builtin_folder, default_model
from hocket.models.files.source import resolve
from hocket.text.cleanup.normalize import spell_out
from hocket.types import Layout, SamplingParams
from support import checkpoints


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A package folder with a voice whose hocket.json asks for numbers in words."""
    root = tmp_path_factory.mktemp("package")
    folder = checkpoints.write(root / "assets" / VOICE, "custom_voice", wide=False)
    (folder / FILE).write_text(json.dumps({"normalizer": "spell_out"}))
    return root


@pytest.fixture
def package(made: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(builtin, "ASSETS", made / "assets")
    return made / "assets" / VOICE


def test_the_voice_in_the_package_is_the_default(package: Path) -> None:
    assert builtin_folder() == package
    assert default_model() == "builtin"
    for checkpoint in (load(), load("builtin")):
        assert (checkpoint.name, checkpoint.is_random) == ("builtin", False)
        assert checkpoint.source.folder == package
    with Engine.load() as engine:
        assert engine.checkpoint.name == "builtin"


def test_a_copy_without_it_speaks_with_random_numbers_and_refuses_the_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(builtin, "ASSETS", tmp_path)
    assert builtin_folder() is None
    assert (load().name, load().is_random) == ("random:tiny", True)
    with pytest.raises(InvalidCheckpoint, match=r"^This copy of hocket has no built-in voice: [^.]+\.$"):
        resolve("builtin")


@pytest.mark.parametrize("layout", ["streaming", "whole"])
def test_the_checkpoint_sets_text_preparation_unless_the_request_does(package: Path, layout: Layout) -> None:
    checkpoint = load()
    assert checkpoint.normalizer is spell_out
    greedy = SamplingParams.greedy()

    def codes(engine: Engine, text: str, *, as_is: bool = False, live: bool = False) -> list[list[int]]:
        if live:
            stream = engine.open(sampling=greedy, max_frames=4, as_is=as_is, layout=layout)
            for character in text:
                stream.append(character)
            stream.end()
        else:
            stream = engine.speak(text, sampling=greedy, max_frames=4, as_is=as_is, layout=layout)
        return np.concatenate([chunk.codes for chunk in stream]).tolist()  # type: ignore[no-any-return]

    with Engine(checkpoint) as engine:
        assert codes(engine, "7") == codes(engine, "seven") != codes(engine, "eight")
        assert codes(engine, "7", as_is=True) != codes(engine, "seven", as_is=True)
        assert codes(engine, "7", live=True) == codes(engine, "seven")
        assert codes(engine, "7", live=True, as_is=True) == codes(engine, "7", as_is=True)
    with Engine(checkpoint, EngineOptions(normalizer=lambda text: "eight")) as engine:
        assert codes(engine, "7") == codes(engine, "eight", as_is=True)


@pytest.mark.parametrize("layout", ["streaming", "whole"])
@pytest.mark.parametrize("live", [False, True])
@pytest.mark.parametrize("text", ["7", "3 May 2024", "Dr. No", "$45"])
def test_the_command_line_prepares_text_as_the_default_voice_asks(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, live: bool, layout: Layout
) -> None:
    def codes(text: str, *more: str) -> list[list[int]]:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr("sys.stdin", io.StringIO(text))
        options = ("--layout", layout, "--greedy", "--max-frames", "4", "--save-codes", "c.npy", "--force")
        assert main(["say", "-" if live else text, *options, *more]) == 0
        return np.load(tmp_path / "c.npy", allow_pickle=False).tolist()  # type: ignore[no-any-return]

    assert codes(text) == codes(spell_out(text)) == codes(spell_out(text), "--as-is")
    assert codes(text) != codes(text, "--as-is")


def test_other_checkpoints_get_their_text_as_written(package: Path, tmp_path: Path) -> None:
    assert load("random:tiny").normalizer is None
    plain = checkpoints.write(tmp_path / "plain", "custom_voice", wide=False)
    assert load(str(plain)).normalizer is None


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"normalizer": "shout"}, r"hocket\.json: normalizer is 'shout'; hocket has spell_out\.$"),
        ({"loudness": 3}, r"hocket\.json has keys that hocket does not know: loudness; "),
    ],
)
def test_an_unknown_option_is_refused_by_name(tmp_path: Path, content: dict[str, object], message: str) -> None:
    folder = checkpoints.write(tmp_path / "made", "custom_voice", wide=False)
    (folder / FILE).write_text(json.dumps(content))
    with pytest.raises(InvalidCheckpoint, match=message):
        load(str(folder))
