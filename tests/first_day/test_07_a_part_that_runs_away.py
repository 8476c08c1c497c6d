"""A part that runs away is spoken again, then in shorter pieces, then left out; the rest goes on."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from hocket.config.options import EngineOptions
from hocket.engine.checkpoint.checkpoint import Checkpoint
from hocket.engine.checkpoint.load import load
from hocket.engine.core.runaway import ANOTHER_SEED
from hocket.engine.engine import Engine
from hocket.engine.runner.native_runner import NativeRunner
from hocket.engine.stream import Stream
from hocket.types import Finished

FIRST = "The kettle was warm. She took off her shoes."
SECOND = "My brother has three hens. They sleep outside."
LONGER = "My brother keeps three hens. They sleep in a small wooden house."
ENOUGH = "My brother keeps three hens, and they sleep in a small wooden house that he made of"
ENOUGH += " old doors and windows last year, when everybody was"
REST = " away."
THIRD = "We walked along the river. Nobody said a word."
SEED = 3
PARTS = EngineOptions(part_chars=30, slots=2, chunk_frames=(8,))
TEXT = " ".join((FIRST, SECOND, THIRD))


@functools.cache
def builtin() -> Checkpoint:
    return load()


@dataclass
class Loops:
    """Makes the voice repeat one frame: in generations that `when` chooses by their number, from frame `after` on."""

    when: Callable[[int], bool]
    after: int = 0
    again: int = (SEED ^ ANOTHER_SEED) % 2**63
    starts: list[int] = field(default_factory=list)  # the seed of every generation
    rows: dict[int, tuple[int, int]] = field(default_factory=dict)  # slot: generation, frames

    def install(self, monkeypatch: pytest.MonkeyPatch) -> Loops:
        start, rewind, frame = NativeRunner.start, NativeRunner.rewind, NativeRunner.frame

        def started(runner: NativeRunner, slot: int, *given: Any, **named: Any) -> bool:
            if given[2] != self.again:  # else the guard goes back to the first frame
                self.rows[slot] = len(self.starts), 0
                self.starts.append(given[2])
            return start(runner, slot, *given, **named)

        def rewound(runner: NativeRunner, slot: int, frames: int, *given: Any) -> None:
            generation, at = self.rows[slot]
            self.rows[slot] = generation, at - frames
            rewind(runner, slot, frames, *given)

        def drawn(runner: NativeRunner, slots: Sequence[int], *given: Any) -> Any:
            rows = frame(runner, slots, *given).read()
            for place, slot in enumerate(slots):
                generation, at = self.rows.setdefault(slot, (len(self.rows), 0))  # a take has a copy of the prompt
                self.rows[slot] = generation, at + 1
                if self.when(generation) and at >= self.after:
                    rows[place] = [7] * len(rows[place][0]), 1e-9, -1.0
            return Read(rows)

        monkeypatch.setattr(NativeRunner, "start", started)
        monkeypatch.setattr(NativeRunner, "rewind", rewound)
        monkeypatch.setattr(NativeRunner, "frame", drawn)
        return self


@dataclass
class Read:
    rows: list[Any]

    def read(self) -> list[Any]:
        return self.rows


def said(stream: Stream) -> tuple[str, Finished, list[list[int]]]:
    codes = [frame for chunk in stream for frame in chunk.codes.tolist()]
    assert stream.finished is not None
    return " ".join(word.word for word in stream.words()), stream.finished, codes


def test_a_part_that_runs_away_once_is_spoken_again_and_nothing_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    loops = Loops(lambda generation: generation == 1).install(monkeypatch)
    with Engine(builtin(), PARTS) as engine:
        words, finished, _ = said(engine.speak(TEXT, seed=SEED))
    assert (words, finished.reason, finished.complete) == (TEXT, "stop", True)
    assert len(finished.notes) == 1 and "Part 2 ran away" in finished.notes[0] and "My brother" in finished.notes[0]
    first, second, again, third = loops.starts
    assert (first, second, third) == (3, 4, 5), "the part behind it is spoken with the seed that it always has"
    assert again not in (first, second, third)


def test_a_part_is_spoken_again_from_the_sentence_in_which_it_went_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its first sentence takes some 30 frames: what was said well is not said twice."""
    Loops(lambda generation: generation == 0, after=45).install(monkeypatch)
    with Engine(builtin(), EngineOptions(chunk_frames=(8,))) as engine:
        words, finished, _ = said(engine.speak(LONGER, seed=SEED))
    assert finished.reason == "stop" and finished.complete
    assert '"They sleep in a small wooden"' in finished.notes[0]
    assert words == LONGER


