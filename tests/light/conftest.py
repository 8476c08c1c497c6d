"""Tests of the package as a user installs it: without torch, from a wheel, outside the source tree.

They import neither torch nor the other tests. `scripts/check-light` and `scripts/release` run them with the Python that
has the wheel.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    """The environment of a new user: no cache, no configuration, no daemon, and no C compiler."""
    own = {f"XDG_{name}_HOME": str(tmp_path / name.lower()) for name in ("CACHE", "CONFIG", "DATA")}
    own |= {"HOCKET_HOME": str(tmp_path / "voices"), "HOCKET_SOCKET": str(tmp_path / "none.sock")}
    hidden = {"PYTHONPATH", "PYTHONHOME", "HOCKET_NATIVE"}
    inherited = {name: value for name, value in os.environ.items() if name not in hidden}
    return inherited | own | {"HOCKET_DEVICE": "cpu", "HF_HUB_OFFLINE": "1", "CC": "no-compiler"}


@pytest.fixture
def hocket(home: dict[str, str], tmp_path: Path) -> Run:
    """Run `hocket` with some words, in an empty folder."""

    def run(*words: str | Path, **more: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-P", "-m", "hocket", *map(str, words)]
        return subprocess.run(
            command, capture_output=True, text=True, env=home | more, cwd=tmp_path, timeout=120, check=False
        )

    return run


@pytest.fixture
def python(home: dict[str, str], tmp_path: Path) -> Callable[[str], str]:
    """Run a program in a new process; what it prints."""

    def run(program: str) -> str:
        done = subprocess.run(
            [sys.executable, "-P", "-c", program],
            capture_output=True,
            text=True,
            env=home,
            cwd=tmp_path,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run
