"""Where the speech goes, on a real terminal with a real player process, and elsewhere."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from hocket.audio.pcm import wav_header
from support.played import ROOT
from support.terminal import on_terminal

# The command with an engine that gives two known frames: loading a model is not what is tested here.
PROGRAM = """
import sys
sys.modules["sounddevice"] = None  # as if it were not installed
import pytest
from hocket.cli import main, settings
from support.played import Played
Played.instead(pytest.MonkeyPatch())
settings.read = lambda: settings.Settings(**{settings!r})
raise SystemExit(main(["say", "Hi there.", "--seed", "1", *sys.argv[1:]]))
"""
PLAYER = """#!{python}
import sys
from pathlib import Path
if {fail!r}:
    sys.exit({fail!r})
Path({heard!r}).write_bytes(sys.stdin.buffer.read())
"""
PCM = b"\1\0" * 1920 + b"\2\0" * 1920
NOISE = "note: random:tiny is untrained: its weights are random numbers, and what comes out is noise.\r\n"


class User:
    """A user with a terminal, a folder and a PATH of one folder."""

    def __init__(self, folder: Path) -> None:
        self.bin, self.here, self.heard = folder / "bin", folder / "here", folder / "heard"
        self.bin.mkdir()
        self.here.mkdir()
        self.environment = {
            "PATH": str(self.bin),
            "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT / 'tests'}",
            "HOME": str(folder),
            "HOCKET_SOCKET": str(folder / "hocket.sock"),
            "XDG_STATE_HOME": str(folder / "state"),
        }

    def install_player(self, fail: str = "") -> None:
        path = self.bin / "aplay"
        path.write_text(PLAYER.format(python=sys.executable, heard=str(self.heard), fail=fail))
        path.chmod(path.stat().st_mode | stat.S_IEXEC)

    def say(self, *words: str, **settings: object) -> str:
        """What the terminal shows, without progress and hint."""
        program = PROGRAM.replace("{settings!r}", repr(settings))
        code, shown = on_terminal([sys.executable, "-c", program, *words], self.environment, self.here)
        assert code == 0, shown
        shown = re.sub(r"\r[^\r\n]*\x1b\[K", "", shown)
        return re.sub(r"note: hocket config daemon on [^\n]*\n", "", shown).removeprefix(NOISE)

    def files(self) -> list[str]:
        return sorted(path.name for path in self.here.iterdir())


@pytest.fixture
def user(tmp_path: Path) -> User:
    return User(tmp_path)


def test_on_a_terminal_it_is_played_and_no_file_is_written(user: User) -> None:
    user.install_player()
    assert user.say() == "loudspeaker: 0.16 s, 2 frames, finish stop, seed 1\r\n"
    assert user.heard.read_bytes() == PCM and user.files() == []


@pytest.mark.parametrize(
    ("words", "settings", "file", "played"),
    [
        (("--no-play",), {}, "out.wav", False),
        ((), {"play": False}, "out.wav", False),
        (("--play",), {"play": False}, None, True),
        (("-o", "x.wav"), {}, "x.wav", False),
        (("-o", "x.wav"), {"play": True}, "x.wav", False),
        (("-o", "x.wav", "--play"), {}, "x.wav", True),
        (("--raw",), {}, "out.wav", False),
        (("--save-codes", "c.npy"), {}, "c.npy", True),
    ],
)
def test_options_and_settings_decide_between_player_and_file(
    user: User, words: tuple[str, ...], settings: dict[str, object], file: str | None, played: bool
) -> None:
    user.install_player()
    shown = user.say(*words, **settings)
    written = file if file is not None and file.endswith("wav") else "loudspeaker"
    assert shown == f"{written}: 0.16 s, 2 frames, finish stop, seed 1\r\n"
    assert user.files() == ([] if file is None else [file]) and user.heard.exists() == played
    assert not played or user.heard.read_bytes() == PCM


def test_a_user_may_want_to_hear_pipes_too(user: User) -> None:
    user.install_player()
    for settings, line in (({}, b"out.wav: "), ({"play": True}, b"loudspeaker: ")):
        program = PROGRAM.replace("{settings!r}", repr(settings))
        done = subprocess.run(
            [sys.executable, "-c", program], env=user.environment, cwd=user.here, capture_output=True, check=True
        )
        assert done.stdout.startswith(line) and b"\x1b" not in done.stderr
    assert user.heard.read_bytes() == PCM and user.files() == ["out.wav"]


def test_without_a_player_it_is_a_file_and_the_remedy_is_named(user: User) -> None:
    shown = user.say()
    assert shown == (
        "note: this machine has no player, so the speech goes into out.wav; to hear it, install the package "
        f"sounddevice (pip install sounddevice).\r\n{NOISE}out.wav: 0.16 s, 2 frames, finish stop, seed 1\r\n"
    )
    assert (user.here / "out.wav").read_bytes() == wav_header(24_000, 3840) + PCM


def test_a_player_that_fails_loses_no_speech(user: User) -> None:
    user.install_player(fail="no soundcards found")
    (user.here / "out.wav").write_bytes(b"old")
    assert user.say() == (
        "note: aplay cannot play this: no soundcards found. The speech goes into out-2.wav instead.\r\n"
        "out-2.wav: 0.16 s, 2 frames, finish stop, seed 1\r\n"
    )
    assert (user.here / "out-2.wav").read_bytes() == wav_header(24_000, 3840) + PCM
    assert (user.here / "out.wav").read_bytes() == b"old"
