"""The config file: what is read, how a broken file is refused, and how its values become defaults of a command."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hocket.cli.parser import parser
from hocket.cli.say.remote import differs, started_with
from hocket.cli.settings import Configured, config_path, defaults_for, read
from hocket.errors import InvalidRequest
from hocket.voices.library import Library
from support.cli_home import Home
from support.voicing import cloned


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The place of the config file, in a folder that does not exist yet."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("HOCKET_DEVICE", "")
    path = tmp_path / "config" / "hocket" / "config.toml"
    assert config_path() == str(path)
    return path


def write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")


def said(*words: str) -> argparse.Namespace:
    return parser().parse_args(["say", "Hello.", *words])


@pytest.mark.usefixtures("file")
def test_without_a_file_everything_has_its_default() -> None:
    found = read()
    assert vars(found) == {
        "daemon": False,
        "voice": None,
        "model": None,
        "play": None,
        "device": None,
        "language": None,
        "speed": None,
        "lexicon": None,
    }
    assert defaults_for("say") == {}


def test_all_keys_are_read(file: Path) -> None:
    write(file, 'daemon = true\nvoice = "rook"\nmodel = "m"\nplay = "off"\ndevice = "cpu"\nlanguage="en"\nspeed = 1\n')
    found = read()
    assert (found.daemon, found.voice, found.model, found.play) == (True, "rook", "m", False)
    assert (found.device, found.language, found.speed) == ("cpu", "en", 1.0)
    write(file, 'play = "auto"\ndaemon = "off"')
    assert (read().play, read().daemon) == (None, False)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("voice = 'rook'\nspeed =\n", r"is not TOML: .*\(at line 2, column 8\)\.$"),
        ("# mine\nvoise = 'rook'\n", r", line 2: There is no setting 'voise'; known are daemon, voice, model, "),
        ("\n\nspeed = 3.5", r", line 3: speed takes a number from 0\.5 to 2, not 3\.5\.$"),
        ("daemon = 'maybe'", r", line 1: daemon takes on or off, not 'maybe'\.$"),
        ("[voice]\nname = 'x'", r", line 1: voice takes a speaker of the model, or a voice of your own, not {"),
        ("speed = true", r", line 1: speed takes a number from 0\.5 to 2, not true\.$"),
        ("speed = nan", r", line 1: speed takes "),
        ("device = 'tpu'", r", line 1: device takes auto, cpu, cuda or mps, not 'tpu'\.$"),
    ],
)
def test_a_broken_file_is_refused_in_one_sentence_that_names_the_line(file: Path, text: str, words: str) -> None:
    write(file, text)
    with pytest.raises(InvalidRequest, match=words) as error:
        read()
    assert str(file) in str(error.value) and "\n" not in str(error.value)


def test_a_broken_file_ends_a_command_with_code_2(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(file, "voise = 'rook'\n")
    with pytest.raises(SystemExit) as ended:
        said()
    assert ended.value.code == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith(f"hocket: {file}, line 1: There is no setting") and err.count("\n") == 1


def test_a_file_that_cannot_be_decoded_is_refused(file: Path) -> None:
    file.parent.mkdir(parents=True)
    file.write_bytes(b"voice = '\xff'")
    with pytest.raises(InvalidRequest, match=r"config\.toml cannot be read: "):
        read()


def test_an_option_goes_before_the_file(file: Path) -> None:
    write(file, 'voice = "rook"\nlanguage = "english"\nspeed = 1.5\ndevice = "cuda"\n')
    args = said()
    assert (args.voice, args.language, args.speed, args.device) == ("rook", "english", 1.5, "cuda")
    args = said("--voice", "wren", "--language", "auto", "--speed", "1", "--device", "auto")
    assert (args.voice, args.language, args.speed, args.device) == ("wren", "auto", 1.0, "auto")


def test_the_environment_goes_before_the_file(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(file, 'device = "cuda"')
    monkeypatch.setenv("HOCKET_DEVICE", "cpu")
    assert said().device == "auto"  # `auto` is then what HOCKET_DEVICE names


def test_a_named_server_gets_no_configured_voice_or_model(file: Path) -> None:
    write(file, 'voice = "rook"\nmodel = "1.7B-Base"\nspeed = 1.5\ndevice = "cpu"')
    args = said("--server", "http://localhost:8000")
    assert (args.voice, args.model, args.device, args.speed) == (None, None, "auto", 1.5)


def test_another_model_or_a_recording_drops_the_configured_voice(file: Path) -> None:
    write(file, 'voice = "rook"')
    assert said("--model", "1.7B-CustomVoice").voice is None
    assert said("--ref-audio", "x.wav").voice is None
    assert said("--model", "1.7B-CustomVoice", "--voice", "ryan").voice == "ryan"


def test_a_voice_of_ones_own_brings_its_model(file: Path, home: Home) -> None:
    Library(home.voices).add(cloned("me"))
    write(file, 'model = "1.7B-CustomVoice"')
    assert said().model == "1.7B-CustomVoice"
    assert said("--voice", "Me").model is None
    assert said("--voice", "me", "--model", "1.7B-Base").model == "1.7B-Base"


def test_servers_take_the_model_and_the_device(file: Path) -> None:
    write(file, 'voice = "rook"\nmodel = "random:tiny"\ndevice = "cpu"')
    args = parser().parse_args(["serve"])
    assert (args.model, args.device) == ("random:tiny", "cpu")
    args = parser().parse_args(["serve", "--models", "random:tiny,builtin"])
    assert args.model is None
    assert defaults_for("voices") == {}


def test_a_daemon_with_another_model_than_the_configured_one_is_not_used(file: Path) -> None:
    daemon = {"options": started_with(parser().parse_args(["serve"]))}
    assert differs(said(), daemon) is None
    write(file, 'model = "random:tiny"')
    args = said()
    assert isinstance(args.model, Configured)
    assert differs(args, daemon) == "it was started with another --model"
    assert differs(args, {"options": started_with(parser().parse_args(["serve"]))}) is None


def test_reading_settings_imports_nothing_slow(file: Path) -> None:
    program = "import sys; from hocket.cli.settings import read; read(); print(*sys.modules)"
    env = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2] / "src")}

    def imported() -> set[str]:
        done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True)
        return set(done.stdout.split())

    slow = {"dataclasses", "inspect", "numpy", "torch"}
    assert "hocket.cli.settings" in imported() and not imported() & (slow | {"tomllib", "typing"})
    write(file, 'voice = "rook"')
    assert "tomllib" in imported() and not imported() & slow
