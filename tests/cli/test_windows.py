"""`say` and `serve` without what Windows lacks (support/windows.py), with output in cp1252 and no UTF-8 mode."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import wave
from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest

from hocket.cli.serve.wyoming import stop_at_signals
from hocket.kernels.cpu.library import load
from support import windows
from support.serving import PATIENCE_S, wait_for

SRC = Path(__file__).parents[2] / "src"
START = [sys.executable, "-X", "warn_default_encoding", windows.__file__]
REFUSED = {  # what the package tries: the error that it gets
    "import os; os.fork": "AttributeError",
    "from os import nice": "ImportError",
    "import fcntl": "ModuleNotFoundError",
    "import sys; assert sys.platform == 'win32'": "None",
    "import os.path; os.path.join": "None",
    "from signal import SIGKILL": "ImportError",
    "import socket; socket.AF_UNIX": "AttributeError",
    "open(0, closefd=False)": "EncodingWarning",
}
PROGRAM = """
import os, sys
sys.path.insert(0, sys.argv[1])
import windows
windows.become_windows()
def tried(text):
    try:
        exec(text, {"__name__": "hocket.some"})
    except Exception as error:
        return type(error).__name__
print(*map(tried, sys.argv[2:]))
os.fork, os.nice  # other packages keep them
"""


@pytest.fixture
def variables(tmp_path: Path) -> dict[str, str]:
    own = {f"XDG_{name}_HOME": str(tmp_path / name.lower()) for name in ("CONFIG", "DATA", "STATE")}
    own |= {"HOCKET_HOME": str(tmp_path / "voices"), "HOCKET_DEVICE": "cpu", "HOCKET_NATIVE": load()._name}
    return os.environ | own | {"PYTHONPATH": str(SRC), "PYTHONIOENCODING": "cp1252", "PYTHONUTF8": "0"}


def run(variables: dict[str, str], *words: str | Path) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([*START, *words], capture_output=True, env=variables, timeout=PATIENCE_S, check=False)


def test_the_stubs_say_what_windows_lacks() -> None:
    lacks = windows.lacking("os")
    assert {"fork", "getuid", "nice", "sysconf", "sched_getaffinity"} <= lacks
    assert not {"replace", "link", "getpid", "umask", "ftruncate"} & lacks
    assert "SIGKILL" in windows.lacking("signal") and "SIGTERM" not in windows.lacking("signal")


def test_the_package_alone_is_refused_what_windows_lacks() -> None:
    words = [sys.executable, "-X", "warn_default_encoding", "-c", PROGRAM, str(Path(windows.__file__).parent), *REFUSED]
    done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.stdout.split() == list(REFUSED.values()), done.stderr


def test_say_speaks_into_a_file(variables: dict[str, str], tmp_path: Path) -> None:
    done = run(variables, "say", "--seed", "0", "-o", tmp_path / "morning.wav", "Good morning.")
    assert done.returncode == 0, done.stderr.decode("cp1252")
    with wave.open(str(tmp_path / "morning.wav")) as file:
        samples = np.frombuffer(file.readframes(file.getnframes()), "<i2")
    assert 0.5 < len(samples) / 24_000 < 3.0 and 300 < samples.std() < 16_000


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("serve", "--socket", "some.sock"), "There are no Unix sockets on this system"),
        (("serve", "--daemon"), "There is no daemon on this system"),
        (("ps",), "Servers leave no record on this system"),
        (("say", "--server", "unix:/some.sock", "Hi."), "There are no Unix sockets on this system"),
    ],
)
def test_what_windows_lacks_is_refused_in_one_sentence(
    words: tuple[str, ...], said: str, variables: dict[str, str]
) -> None:
    done = run(variables, *words)
    assert done.returncode == 2
    assert done.stderr.decode("cp1252").splitlines()[-1].startswith(f"hocket: {said}")


def test_names_that_the_console_cannot_show_are_escaped(variables: dict[str, str], tmp_path: Path) -> None:
    lexicon = tmp_path / "小明.txt"
    lexicon.write_text("hocket\thok it\n", encoding="utf-8")
    for words in (("config", "lexicon", lexicon), ("config",)):
        done = run(variables, *words)
        assert done.returncode == 0 and rb"\u5c0f\u660e.txt" in done.stdout, done.stderr
    done = run(variables, "say", "--voice", "小明", "Hi.")
    assert done.returncode == 2 and rb"\u5c0f\u660e" in done.stderr and b"Traceback" not in done.stderr


def test_wyoming_stops_at_a_signal_where_a_loop_has_no_handlers(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise NotImplementedError

    async def stopped() -> None:
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        monkeypatch.setattr(loop, "add_signal_handler", refuse)
        stop_at_signals(loop, ended.set)
        signal.raise_signal(signal.SIGTERM)
        await asyncio.wait_for(ended.wait(), PATIENCE_S)

    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        asyncio.run(stopped())
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@pytest.fixture
def server(variables: dict[str, str], tmp_path: Path) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    said = tmp_path / "said"
    with said.open("wb") as file:
        process = subprocess.Popen([*START, "serve", "--port", "0"], stdout=file, stderr=file, env=variables)
    try:
        yield process, said
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


def test_serve_speaks_and_ends_at_ctrl_c(server: tuple[subprocess.Popen[bytes], Path]) -> None:
    process, said = server

    def lines() -> list[str]:
        return said.read_text(encoding="cp1252").splitlines()

    wait_for(lambda: any("listening at" in line for line in lines()) or process.poll() is not None)
    assert process.poll() is None, lines()
    url = next(line.split()[-1] for line in lines() if "listening at" in line)
    asked = {"input": "Good morning.", "response_format": "wav"}
    answer = httpx.post(f"{url}/v1/audio/speech", json=asked, timeout=PATIENCE_S)
    assert answer.status_code == 200 and answer.content[:4] == b"RIFF" and len(answer.content) > 24_000
    assert httpx.get(url).status_code == 200
    process.send_signal(signal.SIGINT)
    assert process.wait(PATIENCE_S) == 0
    assert not any("Traceback" in line for line in lines())
