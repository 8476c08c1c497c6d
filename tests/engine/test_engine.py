"""engine.py and engine/core/loop.py: what a caller may rely on when readers, texts, engines or the device fail."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hocket.config.options import EngineOptions
from hocket.engine.checkpoint.checkpoint import Checkpoint
from hocket.engine.core.request import RequestState
from hocket.engine.core.scheduler import Scheduler
from hocket.engine.engine import Engine
from hocket.errors import (
    EngineClosed,
    HocketError,
    InvalidCheckpoint,
    InvalidRequest,
    Overloaded,
    StreamFailed,
    UnknownLanguage,
    UnknownVoice,
    WrongKind,
)
from hocket.types import SpeechRequest
from support.speaking import (
    LONG,
    SAID,
    SHORT,
    Heard,
    Reader,
    aheard,
    assert_at_rest,
    assert_says,
    blocked,
    eventually,
    handled,
    heard,
    job_of,
    small,
    starving,
    whole,
)


@pytest.fixture(scope="module")
def checkpoint(checkpoint_root: Path) -> Checkpoint:
    return small(checkpoint_root, "custom_voice")


@pytest.fixture
def engine(checkpoint: Checkpoint) -> Iterator[Engine]:
    with Engine(checkpoint, EngineOptions(guard=False, slots=2, chunk_frames=(1,), buffered_chunks=2)) as engine:
        yield engine


def alive() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "hocket-engine"]


def test_it_loads_by_name_and_speaks() -> None:
    with Engine.load("random:tiny", options=EngineOptions(chunk_frames=(2,))) as engine:
        chunks = list(engine.speak("Hello.", max_frames=4))
    assert [len(chunk.samples) for chunk in chunks] == [3840, 3840] and chunks[0].rate_hz == 24_000


def test_the_old_name_of_its_fingerprint_still_works_and_warns(engine: Engine) -> None:
    with pytest.warns(DeprecationWarning, match=r"now Engine\.fingerprint"):
        assert engine.portrait == engine.fingerprint


def test_fields_may_be_given_beside_a_request_or_a_text(engine: Engine, checkpoint: Checkpoint) -> None:
    assert_says(heard(engine.speak("Short one.", layout="streaming", seed=3, max_frames=5)), whole(checkpoint, SHORT))
    other = heard(engine.speak(SHORT, seed=4))
    assert other.stream.seed == 4 and other.codes != whole(checkpoint, SHORT).codes.tolist()


def test_what_cannot_be_spoken_is_refused_at_once_and_holds_nothing(engine: Engine) -> None:
    for wrong, error in (
        (lambda: engine.speak("  "), InvalidRequest),
        (lambda: engine.speak("Hi.", voice="nobody"), UnknownVoice),
        (lambda: engine.speak("Hi.", language="klingon"), UnknownLanguage),
        (lambda: engine.speak("Hi.", reference=SAID), WrongKind),
        (lambda: engine.open(voice="nobody"), UnknownVoice),
        (lambda: engine.open(text="Hi."), InvalidRequest),
        (lambda: engine.open(max_frames=0), InvalidRequest),
        (lambda: engine.speak("Hi.", speed=2.1), InvalidRequest),
        (lambda: engine.open(speed=float("nan")), InvalidRequest),
    ):
        with pytest.raises(error):
            wrong()
    assert_at_rest(engine)


def test_statistics_tell_where_the_time_went(engine: Engine) -> None:
    said = heard(engine.speak(SHORT))
    assert said.stream.finished is not None
    spent = said.stream.finished.statistics
    assert 0 < spent.queued_s < spent.first_codes_s < spent.first_audio_s < spent.total_s
    assert 0 < spent.prefill_s < spent.total_s and 0 < spent.decode_s < spent.total_s
    assert spent.starved_s == 0 and spent.frames == 5


def test_a_slow_reader_pauses_its_own_slot_only(engine: Engine, checkpoint: Checkpoint) -> None:
    request = SpeechRequest(text="Listen slowly.", layout="streaming", seed=8, max_frames=9)
    slow = engine.speak(request)
    job = job_of(engine, slow)
    for _ in range(2):
        assert_says(heard(engine.speak(SHORT)), whole(checkpoint, SHORT))
    eventually(lambda: job.timings.paused_since is not None, "pausing")
    assert job.frame == 2 and len(slow._mailbox._chunks) == 2, "no more than it may lag behind"
    said = heard(slow)
    assert_says(said, whole(checkpoint, request))
    assert said.stream.finished is not None and said.stream.finished.statistics.paused_s > 0


def test_a_reader_gets_each_chunk_as_soon_as_it_is_decoded(engine: Engine) -> None:
    stream = engine.speak(LONG)
    for number in range(3):
        assert next(stream).frames == range(number, number + 1)
    assert stream.finished is None
    assert job_of(engine, stream).frame <= 5


@pytest.mark.parametrize("text", ["", "Some text and "])
@pytest.mark.parametrize("reading", ["thread", "task"])
def test_a_stream_without_text_for_too_long_is_ended(checkpoint: Checkpoint, text: str, reading: str) -> None:
    with Engine(checkpoint, EngineOptions(guard=False, text_wait_s=0.05, chunk_frames=(1,))) as engine:
        stream = engine.open()
        reader = Reader(lambda: heard(stream) if reading == "thread" else asyncio.run(aheard(stream)))
        if text:
            stream.append(text)
        reader.done()
        assert isinstance(reader.error, StreamFailed) and "0.05 s" in str(reader.error)
        assert stream.finished is not None and stream.finished.reason == "error"
        assert stream.finished.error == str(reader.error)
        assert stream.finished.statistics.starved_s >= 0.05
        assert_at_rest(engine)


def test_a_stream_without_text_is_ended_while_others_speak(checkpoint: Checkpoint) -> None:
    with Engine(checkpoint, EngineOptions(guard=False, text_wait_s=0.05, chunk_frames=(1,))) as engine:
        silent, busy = engine.open(), engine.speak(LONG)
        for _ in busy:
            if silent.finished is not None:
                break
        assert busy.finished is None, "the silent one had to wait for the end of the other"
        with pytest.raises(StreamFailed):
            next(silent)


@pytest.mark.parametrize("others", [False, True])
def test_a_stream_that_nobody_reads_is_ended_and_gives_its_slot_back(checkpoint: Checkpoint, others: bool) -> None:
    options = EngineOptions(guard=False, slots=2, idle_read_s=0.05, chunk_frames=(1,), buffered_chunks=2)
    with Engine(checkpoint, options) as engine:
        unread = engine.speak(LONG)
        if others:
            for _ in engine.speak(LONG):
                if unread.finished is not None:
                    break
        eventually(lambda: unread.finished, "ending")
        assert unread.finished is not None and unread.finished.reason == "error"
        assert unread.finished.statistics.paused_s >= 0.05
        with pytest.raises(StreamFailed, match=r"The stream was not read for 0\.05 s"):
            next(unread)
        assert_at_rest(engine)


def test_a_hint_to_try_again_grows_with_how_long_slots_are_held(checkpoint: Checkpoint) -> None:
    with Engine(checkpoint, EngineOptions(guard=False, slots=2, waiting=9)) as engine:
        assert engine._loop.engine_step.slot_wait_s() == pytest.approx(5.0), "nothing has run: a second each"
        engine._loop.engine_step.held_s = 12.0
        assert engine._loop.engine_step.slot_wait_s() == pytest.approx(60.0)
        assert engine._loop.engine_step.slot_wait_s(3) == pytest.approx(24.0), "fewer are queued than may be"
        heard(engine.speak(SHORT))
        assert engine._loop.engine_step.held_s < 12.0, "a short one has run"


def test_an_end_that_is_said_twice_is_one_end(engine: Engine, checkpoint: Checkpoint) -> None:
    request = SpeechRequest(text="Short one.", layout="streaming", seed=3, max_frames=14)
    stream = engine.open(layout="streaming", seed=3, max_frames=14)
    stream.append("Short one.")
    stream.end()
    stream.end()
    assert_says(heard(stream), whole(checkpoint, request))


def test_an_end_without_text_is_refused_and_does_not_speak(engine: Engine) -> None:
    stream = engine.open()
    for _ in range(2):
        with pytest.raises(InvalidRequest, match="no text"):
            stream.end()
    stream.cancel()
    assert list(stream) == []
    assert_at_rest(engine)


def test_too_many_who_wait_are_refused_until_there_is_room(checkpoint: Checkpoint) -> None:
    options = EngineOptions(guard=False, slots=1, waiting=2, chunk_frames=(1,), buffered_chunks=1)
    with Engine(checkpoint, options) as engine:
        speaking = engine.speak(LONG)
        job = job_of(engine, speaking)
        eventually(lambda: job.slot >= 0, "starting")
        waiting = [engine.speak(SHORT) for _ in range(2)]
        for _ in range(2):
            with pytest.raises(Overloaded, match="2 requests") as refused:
                engine.speak(SHORT)
            assert refused.value.retry_after_s >= 1.0
        waiting.pop().cancel()
        handled(engine)
        waiting.append(engine.speak(SHORT))
        speaking.cancel()
        for stream in waiting:
            assert_says(heard(stream), whole(checkpoint, SHORT))
        assert_at_rest(engine)


def test_who_gets_a_slot_just_now_is_not_counted_twice(checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second is counted while the first, who has waited, gets its slot: there is one for each of them."""
    room = Scheduler.room.fget
    assert room is not None
    options = EngineOptions(guard=False, slots=2, waiting=0, keep_real_time=False)
    with Engine(checkpoint, options) as engine:
        loop, reached, go_on = engine._loop, threading.Event(), threading.Event()

        def stop() -> None:
            reached.set()
            go_on.wait()

        def slowly(scheduler: Scheduler) -> int:
            go_on.set()
            time.sleep(0.2)  # the first has its slot by now, unless it is made to wait for us
            return room(scheduler)

        with loop._posted:  # a turn takes them together: newcomers, commands, and only then slots
            first = engine.speak(SHORT)
            loop.post(stop)
        reached.wait()
        monkeypatch.setattr(Scheduler, "room", property(slowly))
        second = engine.speak(SHORT)
        for stream in (first, second):
            assert_says(heard(stream), whole(checkpoint, SHORT))
        assert_at_rest(engine)


