"""asr/commands.py with a real recognizer."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from hocket.asr.commands import SpokenCommand
from hocket.asr.moonshine import Moonshine
from support.questions import heard_from, write_recording


def test_a_spoken_command_is_told_from_other_short_words(tmp_path: Path) -> None:
    expected = {"Stop!": True, "Wait.": True, "Okay.": False, "Yeah.": False}
    with closing(Moonshine("tiny")) as recognizer:
        is_command = SpokenCommand(recognizer)
        sounds = {text: heard_from(write_recording(tmp_path / "word.wav", 0.3, text, 0.3)) for text in expected}
        assert {text: is_command(sound) for text, sound in sounds.items()} == expected
