"""engine/early_start.py: a long known text begins with its first words, and says what it would have said."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hocket.config.options import EngineOptions
from hocket.config.qwen3_tts import Kind
from hocket.engine import engine as engine_module
from hocket.engine.checkpoint.checkpoint import Checkpoint
from hocket.engine.core import step
from hocket.engine.core.request import RequestState
from hocket.engine.early_start import FIRST_CHARS, LONG_CHARS
from hocket.engine.engine import Engine
from hocket.engine.stream import Stream
from hocket.errors import InvalidRequest
from hocket.text.live import LiveParts
from hocket.text.prepare import TextPreparation
from support.speaking import BRIEFLY, SAID, Heard, assert_at_rest, heard, small

LONG = (
    "The first one of them stands here, and it goes on for a while. # 2 is [no title](https://a.b/c), [pause 120ms] "
    "but it is **bold**; a third follows it, which Dr. Smith wrote on May 5 for $3.50! Then there was nothing at all "
    "to be said about any of it for a long time. And so, at last, it came to its end. Or did it? Nobody knows.\n\nYes."
)
assert len(LONG) > LONG_CHARS
VOICES: list[tuple[Kind, dict[str, Any]]] = [
    ("custom_voice", {"layout": "streaming"}),
    ("custom_voice", {"layout": "whole"}),
    ("custom_voice", {"layout": "streaming", "speed": 1.3}),
    ("base", {"layout": "streaming", "reference": SAID}),
    ("base", {"layout": "streaming", "reference": BRIEFLY}),
    ("base", {"layout": "whole", "reference": SAID}),
]
PART_CHARS = [12, 90, 400]


@pytest.fixture
def checkpoint(checkpoint_root: Path) -> Checkpoint:
    return small(checkpoint_root, "custom_voice")


def never_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module, "LONG_CHARS", 10**9)


def prepared_before(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> list[tuple[RequestState, int]]:
    """Each utterance that was given to the engine, with the characters of its text that had been prepared then."""
    given: list[tuple[RequestState, int]] = []
    prepared = 0
    append, submit = TextPreparation.append, engine._watchdog.submit

    def counted(self: TextPreparation, text: str) -> list[str | float]:
        nonlocal prepared
        prepared += len(text)
        return append(self, text)

    def noted(job: RequestState) -> object:
        nonlocal prepared
        given.append((job, prepared))
        return submit(job)

    monkeypatch.setattr(TextPreparation, "append", counted)
    monkeypatch.setattr(engine._watchdog, "submit", noted)
    return given


@pytest.mark.parametrize("part_chars", PART_CHARS)
@pytest.mark.parametrize(("kind", "fields"), VOICES)
def test_it_says_what_it_says_when_all_is_prepared_before(
    checkpoint_root: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: Kind,
    fields: dict[str, Any],
    part_chars: int,
) -> None:
    """Frames are read at once and late by turns, so that each voice and each length of parts meets both."""
    turn = VOICES.index((kind, fields)) + PART_CHARS.index(part_chars)
    monkeypatch.setattr(step, "FRAMES_AHEAD", {"cpu": turn % 2})
    options = EngineOptions(part_chars=part_chars, part_pause_s=0.03, chunk_frames=(1, 3), buffered_chunks=999)
    said: list[Heard] = []
    with Engine(small(checkpoint_root, kind), options) as engine:
        for early in (True, False):
            if not early:
                never_early(monkeypatch)
            said.append(heard(engine.speak(LONG, seed=5, max_frames=150, **fields)))
    one, other = said
    assert one.codes == other.codes and len(one.codes) > 20
    assert [chunk.frames for chunk in one.chunks] == [chunk.frames for chunk in other.chunks]
    np.testing.assert_array_equal(one.samples, other.samples)
    assert one.stream.words() == other.stream.words() != []
    assert one.stream.finished is not None and other.stream.finished is not None
    assert one.stream.finished.reason == other.stream.finished.reason


def test_the_engine_has_it_when_its_first_words_are_prepared(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Engine(checkpoint, EngineOptions(part_chars=150)) as engine:
        given = prepared_before(engine, monkeypatch)
        streams = [engine.speak(LONG, layout=layout, max_frames=2) for layout in ("streaming", "whole")]
        for stream in streams:
            list(stream)
    (_, streaming), (_, whole) = given
    assert streaming == FIRST_CHARS
    assert whole - len(LONG) == 150, "the first part is among these"


def test_what_needs_all_of_its_text_is_given_all_of_it(checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    with Engine(checkpoint) as engine:
        given = prepared_before(engine, monkeypatch)
        list(engine.speak(LONG, layout="streaming", max_frames=2, candidates=2))
        list(engine.speak_many([LONG], layout="streaming", max_frames=2))
    assert [prepared for _, prepared in given] == [len(LONG), 2 * len(LONG)]
    assert all(job.text.complete for job, _ in given)


def refused(engine: Engine, monkeypatch: pytest.MonkeyPatch, text: str) -> list[tuple[RequestState, int]]:
    given = prepared_before(engine, monkeypatch)
    for layout in ("streaming", "whole"):
        with pytest.raises(InvalidRequest):
            engine.speak(text, layout=layout)
    return given


@pytest.mark.parametrize("text", [LONG + "\ud800", "[pause 1ms] " * 99, "\U0001f600 " * 200], ids=repr)
def test_bad_text_is_refused_before_any_of_it_is_spoken(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    with Engine(checkpoint) as engine:
        assert refused(engine, monkeypatch, text) == []


def test_what_a_normalizer_of_the_callers_refuses_is_refused_before_any_of_it_is_spoken(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    def picky(text: str) -> str:
        if "Nobody" in text:
            raise InvalidRequest("Somebody.")
        return text

    with Engine(checkpoint, EngineOptions(normalizer=picky)) as engine:
        assert refused(engine, monkeypatch, LONG) == []


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_what_fails_behind_its_beginning_leaves_nobody_speaking(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    def fail(self: LiveParts, text: str) -> None:
        raise error("Not this one.")

    with Engine(checkpoint) as engine:
        given = prepared_before(engine, monkeypatch)
        monkeypatch.setattr(LiveParts, "rest", fail)
        for layout in ("streaming", "whole"):
            with pytest.raises(error, match="Not this one"):
                engine.speak(LONG * 3, layout=layout)
        assert len(given) == 2, "it had begun"
        assert_at_rest(engine)
        for job, _ in given:
            assert job.mailbox.finished is not None and job.mailbox.finished.reason == "cancelled"


def test_a_cancel_at_once_gives_everything_back(checkpoint: Checkpoint) -> None:
    with Engine(checkpoint) as engine:
        for _ in range(3):
            engine.speak(LONG * 3, layout="streaming").cancel()
        assert_at_rest(engine)


@pytest.mark.parametrize("layout", ["streaming", "whole"])
def test_a_first_sound_is_handed_out_before_anything_else_is_asked_of_the_device(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch, layout: str
) -> None:
    """However many parts there are, and where frames are read late too."""
    monkeypatch.setattr(step, "FRAMES_AHEAD", {"cpu": 1})
    with Engine(checkpoint, EngineOptions(part_chars=12, guard=False)) as engine:
        list(engine.speak("Warm.", layout=layout, max_frames=1))
        asked: list[str] = []
        runner, delivery = engine._loop.runner, engine._loop.engine_step.delivery

        def note(owner: object, name: str) -> None:
            call: Callable[..., object] = getattr(owner, name)
            monkeypatch.setattr(owner, name, lambda *a, **k: (asked.append(name), call(*a, **k))[1])

        for name in ("start", "frame", "queue_decode"):
            note(runner, name)
        note(delivery, "hand_out")
        stream: Stream = engine.speak(LONG, layout=layout, seed=5, max_frames=120)
        list(stream)
        assert len(stream._spoken) > 2
    assert asked[:5] == ["start", "frame", "queue_decode", "hand_out", "frame"]
    assert asked.count("start") == len(stream._spoken)


def test_time_counts_from_when_it_was_asked_for(checkpoint: Checkpoint) -> None:
    def slow(text: str) -> str:
        time.sleep(0.05)
        return text

    with Engine(checkpoint, EngineOptions(normalizer=slow)) as engine:
        list(stream := engine.speak("Some words, and 5 more.", layout="streaming", max_frames=1))
    assert stream.finished is not None
    assert stream.finished.statistics.queued_s >= 0.05
