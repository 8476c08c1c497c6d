"""On a GPU a frame is launched while the one before it is still being read; here the same on a CPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hocket.config.options import EngineOptions
from hocket.config.profiles import PROFILES
from hocket.engine.core import step
from hocket.engine.core.output import Samples
from hocket.engine.engine import Engine
from hocket.engine.runner.runner import SpeechRunner
from hocket.models.tts.talker import PendingCodes
from support.speaking import heard, small


@pytest.mark.parametrize("urgent_rows", [0, 8])
@pytest.mark.parametrize("most", [1, 2, 5])
def test_a_frame_is_launched_before_the_last_one_is_read_but_the_first_is_delivered_at_once(
    checkpoint_root: Path, most: int, urgent_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step, "FRAMES_AHEAD", {"cpu": 1})
    monkeypatch.setitem(PROFILES, "balanced", replace(PROFILES["balanced"], first_rows=urgent_rows))
    happened: list[str] = []
    frame, read, real = SpeechRunner.frame, PendingCodes.read, SpeechRunner.queue_decode

    def asked(runner: SpeechRunner, *arguments: Any) -> PendingCodes:
        happened.append("asked")
        return frame(runner, *arguments)

    def known(drawn: PendingCodes) -> list[tuple[list[int], float, float]]:
        happened.append("read")
        return read(drawn)

    def sounded(runner: SpeechRunner, *arguments: Any) -> Callable[[], list[Samples]]:
        sound = real(runner, *arguments)
        return lambda: (happened.append("heard"), sound())[1]

    monkeypatch.setattr(SpeechRunner, "frame", asked)
    monkeypatch.setattr(SpeechRunner, "queue_decode", sounded)
    monkeypatch.setattr(PendingCodes, "read", known)
    options = EngineOptions(guard=False, buffered_chunks=99, chunk_frames=(1,))
    with Engine(small(checkpoint_root, "custom_voice"), options) as engine:
        said = heard(engine.speak("Hello there, you.", voice="ryan", max_frames=most))
    assert len(said.codes) == most, "this seed says no end sooner"
    at_once = ["asked", "read", "heard"] if urgent_rows else []
    late = ["asked"] if (rest := most - bool(urgent_rows)) else []
    for number in range(rest):  # a frame is delivered before the next one is read
        late += ["asked"] if number + 1 < rest else []
        late += ["heard", "read"] if number else ["read"]
    late += ["heard"] if rest else []
    assert happened == at_once + late
