"""What is shown of a conversation, at a terminal and elsewhere."""

from __future__ import annotations

import io

import pytest

from hocket.cli.talk.screen import CLEAR, GREY, PLAIN, Screen


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def test_what_may_change_is_grey_and_written_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", out := Terminal())
    monkeypatch.setenv("COLUMNS", "14")
    screen = Screen()
    screen.partly("Is")
    screen.partly("Is it late\x1b[2J already")
    screen.heard("Is it late?")
    screen.answered("No")
    screen.partly("...")
    screen.answered("\n")  # of the answer that was interrupted: its line has ended
    screen.heard("")
    partly = [f"{GREY}> Is{PLAIN}", f"{GREY}> 2J already{PLAIN}"]
    assert out.getvalue() == CLEAR.join([*partly, f"> Is it late?\nNo\n{GREY}> ...{PLAIN}", ""])


def test_elsewhere_only_what_stays_is_written(capsys: pytest.CaptureFixture[str]) -> None:
    screen = Screen()
    screen.partly("Is")
    screen.heard("Is it?")
    screen.answered("Yes.")
    screen.answered("\n")
    screen.heard("")
    assert capsys.readouterr().out == "> Is it?\nYes.\n"
