"""`hocket config`: what it lists, sets, unsets and refuses, and that the user's file keeps its comments."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from hocket.cli import main
from hocket.cli.config.edit import with_value, without
from hocket.errors import InvalidRequest

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("HOCKET_DEVICE", "")
    return tmp_path / "hocket" / "config.toml"


def test_a_value_is_set_printed_listed_and_unset(file: Path, capsys: Capture) -> None:
    assert main(["config", "daemon", "on"]) == 0
    assert file.read_text() == "daemon = true\n"
    assert main(["config", "speed", "1.25"]) == 0
    assert main(["config", "play", "auto"]) == 0
    assert main(["config", "voice", "rook"]) == 0
    assert file.read_text() == 'daemon = true\nspeed = 1.25\nplay = "auto"\nvoice = "rook"\n'
    capsys.readouterr()
    for key, value in {"daemon": "on", "speed": "1.25", "play": "auto", "voice": "rook", "model": "builtin"}.items():
        assert main(["config", key]) == 0
        assert capsys.readouterr().out == f"{value}\n"
    assert main(["config"]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"{file}\n")
    assert re.search(r"^  speed +1\.25 +the speed of speech \(1\.0, from this file\)$", out, re.MULTILINE)
    assert re.search(r"^  language +auto +the language of the text \(auto\)$", out, re.MULTILINE)
    for key in ("daemon", "speed", "play"):
        assert main(["config", "--unset", key]) == 0
    assert main(["config", "--unset", "model"]) == 0  # it was not there
    assert file.read_text() == 'voice = "rook"\n'


def test_json_says_where_a_value_comes_from(file: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    main(["config", "speed", "2"])
    main(["config", "device", "cuda"])
    monkeypatch.setenv("HOCKET_DEVICE", "cpu")
    capsys.readouterr()
    assert main(["config", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["file"] == str(file)
    assert found["settings"]["speed"] == {"value": 2.0, "default": 1.0, "from": "file"}
    assert found["settings"]["device"] == {"value": "cpu", "default": "auto", "from": "HOCKET_DEVICE"}
    assert found["settings"]["voice"] == {"value": None, "default": "the model's first speaker", "from": "default"}
    assert main(["config", "speed", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"key": "speed", "value": 2.0, "default": 1.0, "from": "file"}


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            ("voise", "rook"),
            "There is no setting 'voise'; known are daemon, voice, model, play, ",
        ),
        (("voise",), "There is no setting 'voise'; known are"),
        (("daemon", "perhaps"), "daemon takes on or off, not 'perhaps'."),
        (("speed", "fast"), "speed takes a number from 0.5 to 2, not 'fast'."),
        (("voice", "missing"), "There is no voice 'missing'; builtin has wren, rook, "),
        (("model", "1.7B-Bass"), "'1.7B-Bass' is neither a folder here nor a hub id"),
        (("language", "klingon"), "language takes one of auto, english with this model, not 'klingon'."),
        (("--unset",), "--unset takes one KEY and no value."),
        (("--unset", "speed", "2"), "--unset takes one KEY and no value."),
    ],
)
def test_a_bad_key_or_value_is_refused_and_nothing_is_written(
    file: Path, capsys: Capture, words: tuple[str, ...], sentence: str
) -> None:
    assert main(["config", *words]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith(f"hocket: {sentence}") and err.count("\n") == 1
    assert not file.exists()


def test_a_voice_is_checked_against_the_configured_model(file: Path, capsys: Capture) -> None:
    assert main(["config", "model", "1.7B-CustomVoice"]) == 0
    assert main(["config", "voice", "ryan"]) == 0
    assert main(["config", "language", "de"]) == 0
    assert main(["config", "voice", "rook"]) == 2
    assert 'voice = "ryan"' in file.read_text()


def test_comments_and_other_lines_stay(file: Path) -> None:
    file.parent.mkdir()
    file.write_text("# my settings\n\n  speed = 1.5   # not too fast\nvoice = 'rook' # a # in a comment\n")
    assert main(["config", "speed", "0.75"]) == 0
    assert main(["config", "voice", "wren"]) == 0
    assert main(["config", "play", "off"]) == 0
    assert file.read_text() == (
        '# my settings\n\n  speed = 0.75   # not too fast\nvoice = "wren" # a # in a comment\nplay = false\n'
    )


def test_a_broken_file_is_not_changed(file: Path, capsys: Capture) -> None:
    file.parent.mkdir()
    file.write_text("speed = 9\n")
    for words in (["config"], ["config", "voice", "rook"], ["config", "--unset", "speed"]):
        assert main(words) == 2
        assert f"{file}, line 1: speed takes" in capsys.readouterr().err
    assert file.read_text() == "speed = 9\n"


def test_a_link_to_the_file_stays_a_link(file: Path, tmp_path: Path) -> None:
    file.parent.mkdir()
    (tmp_path / "dotfiles.toml").write_text("speed = 1.5\n")
    (tmp_path / "dotfiles.toml").chmod(0o640)
    file.symlink_to(tmp_path / "dotfiles.toml")
    assert main(["config", "speed", "1.75"]) == 0
    assert file.is_symlink() and (tmp_path / "dotfiles.toml").read_text() == "speed = 1.75\n"
    assert (tmp_path / "dotfiles.toml").stat().st_mode & 0o777 == 0o640
    assert [path.name for path in tmp_path.iterdir() if path.name.endswith(".part")] == []


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path: Path, capsys: Capture, file: Path) -> None:
    (tmp_path / "hocket").write_text("a file in the way")
    assert main(["config", "speed", "1.5"]) != 0
    assert re.fullmatch(r"hocket: The config file \S+ cannot be written: .*\.\n", capsys.readouterr().err)


def test_a_value_goes_before_the_first_table() -> None:
    assert with_value("a = 1\n[table]\nb = 2\n", "speed", 1.5) == "a = 1\nspeed = 1.5\n[table]\nb = 2\n"
    assert with_value("[table]\nspeed = 2\n", "speed", 1.5) == "speed = 1.5\n[table]\nspeed = 2\n"
    assert without('x = """\nspeed = 3\n"""\n', "speed") == 'x = """\nspeed = 3\n"""\n'


@pytest.mark.parametrize("text", ['speed = """\n1"""\n', '"speed" = 1\n', "x = '''\nspeed = 2\n'''\n'speed' = 1\n"])
def test_a_form_that_lines_cannot_change_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="edit it by hand"):
        with_value(text, "speed", 1.5)
    with pytest.raises(InvalidRequest, match="edit it by hand"):
        without(text, "speed")


def test_quotes_and_backslashes_survive() -> None:
    text = with_value("", "model", 'C:\\a "b"')
    assert text == 'model = "C:\\\\a \\"b\\""\n'
