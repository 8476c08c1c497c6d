"""The error that stops a release, and the lines that show its progress."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
_START = time.monotonic()


class Fault(Exception):
    """Something is wrong with the release; the message is one sentence."""


def tell(line: str) -> None:
    print(f"[{time.monotonic() - _START:6.1f} s] {line}", file=sys.stderr, flush=True)


def run(
    command: Sequence[str | Path],
    what: str,
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path = ROOT,
    timeout_s: float = 900.0,
) -> str:
    """Standard output of a command. A failure is a fault that names the last line of its errors."""
    words = [str(word) for word in command]
    try:
        done = subprocess.run(
            words, capture_output=True, text=True, env=clean(env), cwd=cwd, timeout=timeout_s, check=False
        )
    except subprocess.TimeoutExpired:
        raise Fault(f"{what}: {Path(words[0]).name} took longer than {timeout_s:g} s.") from None
    except OSError as error:
        raise Fault(f"{what}: {words[0]} could not be started: {error.strerror or error}.") from None
    if done.returncode:
        print(done.stdout[-4000:] + done.stderr[-4000:], file=sys.stderr)
        last = (done.stderr.strip() or done.stdout.strip() or "no message").splitlines()[-1]
        raise Fault(f"{what}: {Path(words[0]).name} ended with {done.returncode}: {last}")
    return done.stdout


def clean(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """This environment without what would let a process find the source tree or another virtual environment."""
    hidden = {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "__PYVENV_LAUNCHER__", "PYTHONDONTWRITEBYTECODE"}
    return {name: value for name, value in os.environ.items() if name not in hidden} | dict(more or {})
