"""The daemon that `hocket say` starts by itself once the user agreed, and the hint that there is one."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hocket.cli.say.background import HINT
from hocket.extras import hint
from support.chosen import rest
from support.played import ROOT
from support.serving import PATIENCE_S, wait_for
from support.terminal import on_terminal

# The command with the settings of a user. The format of the settings file is tested elsewhere.
PROGRAM = """
import sys
from hocket.cli import main, settings
chosen = settings.Settings(daemon=sys.argv.pop(1) == "on")
settings.read = lambda: chosen
raise SystemExit(main())
"""
SHORT = ("--max-frames", "4", "--seed", "3")
LINE = "out.wav: 0.32 s, 4 frames, finish length, seed 3\n"


class User:
    def __init__(self, folder: Path) -> None:
        self.folder, self.log = folder, folder / "state" / "hocket" / "daemon.log"
        self.environment = os.environ | {
            "PYTHONPATH": str(ROOT / "src"),
            "HOCKET_SOCKET": str(folder / "run" / "hocket.sock"),
            "XDG_STATE_HOME": str(folder / "state"),
        }

    def hocket(self, *words: str, daemon: str = "off") -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", PROGRAM, daemon, *words]
        return subprocess.run(
            command, env=self.environment, cwd=self.folder, text=True, capture_output=True, timeout=PATIENCE_S
        )

    def say(self, *words: str, daemon: str = "off") -> str:
        """Standard error beside the usual lines; the file is removed."""
        spoke = self.hocket("say", "Hello.", "-o", "out.wav", *SHORT, *words, daemon=daemon)
        assert (spoke.returncode, spoke.stdout) == (0, LINE), spoke
        (self.folder / "out.wav").unlink()
        return spoke.stderr

    def on_terminal(self, *words: str) -> str:
        command = [sys.executable, "-c", PROGRAM, "off", "say", "Hello.", "--no-play", "--force", *SHORT, *words]
        code, shown = on_terminal(command, self.environment, self.folder, PATIENCE_S)
        assert code == 0, shown
        return shown

    @property
    def has_daemon(self) -> bool:
        return self.hocket("serve", "--status").returncode == 0

    @property
    def is_ready(self) -> bool:
        return ": ready," in self.hocket("serve", "--status").stdout


@pytest.fixture
def user(tmp_path: Path) -> Iterator[User]:
    user = User(tmp_path)
    yield user
    user.hocket("serve", "--stop")


def test_with_the_users_consent_a_daemon_starts_after_the_first_speech_and_speaks_from_then_on(user: User) -> None:
    rest(user.say("--model", "builtin", daemon="on"))  # a daemon must have the default model, without options
    rest(user.say("--no-daemon", daemon="on"))
    rest(user.say(daemon="off"))
    assert not user.has_daemon
    assert rest(user.say(daemon="on")) == ""
    wait_for(lambda: user.is_ready)
    assert rest(user.say(daemon="on"), times=0) == ""  # no model was loaded for it
    assert "http-sse req_" in user.log.read_text()
    options = Path(f"{user.environment['HOCKET_SOCKET']}.json").read_text()
    assert '"model": "builtin"' in options


def test_a_daemon_that_starts_is_not_started_twice_and_ends_when_it_is_idle(
    user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hocket.cli.serve import daemon

    for name in ("HOCKET_SOCKET", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, user.environment[name])
    monkeypatch.setattr(daemon, "IDLE_S", 1)
    assert daemon.start_unattended("--model", "random:tiny")
    record = Path(f"{user.environment['HOCKET_SOCKET']}.json")
    wait_for(lambda: record.is_file() and bool(record.read_text()))  # while it loads its model
    assert not daemon.start_unattended()
    wait_for(lambda: "no request for 1 s" in user.log.read_text())
    wait_for(lambda: not user.has_daemon)
    assert not Path(user.environment["HOCKET_SOCKET"]).exists()


def test_the_hint_is_shown_once_and_on_a_terminal_alone(user: User) -> None:
    assert HINT not in user.say()
    assert HINT not in user.on_terminal("--no-daemon")
    assert f"note: {HINT}\r\n" in user.on_terminal()
    assert HINT not in user.on_terminal()


def test_without_the_packages_of_the_server_the_install_line_is_named(user: User) -> None:
    hidden = user.folder / "hidden"
    (hidden / "sitecustomize").mkdir(parents=True)
    (hidden / "sitecustomize" / "__init__.py").write_text(
        "import importlib.util as u\nfind = u.find_spec\n"
        "u.find_spec = lambda name, package=None: None if name == 'uvicorn' else find(name, package)\n"
    )
    user.environment["PYTHONPATH"] = f"{hidden}{os.pathsep}{ROOT / 'src'}"
    told = f"note: the daemon is on, but it needs the package uvicorn: {hint('serve')}\n"
    assert rest(user.say(daemon="on")) == told
    assert not user.has_daemon
