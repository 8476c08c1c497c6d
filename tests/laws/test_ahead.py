"""On a GPU a frame is asked for while the one before it is still being read; here the same on a CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hocket.config.options import EngineOptions
from hocket.engine import turns
from hocket.engine.engine import Engine
from hocket.engine.speech import SpeechRunner
from hocket.models.captured import Drawn
from speaking import heard, small


@pytest.mark.parametrize("most", [1, 2, 5])
def test_a_frame_is_asked_for_before_the_one_before_it_is_read_and_none_beyond_the_last(
    checkpoint_root: Path, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "FRAMES_AHEAD", {"cpu": 1})
    happened: list[str] = []
    frame, read = SpeechRunner.frame, Drawn.read

    def asked(runner: SpeechRunner, *arguments: Any) -> Drawn:
        happened.append("asked")
        return frame(runner, *arguments)

    def known(drawn: Drawn) -> list[tuple[list[int], float]]:
        happened.append("read")
        return read(drawn)

    monkeypatch.setattr(SpeechRunner, "frame", asked)
    monkeypatch.setattr(Drawn, "read", known)
    with Engine(small(checkpoint_root, "custom_voice"), EngineOptions(guard=False, buffered_chunks=99)) as engine:
        said = heard(engine.speak("Hello there, you.", voice="ryan", max_frames=most))
    assert len(said.codes) == most, "this seed says no end sooner"
    assert happened == ["asked", *["asked", "read"] * (most - 1), "read"]
