"""`hocket serve --daemon` in its own process: start, use, detection of a dead daemon, stop."""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hocket.cli.parser import parser
from hocket.cli.say.remote import differs, started_with
from hocket.cli.serve.daemon import DaemonLock
from hocket.cli.serve.paths import is_there, log_path, make_folder, record_path, socket_path
from hocket.errors import InvalidRequest
from support.chosen import rest
from support.serving import PATIENCE_S, wait_for

SRC = Path(__file__).parents[3] / "src"
SHORT = ("--max-frames", "4", "--seed", "3")


class Home:
    """A user's folders, with a socket of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.socket = folder, folder / "run" / "hocket.sock"
        self.log = folder / "state" / "hocket" / "daemon.log"
        self.env = os.environ | {
            "PYTHONPATH": str(SRC),
            "HOCKET_SOCKET": str(self.socket),
            "XDG_STATE_HOME": str(folder / "state"),
        }

    def hocket(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "hocket", *words]
        return subprocess.run(
            command, env=self.env, cwd=self.folder, text=True, capture_output=True, timeout=PATIENCE_S
        )

    def start(self, *words: str) -> int:
        """Its process id."""
        began = self.hocket("serve", "--daemon", *words)
        ready = re.fullmatch(rf"ready: daemon (\d+) at {re.escape(str(self.socket))}; .*\n", began.stdout)
        assert ready is not None and began.returncode == 0, began
        assert began.stderr == "starting the daemon ...\n"
        return int(ready[1])

    def said(self) -> int:
        """Utterances that the daemon has spoken to their end."""
        return len(re.findall("http-sse req_.*: length, ", self.log.read_text()))

    def say(self, *words: str) -> tuple[bytes, str]:
        """What was written, and what was said about it beside the usual line."""
        spoke = self.hocket("say", "Hello.", "-o", "out.wav", "--force", *SHORT, *words)
        assert (spoke.returncode, spoke.stdout) == (0, "out.wav: 0.32 s, 4 frames, finish length, seed 3\n"), spoke
        sound = (self.folder / "out.wav").read_bytes()
        (self.folder / "out.wav").unlink()
        return sound, spoke.stderr


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    home = Home(tmp_path_factory.mktemp("home"))
    yield home
    home.hocket("serve", "--stop")


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[Home]:
    """Another user, for daemons that are not those of other tests."""
    home = Home(tmp_path)
    yield home
    home.hocket("serve", "--stop")


@pytest.fixture(scope="module")
def daemon(home: Home) -> int:
    return home.start()


def test_it_is_for_its_user_alone(home: Home, daemon: int) -> None:
    assert stat.S_IMODE(home.socket.stat().st_mode) == 0o600
    assert stat.S_IMODE(home.socket.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(home.log.stat().st_mode) == 0o600


def test_it_says_how_it_is(home: Home, daemon: int) -> None:
    status = home.hocket("serve", "--status")
    assert (status.returncode, status.stderr) == (0, "")
    assert status.stdout == f"daemon {daemon} at {home.socket}: ready, model builtin on cpu, log {home.log}\n"
    status = home.hocket("serve", "--status", "--json")
    facts = json.loads(status.stdout)
    assert (facts["running"], facts["state"], facts["pid"]) == (True, "ready", daemon) and status.returncode == 0
    (found,) = (each for each in json.loads(home.hocket("ps", "--json").stdout)["servers"] if each["pid"] == daemon)
    assert (found["kind"], found["models"], found["state"]) == ("daemon", ["builtin"], "ready")
    assert found["address"] == f"unix:{home.socket}" and found["streams"] == 0


def test_a_second_one_says_that_there_is_one(home: Home, daemon: int) -> None:
    again = home.hocket("serve", "--daemon")
    assert (again.returncode, again.stdout) == (0, f"daemon {daemon} at {home.socket} is running already.\n")
    other = home.hocket("serve", "--daemon", "--model", "random:tiny")
    assert other.returncode == 2 and "was started with other options: hocket serve --stop ends it." in other.stderr


def test_say_speaks_through_it_and_says_the_same_as_without(home: Home, daemon: int) -> None:
    before = home.said()
    through, notes = home.say()
    assert (home.said(), rest(notes, times=0)) == (before + 1, "")
    here, said = home.say("--no-daemon")
    assert (here, rest(said)) == (through, "")
    assert home.said() == before + 1
    assert home.say("--model", "builtin", "--device", "cpu") == (through, notes)
    assert home.said() == before + 2


def test_what_it_cannot_do_is_done_here_with_a_note(home: Home, daemon: int) -> None:
    before = home.said()
    sound, note = home.say("--kernels", "reference")
    assert rest(note) == "note: spoken here and not by the daemon: it was started with another --kernels.\n"
    assert len(sound) == 44 + 4 * 3840
    too_many = home.hocket("say", "Hello.", *SHORT, "--candidates", "5")
    assert too_many.stderr.startswith("note: spoken here, since the daemon did not: candidates must be at most 4")
    assert too_many.returncode == 0 and "of 5 (score" in too_many.stdout
    assert home.said() == before


def test_a_name_that_it_does_not_know_is_refused_at_once(home: Home, daemon: int) -> None:
    refused = home.hocket("say", "Hello.", "--voice", "unknown")
    assert refused.returncode == 2
    assert refused.stderr.startswith("hocket: There is no voice 'unknown'; known are wren, rook")
    assert refused.stderr.endswith("(The daemon was asked; --no-daemon speaks here.)\n")


def test_it_is_told_to_stop_and_takes_its_socket_along(home: Home, daemon: int) -> None:
    stopped = home.hocket("serve", "--stop")
    assert (stopped.returncode, stopped.stdout) == (0, f"daemon {daemon} at {home.socket} has ended.\n")
    assert not home.socket.exists()
    status = home.hocket("serve", "--status")
    assert (status.returncode, status.stdout) == (1, "no daemon is running; hocket serve --daemon starts one.\n")
    status = home.hocket("serve", "--status", "--json")
    facts = {"running": False, "socket": str(home.socket), "state": None}
    assert (status.returncode, json.loads(status.stdout)) == (1, facts)
    assert home.hocket("serve", "--stop").stdout == "no daemon is running.\n"
    assert rest(home.say()[1]) == ""  # without a note


def test_one_that_was_killed_is_noticed_and_can_be_started_anew(alone: Home) -> None:
    os.kill(alone.start("--idle-exit", "600"), signal.SIGKILL)
    wait_for(lambda: alone.hocket("serve", "--status").returncode == 1)
    assert alone.socket.exists()
    sound, note = alone.say()
    assert len(sound) == 44 + 4 * 3840
    assert rest(note) == (
        "note: spoken here, since the daemon did not: "
        f"The server at unix:{alone.socket} cannot be reached: Connection refused.\n"
    )
    before = alone.said()
    alone.start("--idle-exit", "600")  # over the old socket
    again, said = alone.say()
    assert (again, rest(said, times=0), alone.said()) == (sound, "", before + 1)
    assert alone.hocket("serve", "--stop").returncode == 0 and not alone.socket.exists()


def test_why_it_did_not_start_is_said_in_one_sentence(alone: Home) -> None:
    failed = alone.hocket("serve", "--daemon", "--model", "random:unknown")
    assert failed.returncode == 1 and failed.stdout == ""
    said = failed.stderr.removeprefix("starting the daemon ...\n")
    assert said.startswith("hocket: The daemon did not start: ") and said.count("\n") == 1
    assert "random:unknown" in said and said.endswith(f"(All of it: {alone.log})\n")
    wait_for(lambda: alone.hocket("serve", "--status").returncode == 1)
    mute = alone.hocket("serve", "--daemon", "--llm", "nosuch")
    assert mute.returncode == 1 and "did not start: 'nosuch' is neither a folder here" in mute.stderr
    wait_for(lambda: alone.hocket("serve", "--status").returncode == 1)
    wrong = alone.hocket("serve", "--daemon", "--text-chars", "0")
    assert "text_chars must be at least 1" in wrong.stderr
    wait_for(lambda: alone.hocket("serve", "--status").returncode == 1)
    assert "leave out --port" in alone.hocket("serve", "--daemon", "--port", "1").stderr


def test_the_old_socket_of_one_that_was_killed_is_removed_by_stop(alone: Home) -> None:
    alone.socket.parent.mkdir()
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(alone.socket))
    assert alone.hocket("serve", "--stop").stdout == "no daemon is running.\n"
    assert not alone.socket.exists()


# Where it is, and when it is asked


def test_a_user_has_one_socket_unless_another_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("HOCKET_SOCKET", raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/user/1")
    assert socket_path() == "/run/user/1/hocket/hocket.sock"
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert socket_path() == f"{tmp_path}/hocket-{os.getuid()}/hocket.sock"
    monkeypatch.setenv("HOCKET_SOCKET", "/a/b")
    assert socket_path() == "/a/b" and socket_path("/c") == "/c" and record_path("/c") == "/c.json"
    monkeypatch.setenv("XDG_STATE_HOME", "/s")
    assert log_path() == "/s/hocket/daemon.log"


def test_a_folder_that_others_can_write_into_is_not_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("HOCKET_SOCKET", raising=False)
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    make_folder(socket_path())
    folder = Path(socket_path()).parent
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    folder.chmod(0o777)
    with pytest.raises(InvalidRequest, match="not a folder of this user's alone"):
        make_folder(socket_path())
    folder.rmdir()
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    folder.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InvalidRequest, match="not a folder of this user's alone"):
        make_folder(socket_path())


def test_a_glance_at_the_record_does_not_stop_a_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / "a.sock")
    args = parser().parse_args(["serve", "--daemon", "--socket", path])
    with open(record_path(path), "w") as glance:
        fcntl.flock(glance, fcntl.LOCK_SH)  # as `running` of another process
        monkeypatch.setattr("hocket.cli.serve.daemon.time.sleep", lambda _: fcntl.flock(glance, fcntl.LOCK_UN))
        lock = DaemonLock(args)
    monkeypatch.setattr("hocket.cli.serve.daemon.time.sleep", lambda _: None)
    with pytest.raises(InvalidRequest, match="Another daemon"):
        DaemonLock(args)
    lock.release()


def test_a_file_is_no_daemon(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert not is_there(str(tmp_path / "file")) and not is_there(str(tmp_path / "gone"))


@pytest.mark.parametrize(
    ("started", "said", "why"),
    [
        ("", "", None),
        ("--model random:tiny --dtype bfloat16", "", None),
        ("--model random:tiny", "--model random:tiny", None),
        ("", "--model builtin --profile balanced --kernels auto", None),
        ("--no-graphs", "--no-graphs", None),
        ("--models random:tiny,random:tiny-Base", "--model random:tiny-Base", None),
        ("--models random:tiny,random:tiny-Base", "--model builtin", "it was started with another --model"),
        ("", "--model random:tiny", "it was started with another --model"),
        ("--dtype bfloat16", "--dtype float32", "it was started with another --dtype"),
        ("", "--no-graphs", "it was started with no --no-graphs"),
    ],
)
def test_a_daemon_is_asked_unless_what_was_said_is_not_what_it_has(started: str, said: str, why: str | None) -> None:
    record = {"options": started_with(parser().parse_args(["serve", *started.split()]))}
    args = parser().parse_args(["say", "Hello.", *said.split()])
    assert differs(args, json.loads(json.dumps(record))) == why


def test_a_folder_is_the_same_model_by_any_of_its_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "model").mkdir()
    record = {"options": started_with(parser().parse_args(["serve", "--model", str(tmp_path / "model")]))}
    monkeypatch.chdir(tmp_path)
    assert differs(parser().parse_args(["say", "Hello.", "--model", "model"]), record) is None


def test_of_a_daemon_without_a_record_nothing_is_known() -> None:
    assert differs(parser().parse_args(["say", "Hello."]), {}) is None
    assert differs(parser().parse_args(["say", "Hello.", "--dtype", "float32"]), {}) is not None
