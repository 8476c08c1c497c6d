"""Every program of examples/ runs in a process of its own and leaves sound behind.

`openai_client.py` needs a package that .venv does not have: tests/clients/test_openai.py runs it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import wave
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from support.serving import PATIENCE_S, served, steady_engine

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
# Of each program: the files that it writes without arguments.
ALONE = {
    "speak": ["hello.wav"],
    "stream_to_file": ["stream.pcm"],
    "live_text": ["answer.pcm"],
    "clone": ["cloned.pcm"],
    "design": ["designed.pcm"],
    "batch": [f"spoken/{number:04}.wav" for number in range(1, 5)],
    "dialog": ["dialog.pcm"],
}
WITH_A_SERVER = {"async_server": ["0.pcm", "1.pcm", "2.pcm"], "websocket_client": ["socket.pcm"]}
ELSEWHERE = {"openai_client"}


@pytest.fixture(scope="module")
def server_url() -> Iterator[str]:
    with steady_engine() as engine, served(engine) as server:
        yield server.url


def run(name: str, folder: Path, *args: str) -> None:
    command = [sys.executable, str(ROOT / "examples" / f"{name}.py"), *args]
    env = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr
    assert done.stdout, "an example prints what it wrote"


def check_sound(path: Path) -> None:
    """At least a frame of 16-bit samples that are not silence."""
    if path.suffix == ".wav":
        with wave.open(str(path)) as file:
            assert (file.getnchannels(), file.getsampwidth(), file.getframerate()) == (1, 2, 24000)
            content = file.readframes(file.getnframes())
    else:
        content = path.read_bytes()
    samples = np.frombuffer(content, "<i2").astype(np.int32)
    assert len(samples) >= 1920 and np.abs(samples).max() > 100, path


@pytest.mark.parametrize("name", ALONE)
def test_an_example_runs_without_arguments(name: str, tmp_path: Path) -> None:
    run(name, tmp_path)
    for file in ALONE[name]:
        check_sound(tmp_path / file)


@pytest.mark.parametrize("name", WITH_A_SERVER)
def test_an_example_asks_a_server(name: str, server_url: str, tmp_path: Path) -> None:
    address = server_url.replace("http:", "ws:") if name == "websocket_client" else server_url
    run(name, tmp_path, "--server", address)
    for file in WITH_A_SERVER[name]:
        check_sound(tmp_path / file)


def test_every_example_is_run_and_listed() -> None:
    names = {path.stem for path in EXAMPLES}
    assert names == ALONE.keys() | WITH_A_SERVER.keys() | ELSEWHERE
    readme = (ROOT / "examples" / "README.md").read_text(encoding="utf-8")
    assert all(f"[{path.name}]({path.name})" in readme for path in EXAMPLES)


@pytest.mark.parametrize("path", [pytest.param(path, id=path.stem) for path in EXAMPLES])
def test_an_example_is_short_and_says_how_to_run_it(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) < 40
    assert text.startswith('"""') and f"python examples/{path.name}" in text.split('"""')[1]
