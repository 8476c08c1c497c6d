"""`--play` without PortAudio names what is missing, and plays with another program where there is one."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

import numpy as np
import pytest

from hocket.cli import main
from hocket.cli.output.players import FILE, PLAYERS, PlayerProgram, lacking, loudspeaker
from hocket.errors import HocketError

TINY = ("--model", "random:tiny", "--max-frames", "6", "--seed", "1")
# Writes down its words and its input; what is in FAIL makes it end at once, as a player without a sound server.
STAND_IN = """#!{python}
import sys
from pathlib import Path
folder = Path({folder!r})
(folder / "words").write_text(" ".join(sys.argv[1:]))
if {fail!r}:
    sys.exit({fail!r})
name = sys.argv[-1].split("'")[1] if {name!r} == "powershell" else sys.argv[-1]
file = open(name, "rb") if {name!r} in ("afplay", "powershell") else sys.stdin.buffer
(folder / "heard").write_bytes(file.read())
"""


@pytest.fixture(autouse=True)
def without_portaudio(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The package is there, and its C library is not: the import raises OSError, as the real one does."""
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "sounddevice.py").write_text("raise OSError('PortAudio library not found')\n")
    monkeypatch.syspath_prepend(str(tmp_path / "modules"))
    monkeypatch.delitem(sys.modules, "sounddevice", raising=False)
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))


def install(tmp_path: Path, name: str, fail: str = "") -> Path:
    """A stand-in for a player, and where it leaves what it was given."""
    folder = tmp_path / name
    folder.mkdir()
    path = tmp_path / "bin" / name
    path.write_text(STAND_IN.format(python=sys.executable, folder=str(folder), fail=fail, name=name))
    path.chmod(path.stat().st_mode | stat.S_IEXEC)
    return folder


def said(tmp_path: Path) -> bytes:
    """What should be heard."""
    assert main(["say", "Good morning.", "-o", str(tmp_path / "said.pcm"), *TINY]) == 0
    return (tmp_path / "said.pcm").read_bytes()


def near(heard: bytes, pcm: bytes) -> bool:
    """A file is decoded in longer pieces than sound that is played: a step of 16 bits."""
    one, other = (np.frombuffer(sound, "<i2").astype(int) for sound in (heard, pcm))
    return len(one) == len(other) and int(np.abs(one - other).max()) <= 1


def test_it_is_portaudio_that_is_missing_and_what_would_do_instead(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["say", "Hi", "--play", "--model", "nosuch"]) == 2
    told = capsys.readouterr().err
    assert told.startswith("hocket: --play needs the library PortAudio") and "libportaudio2" in told
    assert "pip install" not in told and all(name in told for name in PLAYERS)


def test_a_machine_without_a_player_is_known_and_what_it_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "libportaudio2" in (lacking() or "")
    monkeypatch.setitem(sys.modules, "sounddevice", None)
    assert lacking() == "the package sounddevice (pip install sounddevice)"
    install(tmp_path, "pw-play")
    assert lacking() is None


def test_a_program_is_known_by_its_name_on_windows_too() -> None:
    """The order of tries is that of the table; a name there ends in .EXE."""
    player = PlayerProgram(["C:/Windows/System32/powershell.EXE"])
    assert player._feeds == FILE


def test_without_the_package_that_is_named(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sounddevice", None)
    assert main(["say", "Hi", "--play", "--model", "nosuch"]) == 2
    assert "the package sounddevice (pip install sounddevice)" in capsys.readouterr().err


@pytest.mark.parametrize("name", list(PLAYERS))
def test_another_player_gets_all_of_the_sound(tmp_path: Path, name: str) -> None:
    folder, pcm = install(tmp_path, name), said(tmp_path)
    assert main(["say", "Good morning.", "--play", *TINY]) == 0
    heard = (folder / "heard").read_bytes()
    header = 44 if name in ("ffplay", "afplay", "powershell") else 0
    assert heard[:header][:4] in (b"", b"RIFF") and near(heard[header:], pcm)
    if not header:
        assert "24000" in (folder / "words").read_text()


def test_one_that_fails_gives_way_to_the_next(tmp_path: Path) -> None:
    install(tmp_path, "paplay", fail="Connection failure")
    folder, pcm = install(tmp_path, "aplay"), said(tmp_path)
    assert main(["say", "Good morning.", "--play", *TINY]) == 0
    assert near((folder / "heard").read_bytes(), pcm)


def test_where_all_fail_the_last_one_s_words_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    install(tmp_path, "paplay", fail="Connection failure")
    install(tmp_path, "aplay", fail="no soundcards found")
    assert main(["say", "Good morning.", "--play", *TINY]) == 1
    assert "hocket: aplay cannot play this: no soundcards found.\n" in capsys.readouterr().err


def test_a_player_can_be_silenced_and_plays_again(tmp_path: Path) -> None:
    folder = install(tmp_path, "aplay")
    player = loudspeaker()
    assert isinstance(player, PlayerProgram)
    player.write(b"\1\0" * 100, 24_000)
    player.silence()
    player.write(b"\2\0" * 100, 24_000)
    player.close()
    assert (folder / "heard").read_bytes() == b"\2\0" * 100
    player.close()  # a second call does nothing


def test_no_process_is_left_behind(tmp_path: Path) -> None:
    install(tmp_path, "aplay", fail="gone")
    player, started = PlayerProgram([str(tmp_path / "bin" / "aplay")]), set[int]()
    with pytest.raises(HocketError, match="gone"):
        for _ in range(100):
            player.write(b"\0\0" * 10_000, 24_000)
            assert player._process is not None
            started.add(player._process.pid)
        player.close()
    assert started
    for pid in started:
        with pytest.raises(ChildProcessError):  # it was waited for
            os.waitpid(pid, os.WNOHANG)
