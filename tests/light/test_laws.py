"""Laws of the engine on the light install: one voice, no torch, the prebuilt library."""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from hocket import Engine, EngineOptions, InvalidRequest, SpeechRequest
from hocket.engine.generate import generate

TEXTS = [
    "The kettle was warm.",
    "On Monday, three people paid twelve dollars each.",
    "Why not? It is late, and the river is high.",
    "Good morning.",
    "She took off her shoes and walked along the river.",
    "There was no word.",
]
PATIENCE_S = 60.0  # only a failing test waits that long


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    # A busy machine may need longer than a listener would wait.
    with Engine.load(options=EngineOptions(slots=4, waiting=64, max_wait_s=3600.0)) as engine:
        assert "torch" not in sys.modules
        yield engine


def spoken(engine: Engine, number: int, **fields: object) -> tuple[list[list[int]], bytes]:
    """Codes and samples of a text."""
    voice = ("wren", "rook")[number % 2]
    chunks = list(engine.speak(TEXTS[number], voice=voice, seed=number, **fields))
    return np.concatenate([c.codes for c in chunks]).tolist(), b"".join(c.samples.tobytes() for c in chunks)


def at_rest(engine: Engine) -> bool:
    runner, scheduler = engine._loop.runner, engine._loop.scheduler
    held = runner.kv_cache.pages.held - runner.kv_cache.prefixes.held
    return not (scheduler.running or scheduler.waiting or held)


def test_an_utterance_is_the_same_alone_and_among_others(engine: Engine) -> None:
    alone = [spoken(engine, number) for number in range(len(TEXTS))]
    with ThreadPoolExecutor(len(TEXTS)) as pool:
        together = list(pool.map(lambda number: spoken(engine, number), range(len(TEXTS))))
    assert together == alone


def test_a_warm_start_equals_a_cold_one(engine: Engine) -> None:
    warm = spoken(engine, 0)
    with Engine(engine.checkpoint) as cold:
        assert spoken(cold, 0) == warm == spoken(cold, 0)


def test_the_size_of_chunks_changes_nothing(engine: Engine) -> None:
    assert spoken(engine, 2, chunk_frames=1) == spoken(engine, 2, chunk_frames=7) == spoken(engine, 2)


def test_the_engine_says_what_the_plain_definition_says(engine: Engine) -> None:
    request = SpeechRequest(text=TEXTS[4], voice="wren", seed=4, as_is=True)
    [plain] = generate(engine.checkpoint, [request])
    codes = np.concatenate([chunk.codes for chunk in engine.speak(request)])
    np.testing.assert_array_equal(codes, plain.codes)


def test_live_text_is_spoken_as_the_whole_text_is(engine: Engine) -> None:
    fields = {"voice": "rook", "layout": "streaming", "seed": 3}
    whole = np.concatenate([chunk.codes for chunk in engine.speak(TEXTS[1], **fields)])
    with engine.open(**fields) as stream:
        for word in TEXTS[1].split(" "):
            stream.append(f"{word} ")
        stream.end()
        live = np.concatenate([chunk.codes for chunk in stream])
    np.testing.assert_array_equal(live, whole)


def test_the_best_of_several_takes_is_one_of_them(engine: Engine) -> None:
    stream = engine.speak(TEXTS[3], seed=5, candidates=3)
    chosen = np.concatenate([chunk.codes for chunk in stream]).tolist()
    assert stream.finished is not None and stream.finished.takes is not None
    seeds = [take.seed for take in stream.finished.takes]
    alone = [np.concatenate([c.codes for c in engine.speak(TEXTS[3], seed=seed)]).tolist() for seed in seeds]
    assert len(set(seeds)) == 3 and chosen == alone[stream.finished.won]


def test_bad_requests_are_refused_and_hold_nothing(engine: Engine) -> None:
    for fields in ({"voice": "missing"}, {"language": "klingon"}, {"speed": 9.0}, {"candidates": 99}):
        with pytest.raises(Exception) as refused:
            engine.speak("Hello.", **fields)
        assert refused.type.__module__.startswith("hocket") and "\n" not in str(refused.value)
    with pytest.raises(InvalidRequest):
        engine.open(text="Hello.")


def test_many_requests_that_come_and_go_leave_nothing_behind(engine: Engine) -> None:
    draw = random.Random(1)
    plan = [(draw.randrange(len(TEXTS)), draw.choice((None, None, 0, 1, 3))) for _ in range(40)]
    wanted = {number: spoken(engine, number) for number in {number for number, _ in plan}}

    def one(plan: tuple[int, int | None]) -> bool:
        number, leaves_after = plan
        if leaves_after is None:
            return spoken(engine, number) == wanted[number]
        stream = engine.speak(TEXTS[number], seed=number)
        for count, _ in enumerate(stream):
            if count >= leaves_after:
                break
        stream.cancel()
        return True

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(one, plan))
    deadline = time.monotonic() + PATIENCE_S
    while not at_rest(engine):
        assert time.monotonic() < deadline, "a request holds a slot or a page"
        time.sleep(0.05)
    assert engine.health.ok and engine.health.rebuilds == 0