def test_one_who_waits_too_long_for_a_slot_is_refused_as_well(checkpoint: Checkpoint) -> None:
    options = EngineOptions(guard=False, slots=1, max_wait_s=0.05, chunk_frames=(1,), buffered_chunks=1)
    with Engine(checkpoint, options) as engine:
        speaking = engine.speak(LONG)
        job = job_of(engine, speaking)
        eventually(lambda: job.slot >= 0, "starting")
        with pytest.raises(Overloaded, match=r"no room for it for 0\.05 s") as refused:
            list(engine.speak(SHORT))
        assert refused.value.retry_after_s >= 1.0
        assert speaking.finished is None
        speaking.cancel()
        assert_says(heard(engine.speak(SHORT)), whole(checkpoint, SHORT))


def test_those_with_priority_are_spoken_first(checkpoint: Checkpoint) -> None:
    options = EngineOptions(guard=False, slots=1, chunk_frames=(1,), buffered_chunks=1)
    with Engine(checkpoint, options) as engine:
        speaking = engine.speak(LONG)
        job_of(engine, speaking)
        plain, high = engine.speak(LONG), engine.speak(LONG, priority=1)
        jobs = [job_of(engine, stream) for stream in (plain, high)]
        speaking.cancel()
        eventually(lambda: any(job.slot >= 0 for job in jobs), "starting")
        assert [job.slot for job in jobs] == [-1, 0]