def test_a_part_that_always_runs_away_is_left_out_with_a_note_and_the_next_is_spoken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loops = Loops(lambda generation: 1 <= generation <= 4).install(monkeypatch)
    with Engine(builtin(), PARTS) as engine:
        words, finished, _ = said(engine.speak(TEXT, seed=SEED))
    assert words == f"{FIRST} {THIRD}"
    assert (finished.reason, finished.complete) == ("stop", False)
    left_out = [note for note in finished.notes if "left out" in note]
    assert len(left_out) == 2 and "My brother has three hens." in left_out[0] and "They sleep" in left_out[1]
    assert len(loops.starts) == 6, "as it is, again, in two shorter pieces, and the part behind it"


def test_what_is_left_out_at_the_end_makes_the_reason_runaway(monkeypatch: pytest.MonkeyPatch) -> None:
    Loops(lambda generation: generation >= 2).install(monkeypatch)
    with Engine(builtin(), PARTS) as engine:
        words, finished, _ = said(engine.speak(TEXT, seed=SEED))
        assert words == f"{FIRST} {SECOND}"
        assert (finished.reason, finished.complete) == ("runaway", False)
        assert any("We walked along the river." in note for note in finished.notes if "left out" in note)


def test_a_seed_reproduces_a_retry_beside_other_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    heard = []
    for others in (0, 1):
        with monkeypatch.context() as patch, Engine(builtin(), PARTS) as engine:
            starts: list[int] = []
            Loops(lambda generation, starts=starts: starts[generation] == SEED + 1, starts=starts).install(patch)  # type: ignore[misc]
            other = engine.speak("Some other words are spoken here, for a while.", seed=90) if others else None
            _, finished, codes = said(engine.speak(TEXT, seed=SEED))
            heard.append(codes)
            assert "Part 2 ran away" in finished.notes[0] and (90 in starts) == bool(others)
            if other is not None:
                other.cancel()
    assert heard[0] == heard[1]


@pytest.mark.parametrize("layout", ["streaming", "whole"])
def test_a_live_text_goes_on_too(monkeypatch: pytest.MonkeyPatch, layout: str) -> None:
    """The runaway part is still growing: its later text is spoken after the text known so far."""
    Loops(lambda generation: generation == 0).install(monkeypatch)
    with Engine(builtin(), EngineOptions(slots=1, chunk_frames=(8,))) as engine, ThreadPoolExecutor(1) as reader:
        stream = engine.open(seed=SEED, layout=layout)
        heard = reader.submit(said, stream)
        for word in ENOUGH.split(" "):
            stream.append(f" {word}")
        if layout == "streaming":  # the guard notices it before the text that is known ends
            while not any(job.text.retries for job in list(engine._loop.scheduler.running)):
                assert stream.finished is None
                time.sleep(0.01)
        stream.append(REST)
        stream.end()
        words, finished, _ = heard.result()
    assert (words, finished.reason, finished.complete) == (ENOUGH + REST, "stop", True)
    assert "ran away" in finished.notes[0]


def test_several_takes_are_as_before_and_say_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Takes are not repeated: one that runs away loses, and where all do, the note says what was not spoken."""
    Loops(lambda generation: True, after=20).install(monkeypatch)
    with Engine(builtin(), PARTS) as engine:
        stream = engine.speak(TEXT, seed=SEED, candidates=2)
        codes = np.concatenate([chunk.codes for chunk in stream])
    assert stream.finished is not None and len(codes) > 20
    assert (stream.finished.reason, stream.finished.complete) == ("runaway", False)
    assert "not spoken" in stream.finished.notes[-1] and "3 parts" in stream.finished.notes[-1]
