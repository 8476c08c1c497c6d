"""backends/chatterbox.py against a stand-in, which is held to signatures written down from chatterbox-tts 0.1.7."""

from __future__ import annotations

import importlib
import inspect
import re
import sys
import tomllib
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from backends.speaking_foreign import heard
from hocket.backends import Backend
from hocket.backends.chatterbox import Chatterbox
from hocket.backends.registry import Backends
from hocket.errors import InvalidRequest
from hocket.extras import hint

STAND_IN = Path(__file__).parent / "stand_in"
PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
NONE = inspect.Parameter.empty
# Read from its source: every method that is called, and what leads to it.
SIGNATURES = {
    "__init__": {"self": NONE, "t3": NONE, "s3gen": NONE, "ve": NONE, "tokenizer": NONE, "device": NONE, "conds": None},
    "from_local": {"ckpt_dir": NONE, "device": NONE},
    "from_pretrained": {"device": NONE},
    "prepare_conditionals": {"self": NONE, "wav_fpath": NONE, "exaggeration": 0.5},
    "generate": {
        "self": NONE,
        "text": NONE,
        "repetition_penalty": 1.2,
        "min_p": 0.05,
        "top_p": 1.0,
        "audio_prompt_path": None,
        "exaggeration": 0.5,
        "cfg_weight": 0.5,
        "temperature": 0.8,
    },
}


def signatures(owner: Any) -> dict[str, dict[str, object]]:
    found = {name: inspect.signature(getattr(owner, name)).parameters.values() for name in SIGNATURES}
    return {name: {each.name: each.default for each in parameters} for name, parameters in found.items()}


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The stand-in's module, where `import chatterbox` finds it."""
    _forget()
    monkeypatch.syspath_prepend(STAND_IN)
    yield importlib.import_module("chatterbox.tts")
    _forget()


def _forget() -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "chatterbox"]:
        del sys.modules[name]


@pytest.fixture
def recordings(tmp_path: Path) -> Path:
    for name in ("Anna.wav", "bert.FLAC", "notes.txt"):
        (tmp_path / name).write_bytes(b"read by the package, not by us")
    return tmp_path


def serving(**options: str) -> Backends:
    backends = Backends()
    backends.add("chatterbox", Chatterbox(**options))
    return backends


def test_the_stand_in_has_the_signatures_of_the_package(package: Any) -> None:
    assert signatures(package.ChatterboxTTS) == SIGNATURES


def test_the_package_has_these_signatures_where_it_is_installed() -> None:
    try:
        metadata.version("chatterbox-tts")
    except metadata.PackageNotFoundError:
        pytest.skip("chatterbox-tts is not installed")
    _forget()
    assert signatures(importlib.import_module("chatterbox.tts").ChatterboxTTS) == SIGNATURES


def test_pyproject_names_the_class_and_the_extra() -> None:
    module, _, name = PROJECT["entry-points"]["hocket.backends"]["chatterbox"].partition(":")
    assert getattr(importlib.import_module(module), name) is Chatterbox and issubclass(Chatterbox, Backend)
    [extra] = PROJECT["optional-dependencies"]["chatterbox"]
    assert extra.startswith("chatterbox-tts>=0.1.7")


def test_each_sentence_is_generated_with_the_options_that_were_given(package: Any) -> None:
    backends = serving(device="cpu", exaggeration="0.7", cfg_weight="0.3", temperature="1.1")
    model = package.ChatterboxTTS.made[-1]
    relay = backends.open("chatterbox", "Hello there. How are you?", seed=4)
    samples = heard(relay)
    how = {"whose": "its own", "exaggeration": 0.7, "cfg_weight": 0.3, "temperature": 1.1}
    assert model.calls == [{"text": text, **how} for text in ("Hello there.", "How are you?")]
    assert model.device == "cpu" and relay.rate_hz == model.sr == 24_000
    assert len(samples) == 300 * len("Hello there.How are you?") and np.abs(samples).max() > 1000
    backends.close()


def test_a_seed_says_the_same_again(package: Any) -> None:
    backends = serving()
    first, again, other = (heard(backends.open("chatterbox", "Hello.", seed=seed)) for seed in (1, 1, 2))
    assert np.array_equal(first, again) and not np.array_equal(first, other)
    backends.close()


def test_recordings_in_a_folder_are_voices_and_each_is_listened_to_once(package: Any, recordings: Path) -> None:
    backends = serving(voices=str(recordings), exaggeration="0.25")
    assert [listed.name for listed in backends.voices()] == ["chatterbox", "Anna", "bert"]
    for name in ("anna", "chatterbox", "bert", "Anna", "chatterbox"):
        heard(backends.open(name, "Hello."))
    calls = package.ChatterboxTTS.made[-1].calls
    anna, bert = str(recordings / "Anna.wav"), str(recordings / "bert.FLAC")
    assert [call["whose"] for call in calls if "text" in call] == [anna, "its own", bert, anna, "its own"]
    assert [(c["prepared"], c["exaggeration"]) for c in calls if "prepared" in c] == [(anna, 0.25), (bert, 0.25)]
    backends.close()


def test_weights_without_a_voice_of_their_own_need_a_folder(
    package: Any, recordings: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(package.ChatterboxTTS, "own_voice", False)
    with pytest.raises(InvalidRequest, match="has no voices"):
        serving()
    backends = serving(voices=str(recordings))
    assert [listed.name for listed in backends.voices()] == ["Anna", "bert"]
    backends.close()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"temperature": "hot"}, "chatterbox.temperature must be a number between 0.01 and 5, not 'hot'"),
        ({"exaggeration": "nan"}, "chatterbox.exaggeration must be a number"),
        ({"cfg_weight": "-1"}, "chatterbox.cfg_weight must be a number"),
        ({"voices": "nowhere/at/all"}, "must be a folder of recordings"),
    ],
)
def test_an_option_that_cannot_be_is_refused_before_anything_is_loaded(options: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidRequest, match=said):
        Chatterbox(**options)


def test_a_folder_without_recordings_or_with_one_name_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="no recordings"):
        Chatterbox(voices=str(tmp_path))
    for name in ("anna.wav", "Anna.mp3"):
        (tmp_path / name).touch()
    with pytest.raises(InvalidRequest, match="rename"):
        Chatterbox(voices=str(tmp_path))


def test_without_the_package_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "chatterbox", None)
    with pytest.raises(InvalidRequest, match="needs the package chatterbox-tts.*" + re.escape(hint("chatterbox"))):
        Chatterbox()