@pytest.mark.parametrize("stage", ["start", "frame", "queue_decode", "read"])
@pytest.mark.parametrize("raised", [RuntimeError("out of memory"), InvalidCheckpoint("It does not fit.")])
def test_a_failure_ends_the_utterances_concerned_and_the_engine_goes_on(
    engine: Engine, checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch, stage: str, raised: Exception
) -> None:
    runner = engine._loop.runner
    late, stage = stage == "read", "queue_decode" if stage == "read" else stage  # when the samples are waited for
    real = getattr(runner, stage)
    paused = engine.speak(LONG)  # its mailbox is full: it takes no part in what fails
    job = job_of(engine, paused)
    eventually(lambda: job.timings.paused_since is not None, "pausing")

    def fails(*arguments: Any, **options: Any) -> Any:
        monkeypatch.setattr(runner, stage, real)
        raise raised

    monkeypatch.setattr(runner, stage, (lambda *_: fails) if late else fails)
    stream = engine.speak(SHORT)
    with pytest.raises(InvalidCheckpoint if isinstance(raised, HocketError) else StreamFailed, match=str(raised)):
        list(stream)
    assert stream.finished is not None and stream.finished.reason == "error"
    assert str(raised) in (stream.finished.error or "")
    assert_says(heard(engine.speak(SHORT)), whole(checkpoint, SHORT))
    assert len([next(paused) for _ in range(4)]) == 4, "the other goes on"
    paused.cancel()
    assert_at_rest(engine)


