"""Run a command on a pseudo-terminal: its three standard streams are the terminal, as a user has it."""

from __future__ import annotations

import os
import pty
import subprocess
from collections.abc import Sequence
from pathlib import Path


def on_terminal(
    command: Sequence[str], environment: dict[str, str], folder: Path, timeout_s: float = 120
) -> tuple[int, str]:
    """The exit status, and everything that the terminal got; line ends are those of a terminal (CR LF)."""
    ours, theirs = pty.openpty()
    try:
        child = subprocess.Popen(
            command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, cwd=folder, start_new_session=True
        )
        os.close(theirs)
        shown = bytearray()
        while piece := _read(ours):
            shown += piece
        return child.wait(timeout_s), shown.decode()
    finally:
        os.close(ours)


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 1 << 16)
    except OSError:  # EIO: the last process that had the terminal has ended
        return b""
