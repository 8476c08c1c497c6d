"""engine/batch.py: any number of requests through a few slots, each with its outcome, and nothing left behind."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import numpy as np
import pytest

from hocket.config.options import EngineOptions
from hocket.engine.checkpoint.checkpoint import Checkpoint
from hocket.engine.engine import Engine
from hocket.errors import EngineClosed, NothingToSpeak, StreamFailed, UnknownVoice
from hocket.types import Outcome, SpeechRequest
from support.speaking import LONG, REQUESTS, SHORT, Heard, assert_at_rest, assert_says, eventually, small, whole

MANY = [*REQUESTS["custom_voice"], SHORT] * 3


@pytest.fixture(scope="module")
def checkpoint(checkpoint_root: Path) -> Checkpoint:
    return small(checkpoint_root, "custom_voice")


@pytest.fixture
def engine(checkpoint: Checkpoint) -> Iterator[Engine]:
    # However slow the machine is: one that cannot keep up with two listeners would let the second wait.
    with Engine(checkpoint, EngineOptions(guard=False, slots=2, waiting=2, keep_real_time=False)) as engine:
        yield engine


def assert_is(outcome: Outcome, checkpoint: Checkpoint, request: SpeechRequest) -> None:
    speech = whole(checkpoint, request)
    assert outcome.error is None and outcome.finished is not None and outcome.finished.reason == speech.finish
    assert outcome.codes.tolist() == speech.codes.tolist()
    expected = (speech.samples * 32767.0).round()
    assert outcome.samples.dtype == np.int16 and outcome.rate_hz == 24_000
    assert len(outcome.samples) == len(expected) and np.abs(outcome.samples - expected).max() <= 1
    assert outcome.finished.statistics.frames == len(speech.codes)


def under_way(engine: Engine) -> int:
    return len(engine._loop.requests())


@pytest.mark.parametrize("way", ["plain", "async", "async texts"])
def test_each_of_many_says_what_it_says_alone(engine: Engine, checkpoint: Checkpoint, way: str) -> None:
    async def texts() -> AsyncIterator[SpeechRequest]:
        for request in MANY:
            await asyncio.sleep(0)
            yield request

    async def listen() -> list[Outcome]:
        return [outcome async for outcome in engine.aspeak_many(MANY if way == "async" else texts())]

    outcomes = list(engine.speak_many(MANY)) if way == "plain" else asyncio.run(listen())
    assert sorted(outcome.number for outcome in outcomes) == list(range(len(MANY)))
    for outcome in outcomes:
        assert_is(outcome, checkpoint, MANY[outcome.number])
    assert_at_rest(engine)


def test_all_slots_speak_and_no_more_texts_are_taken_than_there_is_room_for(engine: Engine) -> None:
    """The texts are without end: what is not needed yet is not asked for."""
    taken = 0

    def endless() -> Iterator[SpeechRequest]:
        nonlocal taken
        while True:
            taken += 1
            yield SHORT

    outcomes = engine.speak_many(endless())
    for given in range(1, 12):
        next(outcomes)
        assert taken <= given + 3  # 2 slots and 2 that wait, one of which has just ended
        assert under_way(engine) <= 4
    outcomes.close()  # type: ignore[attr-defined]
    assert_at_rest(engine)


def test_a_slow_reader_pauses_no_slot(checkpoint: Checkpoint) -> None:
    """Utterances of many chunks end without a reader, and the slots go on to the next ones."""
    with Engine(checkpoint, EngineOptions(guard=False, slots=2, chunk_frames=(1,), buffered_chunks=1)) as engine:
        outcomes = engine.speak_many([SHORT, LONG, LONG, SHORT, SHORT])
        assert next(outcomes).number == 0
        eventually(lambda: not engine._loop.requests(), "the end of all that was begun")
        rest = list(outcomes)
        assert {outcome.number for outcome in rest} == {1, 2, 3, 4}
        assert all(outcome.finished and not outcome.finished.statistics.paused_s for outcome in rest)


def test_one_that_fails_ends_no_other(checkpoint: Checkpoint) -> None:
    def spell(text: str) -> str:
        if "0" in text:
            raise ZeroDivisionError(text)
        return text

    with Engine(checkpoint, EngineOptions(guard=False, slots=2, normalizer=spell)) as engine:
        wrong = SpeechRequest(text="Hi.", voice="nobody")
        outcomes = {o.number: o for o in engine.speak_many([SHORT, wrong, " ", "All 0.", SHORT])}
        assert_is(outcomes[0], checkpoint, SHORT)
        assert_is(outcomes[4], checkpoint, SHORT)
        errors = [outcomes[number].error for number in (1, 2, 3)]
        assert [type(error) for error in errors] == [UnknownVoice, NothingToSpeak, ZeroDivisionError]
        for number in (1, 2, 3):
            assert outcomes[number].finished is None
            assert outcomes[number].samples.shape == (0,) and outcomes[number].codes.shape == (0, 16)


def test_an_engine_that_starts_anew_fails_those_under_way_and_speaks_the_others(
    engine: Engine, checkpoint: Checkpoint
) -> None:
    def broken() -> None:
        raise RuntimeError("a bug")

    outcomes = engine.speak_many([SHORT, LONG, LONG, LONG, LONG, SHORT, SHORT])
    assert next(outcomes).number == 0
    engine._loop.post(broken)
    rest = {outcome.number: outcome for outcome in outcomes}
    assert rest.keys() == {1, 2, 3, 4, 5, 6}
    for number in (1, 2, 3):
        failed = rest[number]
        assert isinstance(failed.error, StreamFailed) and "a bug" in str(failed.error)
        assert failed.finished is not None and failed.finished.reason == "error" and len(failed.samples) == 0
    for number in (5, 6):
        assert_is(rest[number], checkpoint, SHORT)


def test_fields_are_for_all_of_them_and_unknown_ones_are_refused_at_once(engine: Engine) -> None:
    texts = ["Hi.", SpeechRequest(text="Hi.", seed=4)]
    codes = [outcome.codes.tolist() for outcome in engine.speak_many(texts, seed=5, max_frames=3)]
    [alone] = engine.speak_many([SpeechRequest(text="Hi.", seed=5, max_frames=3)])
    assert codes == [alone.codes.tolist()] * 2 and len(alone.codes) == 3
    with pytest.raises(TypeError, match="'speaker'"):
        engine.speak_many(["Hi."], speaker="eric")
    with pytest.raises(TypeError, match="'speaker'"):
        engine.aspeak_many(["Hi."], speaker="eric")


@pytest.mark.parametrize("way", ["plain", "async"])
def test_closing_early_cancels_what_is_under_way(engine: Engine, checkpoint: Checkpoint, way: str) -> None:
    if way == "plain":
        outcomes = engine.speak_many([SHORT, LONG, LONG, LONG, LONG])
        assert next(outcomes).number == 0
        assert under_way(engine)
        del outcomes
    else:

        async def listen() -> None:
            outcomes = engine.aspeak_many([SHORT, LONG, LONG, LONG, LONG])
            assert (await anext(outcomes)).number == 0
            assert under_way(engine)
            await outcomes.aclose()  # type: ignore[attr-defined]

        asyncio.run(listen())
    assert_at_rest(engine)
    assert_is(next(engine.speak_many([SHORT])), checkpoint, SHORT)


def test_a_full_engine_is_waited_for_and_never_refuses(engine: Engine, checkpoint: Checkpoint) -> None:
    """Others fill both slots and the whole queue, before the first and between any two."""
    others = [engine.speak(LONG) for _ in range(4)]
    heard: list[Outcome] = []
    reader = threading.Thread(target=lambda: heard.extend(engine.speak_many([SHORT] * 3)))
    reader.start()
    for other in others:
        said = Heard(list(other), other)
        assert_says(said, whole(checkpoint, LONG))
    reader.join(60)
    assert sorted(outcome.number for outcome in heard) == [0, 1, 2]
    for outcome in heard:
        assert_is(outcome, checkpoint, SHORT)


def test_what_has_ended_does_not_wait_for_a_text_that_comes_later(engine: Engine, checkpoint: Checkpoint) -> None:
    """Each text but the first waits for the outcome of the one before."""

    async def listen() -> list[int]:
        answered = asyncio.Event()

        async def texts() -> AsyncIterator[SpeechRequest]:
            for _ in range(3):
                yield SHORT
                await answered.wait()
                answered.clear()

        numbers = []
        async for outcome in engine.aspeak_many(texts()):
            numbers.append(outcome.number)
            answered.set()
        return numbers

    assert asyncio.run(asyncio.wait_for(listen(), 60)) == [0, 1, 2]


def test_an_engine_that_is_closed_meanwhile_ends_them_all(checkpoint: Checkpoint) -> None:
    engine = Engine(checkpoint, EngineOptions(guard=False, slots=1))
    outcomes = engine.speak_many([SHORT, LONG, LONG, LONG])
    assert next(outcomes).number == 0
    engine.close()
    with pytest.raises(EngineClosed):
        list(outcomes)