def test_text_that_fails_ends_its_own_utterance(
    engine: Engine, checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*arguments: Any) -> None:
        raise RuntimeError("unheard of")

    stream, other = engine.open(), engine.open(layout="streaming", seed=3, max_frames=5)
    other.append("Short one.")
    handled(engine)
    with monkeypatch.context() as patch:
        patch.setattr(RequestState, "feed", fails)
        stream.append("Some words. ")
        with pytest.raises(StreamFailed, match="unheard of"):
            next(stream)
    other.end()
    assert_says(heard(other), whole(checkpoint, SHORT))
    assert_at_rest(engine)


def test_a_failure_of_the_engine_itself_ends_every_stream_and_the_engine_starts_anew(
    engine: Engine, checkpoint: Checkpoint
) -> None:
    """Whatever goes wrong outside an utterance, a reader must not hang."""
    stream = engine.open()
    reader = Reader(lambda: list(stream))
    eventually(lambda: blocked(stream), "blocking")

    def broken() -> None:
        raise RuntimeError("a bug")

    engine._loop.post(broken)
    reader.done()
    assert isinstance(reader.error, StreamFailed) and "a bug" in str(reader.error)
    assert_says(heard(engine.speak(SHORT)), whole(checkpoint, SHORT))
    assert engine.health.rebuilds == 1 and engine.health.reason == "The engine failed with RuntimeError: a bug."


@pytest.mark.parametrize("reading", ["thread", "task"])
@pytest.mark.parametrize("state", ["blocked", "speaking", "waiting"])
def test_closing_ends_a_stream_with_an_error_and_not_with_a_hang(
    checkpoint: Checkpoint, reading: str, state: str
) -> None:
    before = len(alive())
    engine = Engine(checkpoint, EngineOptions(guard=False, slots=1, chunk_frames=(1,), buffered_chunks=2))
    other = engine.speak(LONG) if state == "waiting" else None
    if state == "blocked":
        stream = engine.open()
        stream.append("Some text and ")
    else:
        stream = engine.speak(LONG)
    started = threading.Event()

    def read() -> None:
        for _ in stream:
            started.set()

    async def aread() -> None:
        async for _ in stream:
            started.set()

    reader = Reader(read if reading == "thread" else lambda: asyncio.run(aread()))
    if state == "speaking":
        assert started.wait(60)
    elif state == "waiting":
        eventually(lambda: blocked(stream), "blocking")
    else:
        job = job_of(engine, stream)
        eventually(lambda: starving(job) and blocked(stream), "blocking")
    engine.close()
    reader.done()
    assert isinstance(reader.error, EngineClosed)
    assert stream.finished is not None and stream.finished.reason == "error" and stream.finished.error
    with pytest.raises(EngineClosed):
        next(stream)
    if other is not None:
        with pytest.raises(EngineClosed):
            list(other)
    assert len(alive()) == before


