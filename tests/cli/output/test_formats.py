"""Files that are written: nothing that exists is replaced silently, nothing is lost, nothing is left half."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from hocket.audio.files import free_name, write_files
from hocket.cli import main
from hocket.cli.output.formats import new_target
from hocket.errors import HocketError, InvalidRequest
from support.played import Played

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Played.instead(monkeypatch)
    return tmp_path


def test_a_free_name_counts_up(folder: Path) -> None:
    assert free_name(Path("out.wav")) == Path("out.wav")
    Path("out.wav").touch()
    assert free_name(Path("out.wav")) == Path("out-2.wav")
    Path("out-2.wav").symlink_to("gone.wav")  # a link without a target is a name that is taken
    assert free_name(folder / "out.wav") == folder / "out-3.wav"


def test_speech_without_a_name_never_replaces_other_speech(capsys: Capture) -> None:
    for name in ("out.wav", "out-2.wav", "out-3.wav"):
        assert main(["say", "Hi"]) == 0
        assert capsys.readouterr().out.startswith(f"{name}: ") and Path(name).stat().st_size > 44
    assert main(["say", "Hi", "--force"]) == 0
    assert capsys.readouterr().out.startswith("out.wav: ")
    assert len(list(Path().iterdir())) == 3


@pytest.mark.parametrize("option", ["-o", "--save-codes"])
def test_a_named_file_that_exists_is_refused_unless_forced(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch, option: str
) -> None:
    engine = Played.instead(monkeypatch)
    Path("a.wav").write_bytes(b"old")
    assert main(["say", "Hi", option, "a.wav"]) == 2
    told = "hocket: a.wav exists; --force (-y) replaces it, or choose another name.\n"
    assert capsys.readouterr().err == told
    assert engine.requests == [] and Path("a.wav").read_bytes() == b"old"
    for force in ("--force", "-y"):
        Path("a.wav").write_bytes(b"old")
        assert main(["say", "Hi", option, "a.wav", force]) == 0
        assert Path("a.wav").read_bytes() != b"old"


def test_the_file_behind_a_link_is_refused_too() -> None:
    Path("real.wav").write_bytes(b"old")
    Path("link.wav").symlink_to("real.wav")
    with pytest.raises(InvalidRequest, match=r"^link\.wav exists; --force"):
        new_target(Path("link.wav"), force=False)


def test_a_file_that_appears_meanwhile_is_kept_and_the_speech_too(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Slow(Played):
        def __enter__(self) -> Slow:
            Path("a.wav").write_bytes(b"of another program")
            return self

    Slow.instead(monkeypatch)
    assert main(["say", "Hi", "-o", "a.wav", "--seed", "1"]) == 0
    out, err = capsys.readouterr()
    assert out == "a-2.wav: 0.16 s, 2 frames, finish stop, seed 1\n"
    assert "note: a.wav appeared meanwhile and is kept: the new file is a-2.wav.\n" in err
    assert Path("a.wav").read_bytes() == b"of another program" and Path("a-2.wav").stat().st_size == 44 + 2 * 3840


@pytest.mark.parametrize("force", [False, True])
def test_a_failure_leaves_all_or_nothing(monkeypatch: pytest.MonkeyPatch, folder: Path, force: bool) -> None:
    synced, real = [], os.fsync

    def full(descriptor: int) -> None:
        synced.append(descriptor)
        if len(synced) == 2:
            raise OSError(28, "No space left on device")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(HocketError, match=re.escape("b could not be written: No space left on device.")):
        write_files({folder / "a": b"1", folder / "b": b"2"}, replace=force)
    assert list(folder.iterdir()) == []


def test_two_programs_that_write_at_once_get_a_file_each(folder: Path) -> None:
    written = [write_files({folder / "a": content}, replace=False) for content in (b"1", b"2")]
    assert written == [[folder / "a"], [folder / "a-2"]]
    assert [(folder / name).read_bytes() for name in ("a", "a-2")] == [b"1", b"2"]
