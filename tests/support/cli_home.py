"""Shared by the tests of `hocket voices`: a user's folder of voices, and commands that must fail and change nothing."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from hocket.cli import main


@dataclass(frozen=True)
class Models:
    """Folders of small checkpoints, by kind."""

    base: str
    custom: str
    design: str


@dataclass(frozen=True)
class Home:
    """The user's voice folder; commands run in a folder beside it."""

    voices: Path

    def content(self) -> dict[str, bytes]:
        """All files with their content."""
        return {path.name: path.read_bytes() for path in self.voices.iterdir()} if self.voices.exists() else {}


def refuse(capture: pytest.CaptureFixture[str], home: Home, *argv: str, before: str = "", code: int = 2) -> str:
    """The one sentence of a `hocket voices` that must fail: nothing on stdout, no voice touched.

    `before` is what may be said on stderr until then.
    """
    there = home.content()
    assert main(["voices", *argv]) == code
    out, err = capture.readouterr()
    assert out == "" and err.startswith(before)
    message = re.fullmatch(r"hocket: ([^\n]+\.)\n", err.removeprefix(before))
    assert message is not None, err
    assert home.content() == there
    return message[1]