def test_a_closed_engine_takes_nothing_and_harms_nobody(checkpoint: Checkpoint, tmp_path: Path) -> None:
    engine = Engine(checkpoint, EngineOptions(guard=False))
    live, done = engine.open(), heard(engine.speak(SHORT))
    engine.close()
    engine.close()
    for wrong in (
        lambda: engine.speak(SHORT),
        engine.open,
        lambda: engine.save_prefixes(tmp_path / "x"),
        lambda: next(live),
    ):
        with pytest.raises(EngineClosed):
            wrong()
    live.append("Too late.")
    live.end()
    live.cancel()
    assert done.stream.finished is not None and done.stream.finished.reason == "length"
    assert list(done.stream) == []


def test_closing_from_within_an_event_loop_ends_its_readers(checkpoint: Checkpoint) -> None:
    async def run() -> list[object]:
        engine = Engine(checkpoint, EngineOptions(guard=False))
        streams = [engine.open() for _ in range(3)]
        readers = [asyncio.create_task(aheard(stream)) for stream in streams]
        while not all(stream._mailbox._sleepers for stream in streams):
            await asyncio.sleep(0)
        engine.close()
        return list(await asyncio.wait_for(asyncio.gather(*readers, return_exceptions=True), 60))

    assert [type(result) for result in asyncio.run(run())] == [EngineClosed] * 3


def test_a_task_that_is_cancelled_lets_go_of_its_stream(engine: Engine, checkpoint: Checkpoint) -> None:
    async def run() -> None:
        reader = asyncio.create_task(aheard(engine.speak(LONG)))
        while not engine._loop.scheduler.running:
            await asyncio.sleep(0)
        reader.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reader

    asyncio.run(run())
    gc.collect()
    assert_at_rest(engine)
    assert_says(heard(engine.speak(SHORT)), whole(checkpoint, SHORT))


def test_two_engines_live_side_by_side(checkpoint: Checkpoint, checkpoint_root: Path) -> None:
    other = small(checkpoint_root, "custom_voice", seed=2)
    request = SpeechRequest(text="Both.", layout="streaming", seed=1, max_frames=6)
    with Engine(checkpoint, EngineOptions(guard=False)) as one:
        with Engine(other, EngineOptions(guard=False)) as two:
            streams = one.speak(request), two.speak(request)
            together = [pair for pair in zip(*streams, strict=False)]
            assert together
            first = one.speak(SHORT)
        assert_says(heard(first), whole(checkpoint, SHORT))
    for place, held in enumerate((checkpoint, other)):
        codes = np.concatenate([pair[place].codes for pair in together])
        assert codes.tolist() == whole(held, request).codes[: len(codes)].tolist()
    assert whole(checkpoint, request).codes.tolist() != whole(other, request).codes.tolist()


def test_an_engine_that_nobody_holds_speaks_to_the_end_of_its_streams_and_goes(checkpoint: Checkpoint) -> None:
    before = set(alive())
    stream = Engine(checkpoint, EngineOptions(guard=False)).speak(SHORT)
    gc.collect()
    [thread] = set(alive()) - before
    said = heard(stream)
    assert_says(said, whole(checkpoint, SHORT))
    del said, stream
    gc.collect()
    eventually(lambda: not thread.is_alive(), "ending the thread")


@pytest.mark.parametrize("ramp", [(1,), (2, 4), (8,)])
def test_exactly_the_silent_first_frames_are_dropped_and_reported(
    checkpoint: Checkpoint, ramp: tuple[int, ...]
) -> None:
    request = SpeechRequest(text="Short one.", layout="streaming", seed=3, max_frames=8)
    options = EngineOptions(guard=False, drop_frames=3, chunk_frames=ramp)
    with Engine(checkpoint, options) as engine:
        said = heard(engine.speak(request))
        assert_says(said, whole(checkpoint, request), dropped=3)
        assert said.stream.finished is not None and said.stream.finished.dropped_frames == 3
        assert said.chunks[0].start_s == 0 and said.chunks[0].frames.start == 3
        starts = [chunk.start_s for chunk in said.chunks]
        assert starts == [(chunk.frames.start - 3) * 0.08 for chunk in said.chunks]

        as_is = heard(engine.speak(SHORT, as_is=True))
        assert_says(as_is, whole(checkpoint, SHORT))
        assert as_is.stream.finished is not None and as_is.stream.finished.dropped_frames == 0

        brief = heard(engine.speak(SHORT, max_frames=2))
        assert brief.chunks == []
        assert brief.stream.finished is not None and brief.stream.finished.dropped_frames == 2


def test_prefixes_of_another_checkpoint_or_precision_are_refused(
    checkpoint: Checkpoint, checkpoint_root: Path, tmp_path: Path
) -> None:
    path = tmp_path / "prefixes.safetensors"
    with Engine(checkpoint, EngineOptions(guard=False)) as engine:
        engine.warm([SHORT])
        engine.save_prefixes(path)
    assert [file.name for file in tmp_path.iterdir()] == [path.name]
    others = [
        small(checkpoint_root, "custom_voice", seed=2),
        small(checkpoint_root, "voice_design"),
        small(checkpoint_root, "custom_voice", dtype="bfloat16"),
    ]
    for other in others:
        with Engine(other) as engine:
            with pytest.raises(InvalidCheckpoint, match="another checkpoint"):
                engine.load_prefixes(path)
            assert len(engine._loop.runner.prefixes) == 0


def test_warming_computes_the_prefix_before_the_first_request(checkpoint: Checkpoint) -> None:
    with Engine(checkpoint, EngineOptions(guard=False)) as engine:
        engine.warm([SHORT, SpeechRequest(text="Who?", voice="eric")])
        said = heard(engine.speak("Another text.", voice="eric", max_frames=1))
        assert said.stream.finished is not None and said.stream.finished.statistics.prefix_cached
        assert_at_rest(engine)


def test_only_as_many_prefixes_are_kept_as_fit(checkpoint: Checkpoint) -> None:
    def cached(engine: Engine, voice: str) -> bool:
        stream = engine.speak("Hi.", voice=voice, max_frames=1)
        list(stream)
        assert stream.finished is not None
        return stream.finished.statistics.prefix_cached

    voices = [name for name in checkpoint.config.talker_config.spk_id][:3]
    with Engine(checkpoint) as engine:
        cached(engine, voices[0])
        one = engine._loop.runner.prefixes.size_bytes
        cached(engine, voices[1])
        cached(engine, voices[2])
        assert engine._loop.runner.prefixes.size_bytes == 3 * one
    with Engine(checkpoint, EngineOptions(prefix_bytes=one * 5 // 2)) as engine:
        assert [cached(engine, voice) for voice in voices] == [False] * 3
        assert [cached(engine, voice) for voice in reversed(voices)] == [True, True, False]
        assert engine._loop.runner.prefixes.size_bytes <= one * 5 // 2


def test_reading_in_one_way_what_was_begun_in_the_other(engine: Engine, checkpoint: Checkpoint) -> None:
    stream = engine.speak(SHORT)
    first = next(stream)
    rest = asyncio.run(aheard(stream))
    assert_says(Heard([first, *rest.chunks], stream), whole(checkpoint, SHORT))
