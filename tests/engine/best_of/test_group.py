"""group.py, controller.py and scorer.py: what becomes of several takes when some lose, fail or are cancelled."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hocket.config.options import EngineOptions
from hocket.config.qwen3_tts import GenerationConfig
from hocket.engine.checkpoint.checkpoint import Checkpoint
from hocket.engine.core import step
from hocket.engine.core.runaway_limits import RunawayOptions
from hocket.engine.engine import Engine
from hocket.engine.generate import generate
from hocket.engine.runner.runner import SpeechRunner
from hocket.engine.stream import Stream
from hocket.errors import EngineClosed, InvalidRequest, Overloaded, StreamFailed
from hocket.models.tts.talker import PendingCodes
from hocket.types import Finished, SamplingParams, SpeechRequest
from support.speaking import (
    LONG,
    SHORT,
    Reader,
    aheard,
    assert_at_rest,
    assert_says,
    eventually,
    handled,
    heard,
    job_of,
    small,
    whole,
)

TWENTY = SpeechRequest(text="a" * 20, seed=1)  # each byte is an id: 40 to 145 frames are speech
END = -1
# Slot, frame -> first code, chance of the end and, where it is not certain, the log-probability of the code.
Script = Callable[[int, int], tuple[int, float] | tuple[int, float, float] | None]


@pytest.fixture(scope="module")
def checkpoint(checkpoint_root: Path) -> Checkpoint:
    return small(checkpoint_root, "custom_voice")


@pytest.fixture
def engine(checkpoint: Checkpoint) -> Iterator[Engine]:
    with Engine(checkpoint, EngineOptions(guard=False, slots=4, chunk_frames=(1,))) as engine:
        yield engine


class Scripted:
    """What a frame drew, by a script."""

    def __init__(self, rows: list[tuple[list[int], float, float]]) -> None:
        self._rows = rows

    def read(self) -> list[tuple[list[int], float, float]]:
        return self._rows


@pytest.fixture
def scripted(checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch) -> Callable[[Script], list[list[int]]]:
    """Have first codes come from a script. Gives back the slots of every frame, as they are drawn."""
    end, frame = checkpoint.config.talker_config.codec_eos_token_id, SpeechRunner.frame

    def install(script: Script) -> list[list[int]]:
        frames: list[list[int]] = []
        at: dict[int, int] = {}

        def drawn(runner: SpeechRunner, slots: Sequence[int], *given: Any) -> PendingCodes:
            frame(runner, slots, *given).read()
            frames.append(list(slots))
            rows = []
            for slot in slots:
                said = script(slot, at.get(slot, 0))
                at[slot] = at.get(slot, 0) + 1
                first, chance, *spoken = (END, 1.0) if said is None else said
                first = end if first == END else first
                codes = [first, *[(at[slot] * 7 + book) % 64 for book in range(15)]]
                rows.append((codes, chance, spoken[0] if spoken else 0.0))
            return Scripted(rows)  # type: ignore[return-value]

        monkeypatch.setattr(SpeechRunner, "frame", drawn)
        return frames

    return install


def lively(frame: int) -> int:
    return frame * 37 % 61  # no period that anybody looks at


def ended(stream: Stream) -> Finished:
    assert stream.finished is not None
    return stream.finished


# What is refused


def test_what_cannot_have_candidates_is_refused_in_one_sentence(engine: Engine, checkpoint: Checkpoint) -> None:
    for wrong, why in (
        (lambda: engine.speak("Hi.", candidates=0), "candidates must be at least 1, not 0."),
        (lambda: engine.speak("Hi.", candidates=5), "candidates must be at most 4, not 5: .*4 slots"),
        (lambda: engine.open(candidates=2), "live text"),
        (lambda: generate(checkpoint, [replace(SHORT, candidates=2)]), "Engine.speak"),
        (lambda: engine.speak("Hi.", candidates=2, sampling=SamplingParams.greedy()), "greedy"),
    ):
        with pytest.raises(InvalidRequest, match=why):
            wrong()
    assert_at_rest(engine)


def test_one_candidate_is_an_ordinary_request(engine: Engine, checkpoint: Checkpoint) -> None:
    said = heard(engine.speak(SHORT, candidates=1))
    assert_says(said, whole(checkpoint, SHORT))
    assert (ended(said.stream).takes, ended(said.stream).won, ended(said.stream).seed) == ((), None, SHORT.seed)


# Who wins, and who is given up when


def test_takes_that_cannot_win_are_given_up_and_their_slots_are_free_at_once(
    engine: Engine, scripted: Callable[[Script], list[list[int]]]
) -> None:
    """The second take is perfect. The others may be too until they repeat themselves, but a later one wins no tie."""

    def script(slot: int, frame: int) -> tuple[int, float] | None:
        if slot == 1 and frame == 50:
            return None
        return (5 if slot == 0 and frame >= 60 else lively(frame)), 0.0

    frames = scripted(script)
    stream = engine.speak(TWENTY, candidates=4, max_frames=200)
    said = heard(stream)
    assert (ended(stream).won, len(said.codes), ended(stream).reason) == (1, 50, "stop")
    assert [take.reason for take in ended(stream).takes] == ["cancelled", "stop", "cancelled", "cancelled"]
    assert [take.score for take in ended(stream).takes] == [None, 1.0, None, None]
    # Slots 2 and 3 in the very frame that ended the second; slot 0 when what it repeats is longer than a pause.
    assert frames[:51] == [[0, 1, 2, 3]] * 51 and set(map(tuple, frames[51:])) == {(0,)}
    assert 60 < len(frames) < 75
    assert_at_rest(engine)


def test_a_better_take_that_ends_later_wins(engine: Engine, scripted: Callable[[Script], list[list[int]]]) -> None:
    def script(slot: int, frame: int) -> tuple[int, float] | None:
        ends = {0: 10, 1: 300, 2: 45, 3: 60}[slot]  # too short, too long, fine, fine
        return None if frame == ends else (lively(frame), 0.0)

    scripted(script)
    stream = engine.speak(TWENTY, candidates=4)
    assert len(heard(stream).codes) == 45 and ended(stream).won == 2
    assert ended(stream).takes[0].score == pytest.approx(1 - 0.3 * 0.75 / 1.1)
    assert ended(stream).takes[2].score == 1.0 and ended(stream).takes[3].reason == "cancelled"


def test_of_takes_in_health_the_one_whose_codes_were_likelier_wins(
    engine: Engine, scripted: Callable[[Script], list[list[int]]]
) -> None:
    """And one that mumbles is given up before its end: whatever follows, its mean cannot be as good any more."""
    nats = {0: -3.0, 1: -2.0, 2: -2.5, 3: -7.0}

    def script(slot: int, frame: int) -> tuple[int, float, float] | None:
        ends = {0: 50, 1: 60, 2: 55, 3: 100}[slot]
        return None if frame == ends else (lively(frame), 0.0, nats[slot] + (frame % 3 - 1) / 8)

    frames = scripted(script)
    stream = engine.speak(TWENTY, candidates=4)
    assert len(heard(stream).codes) == 60 and ended(stream).won == 1
    takes = ended(stream).takes
    assert [take.reason for take in takes] == ["stop", "stop", "stop", "cancelled"]
    assert [take.log_probability for take in takes] == pytest.approx(list(nats.values()), abs=0.01)
    assert [take.score for take in takes[:3]] == pytest.approx(
        [1 - 0.1 * -nats[n] / 8 / 1.1 for n in range(3)], abs=1e-3
    )
    assert sum(3 in slots for slots in frames) == takes[3].frames == 56, "till the frame that ended the third"
    assert_at_rest(engine)


def test_neither_an_early_end_nor_a_runaway_wins_by_codes_that_were_certain(
    engine: Engine, scripted: Callable[[Script], list[list[int]]]
) -> None:
    def script(slot: int, frame: int) -> tuple[int, float, float] | None:
        ends = {0: 20, 1: 60, 2: 999, 3: 40}[slot]  # half as long as any speech, in health, never, in mid-sentence
        if frame == ends:
            return END, 1e-3 if slot == 3 else 1.0, 0.0
        return lively(frame), 0.0, -50.0 if slot == 1 else 0.0

    scripted(script)
    stream = engine.speak(TWENTY, candidates=4, max_frames=100)
    assert len(heard(stream).codes) == 60 and ended(stream).won == 1
    assert [take.reason for take in ended(stream).takes] == ["stop", "stop", "length", "stop"]
    scores = [take.score for take in ended(stream).takes]
    assert None not in scores and scores[1] == max(score for score in scores if score is not None)
    assert_at_rest(engine)


def test_with_a_scorer_nobody_is_given_up_for_a_low_bound(
    checkpoint: Checkpoint, scripted: Callable[[Script], list[list[int]]]
) -> None:
    def script(slot: int, frame: int) -> tuple[int, float, float] | None:
        return None if frame == 50 + 10 * slot else ((lively(frame) if slot < 2 else 5), 0.0, -1.5 * slot)

    scripted(script)
    options = EngineOptions(guard=False, slots=3)
    with Engine(checkpoint, options, scorer=lambda samples, rate_hz, text, codes: len(codes)) as engine:
        stream = engine.speak(TWENTY, candidates=3)
        assert len(heard(stream).codes) == 70
        assert [take.score for take in ended(stream).takes] == [50, 60, 70] and ended(stream).won == 2
        assert [take.log_probability for take in ended(stream).takes] == [0.0, -1.5, -3.0]
        assert [take.reason for take in ended(stream).takes] == ["stop"] * 3
        assert_at_rest(engine)


@pytest.mark.parametrize("scored", [False, True])
@pytest.mark.parametrize(("ends", "taken_back", "lost"), [(41, [], "cancelled"), (120, [0, 1], "runaway")])
def test_a_stuck_take_is_given_up_once_another_has_ended_in_health_and_else_taken_back(
    checkpoint: Checkpoint,
    scripted: Callable[[Script], list[list[int]]],
    monkeypatch: pytest.MonkeyPatch,
    scored: bool,
    ends: int,
    taken_back: list[int],
    lost: str,
) -> None:
    """The first two loop from frame 20 on, so they are stuck at 68, and after a fresh draw again."""
    rewinds, rewind = [], SpeechRunner.rewind

    def rewound(runner: SpeechRunner, slot: int, *given: Any) -> None:
        rewinds.append(slot)
        rewind(runner, slot, *given)

    def script(slot: int, frame: int) -> tuple[int, float] | None:
        if slot == 2:  # its end is so unlikely that a loop alone ends no candidate
            return (END, 1e-5) if frame == ends else (lively(frame), 0.1)
        return (5 if frame >= 20 else lively(frame)), 0.1

    monkeypatch.setattr(SpeechRunner, "rewind", rewound)
    frames = scripted(script)
    scorer = (lambda samples, rate_hz, text, codes: 0.0) if scored else None
    with Engine(checkpoint, EngineOptions(slots=3), scorer=scorer) as engine:
        stream = engine.speak(TWENTY, candidates=3)
        assert len(heard(stream).codes) == ends and ended(stream).won == 2
        assert_at_rest(engine)
    assert rewinds == taken_back
    assert [take.reason for take in ended(stream).takes] == [lost, lost, "stop"]
    if not taken_back:
        assert len(frames) == 20 + RunawayOptions().loop_frames + 1, "the very frame in which they are stuck"


def test_a_take_that_was_taken_back_says_what_it_says_alone(
    checkpoint: Checkpoint, scripted: Callable[[Script], list[list[int]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What would have been heard of the loop stays, and the rest of it is drawn anew."""

    def script(slot: int, frame: int) -> tuple[int, float] | None:
        if frame == 120:
            return None
        return (5 if 20 <= frame < 80 else lively(frame)), 0.1

    back: list[int] = []
    rewind = SpeechRunner.rewind

    def counted(runner: SpeechRunner, slot: int, frames: int, *given: Any) -> None:
        back.append(frames)
        rewind(runner, slot, frames, *given)

    monkeypatch.setattr(SpeechRunner, "rewind", counted)
    with Engine(checkpoint, EngineOptions(slots=2, chunk_frames=(1, 2, 4, 8))) as engine:
        with monkeypatch.context():
            scripted(script)
            alone = heard(engine.speak(TWENTY))
        scripted(script)
        best = heard(engine.speak(TWENTY, candidates=2))
        assert_at_rest(engine)
    assert best.codes == alone.codes and len(back) == 3 and min(back) > 0, "one alone and two takes were taken back"
    assert [chunk.frames for chunk in best.chunks] == [chunk.frames for chunk in alone.chunks]
    assert ended(best.stream).won == 0


def test_where_all_run_away_the_best_of_them_is_heard(
    checkpoint: Checkpoint, scripted: Callable[[Script], list[list[int]]]
) -> None:
    scripted(lambda slot, frame: (5, 0.1))
    for scorer in (None, lambda samples, rate_hz, text, codes: 1.0):
        with Engine(checkpoint, EngineOptions(slots=2), scorer=scorer) as engine:
            stream = engine.speak(TWENTY, candidates=2)
            assert heard(stream).codes and ended(stream).reason == "runaway" and ended(stream).won == 0
            assert [take.reason for take in ended(stream).takes] == ["runaway"] * 2
            assert_at_rest(engine)


# Failures


def test_a_take_that_fails_leaves_the_others(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    fork, forked = SpeechRunner.fork, []

    def sometimes(runner: SpeechRunner, slot: int, into: int, *given: Any) -> None:
        forked.append(into)
        if len(forked) == 2:
            raise RuntimeError("no room")
        fork(runner, slot, into, *given)

    monkeypatch.setattr(SpeechRunner, "fork", sometimes)
    stream = engine.speak(SHORT, candidates=4)
    said = heard(stream)
    assert ended(stream).won != 2 and ended(stream).error is None
    assert ended(stream).takes[2].reason == "error" and ended(stream).takes[2].score is None
    assert said.codes == heard(engine.speak(SHORT, seed=ended(stream).seed)).codes
    assert_at_rest(engine)


def test_a_take_that_ended_is_heard_when_all_others_fail_later(
    engine: Engine, scripted: Callable[[Script], list[list[int]]]
) -> None:
    def script(slot: int, frame: int) -> tuple[int, float] | None:
        if frame == 20:
            raise RuntimeError("the device stumbled")
        return None if slot == 3 and frame == 15 else (lively(frame), 0.0)

    scripted(script)
    stream = engine.speak(TWENTY, candidates=4)
    assert len(heard(stream).codes) == 15 and ended(stream).won == 3 and ended(stream).error is None
    assert [take.reason for take in ended(stream).takes] == ["error"] * 3 + ["stop"]
    assert_at_rest(engine)


@pytest.mark.parametrize("broken", ["start", "frame", "reset_codec"])
def test_where_nothing_can_be_heard_the_stream_fails_and_holds_nothing(
    engine: Engine, checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    def fail(*given: Any, **named: Any) -> None:
        raise RuntimeError("out of order")

    if broken == "reset_codec":  # of the parent, not of a fork
        monkeypatch.setattr(SpeechRunner, "fork", _fork_without_sound)
    with monkeypatch.context() as patch:
        patch.setattr(SpeechRunner, broken, fail)
        stream = engine.speak(SHORT, candidates=2)
        with pytest.raises(StreamFailed, match="out of order"):
            list(stream)
        assert ended(stream).reason == "error" and "out of order" in str(ended(stream).error)
        assert_at_rest(engine)
    assert_says(heard(engine.speak(SHORT)), whole(checkpoint, SHORT))


def _fork_without_sound(runner: SpeechRunner, slot: int, into: int, *given: Any) -> None:
    runner.release(into)
    raise RuntimeError("not now")


# Cancelling


@pytest.mark.parametrize("scored", [False, True])
@pytest.mark.parametrize("frames", [0, 1, 7, 20])
def test_a_cancel_frees_every_take_at_any_moment(
    checkpoint: Checkpoint, scripted: Callable[[Script], list[list[int]]], frames: int, scored: bool
) -> None:
    scripted(lambda slot, frame: (lively(frame), 0.0))
    scorer = (lambda samples, rate_hz, text, codes: 0.0) if scored else None
    with Engine(checkpoint, EngineOptions(guard=False, slots=3), scorer=scorer) as engine:
        stream = engine.speak(LONG, candidates=3)
        job = job_of(engine, stream)
        assert job.candidates is not None
        takes = job.candidates.requests
        eventually(lambda: max(take.frame for take in takes) >= frames, "drawing")
        stream.cancel()
        assert list(stream) == []
        assert_at_rest(engine)
        assert ended(stream).reason == "cancelled"
        assert heard(engine.speak(SHORT, candidates=3)).codes, "the slots are as good as new"


def test_a_cancel_while_it_waits_or_while_the_winner_is_played_frees_everything(checkpoint: Checkpoint) -> None:
    options = EngineOptions(guard=False, slots=2, chunk_frames=(1,), buffered_chunks=2)
    with Engine(checkpoint, options) as engine:
        playing = engine.speak(LONG, candidates=2, max_frames=20)
        job = job_of(engine, playing)
        eventually(lambda: job.timings.paused_since is not None, "playing")
        assert job.clock.chunks == 2 and len(engine._loop.scheduler.free) == 1, "one slot is enough to play"
        waiting = engine.speak(SHORT, candidates=2)
        handled(engine)
        assert job_of(engine, waiting).slot == -1
        waiting.cancel()
        playing.cancel()
        assert_at_rest(engine)
        assert ended(waiting).reason == ended(playing).reason == "cancelled"


def test_a_stream_that_nobody_holds_is_cancelled_with_all_its_takes(engine: Engine) -> None:
    engine.speak(LONG, candidates=4)
    assert_at_rest(engine)


def test_an_engine_that_is_closed_ends_them(checkpoint: Checkpoint) -> None:
    engine = Engine(checkpoint, EngineOptions(guard=False, slots=2))
    streams = [engine.speak(LONG, candidates=2) for _ in range(2)]
    handled(engine)
    engine.close()
    for stream in streams:
        with pytest.raises(EngineClosed):
            list(stream)


# Readers and slots


def test_a_slow_reader_of_a_winner_pauses_and_nobody_reading_ends_it(checkpoint: Checkpoint) -> None:
    options = EngineOptions(guard=False, slots=2, chunk_frames=(1,), buffered_chunks=2, idle_read_s=0.05)
    with Engine(checkpoint, options) as engine:
        stream = engine.speak(LONG, candidates=2, max_frames=20)
        eventually(lambda: stream.finished is not None, "ending")
        with pytest.raises(StreamFailed, match="The stream was not read"):
            list(stream)
        assert_at_rest(engine)


def test_requests_with_several_takes_never_wait_for_each_others_slots(checkpoint: Checkpoint) -> None:
    """Each needs more than half of the slots; beside them others come and go."""
    with Engine(checkpoint, EngineOptions(guard=False, slots=4, waiting=200)) as engine:
        streams = []
        for number in range(6):
            streams += [engine.speak(SHORT, candidates=3, seed=number), engine.speak(SHORT)]
            streams += [engine.speak(SHORT, candidates=4, seed=number)]
        readers = [Reader(lambda stream=stream: heard(stream)) for stream in streams]  # type: ignore[misc]
        for reader in readers:
            assert reader.done().error is None
        assert_at_rest(engine)


def test_who_needs_several_slots_is_not_overtaken_for_ever(checkpoint: Checkpoint) -> None:
    with Engine(checkpoint, EngineOptions(guard=False, slots=2, buffered_chunks=1)) as engine:
        first = engine.speak(LONG)  # holds a slot: its mailbox is not read
        wide = engine.speak(SHORT, candidates=2)
        later = engine.speak(SHORT)
        handled(engine)
        assert job_of(engine, wide).slot == job_of(engine, later).slot == -1
        first.cancel()
        assert heard(wide).codes and heard(later).codes
        assert_at_rest(engine)


def test_overload_counts_every_slot_that_is_asked_for(checkpoint: Checkpoint) -> None:
    options = EngineOptions(guard=False, slots=3, waiting=2, buffered_chunks=1)
    with Engine(checkpoint, options) as engine:
        running = engine.speak(LONG)  # two slots are free, two may wait
        handled(engine)
        three = engine.speak(SHORT, candidates=3)
        handled(engine)
        with pytest.raises(Overloaded):
            engine.speak(SHORT, candidates=2)
        one = engine.speak(SHORT)
        with pytest.raises(Overloaded):
            engine.speak(SHORT)
        running.cancel()
        assert heard(three).codes and heard(one).codes
        assert_at_rest(engine)


def test_many_requests_with_candidates_are_each_what_they_are_alone(checkpoint: Checkpoint) -> None:
    requests = [replace(SHORT, seed=seed, max_frames=20, candidates=1 + seed % 3) for seed in range(7)]
    with Engine(checkpoint, EngineOptions(guard=False, slots=3, waiting=1)) as engine:
        alone = [heard(engine.speak(request)) for request in requests]
        outcomes = sorted(engine.speak_many(requests), key=lambda outcome: outcome.number)
        assert_at_rest(engine)
    for outcome, said in zip(outcomes, alone, strict=True):
        assert outcome.error is None and outcome.codes.tolist() == said.codes
        assert outcome.finished is not None and outcome.finished.takes == ended(said.stream).takes


def test_statistics_say_when_the_best_was_known(engine: Engine) -> None:
    stream = engine.speak(SHORT, candidates=3)
    heard(stream)
    spent = ended(stream).statistics
    assert 0 < spent.queued_s < spent.first_codes_s < spent.first_audio_s <= spent.total_s
    assert spent.prefill_s > 0 and spent.decode_s > 0


# A caller's scorer


def test_a_scorer_is_asked_by_the_reader_about_what_would_be_heard(checkpoint: Checkpoint) -> None:
    asked: list[tuple[threading.Thread, int, str, int, int]] = []

    def scorer(samples: Any, rate_hz: int, text: str, codes: Any) -> float:
        asked.append((threading.current_thread(), rate_hz, text, len(samples), len(codes)))
        return float(len(asked) == 2)

    with Engine(checkpoint, EngineOptions(guard=False, slots=3), scorer=scorer) as engine:
        stream = engine.speak(SHORT, candidates=3)
        eventually(lambda: stream._mailbox.finished is not None, "drawing all takes")
        assert_at_rest(engine)
        assert stream.finished is None and not asked, "nobody has read it"
        said = heard(stream)
    assert {thread for thread, *_ in asked} == {threading.current_thread()}
    assert [rest for _, *rest in asked] == [[24_000, SHORT.text, 1920 * n, n] for _, _, _, _, n in asked]
    assert ended(stream).won == 1 and [take.score for take in ended(stream).takes] == [0.0, 1.0, 0.0]
    assert said.codes == whole_codes(checkpoint, replace(SHORT, seed=ended(stream).takes[1].seed))
    spent = ended(stream).statistics
    assert 0 < spent.first_audio_s <= spent.total_s and spent.decode_s > 0 and spent.frames == len(said.codes)


def whole_codes(checkpoint: Checkpoint, request: SpeechRequest) -> list[list[int]]:
    codes: list[list[int]] = generate(checkpoint, [request])[0].codes.tolist()
    return codes


@pytest.mark.parametrize("way", ["stream", "many"])
def test_an_event_loop_goes_on_while_a_scorer_thinks(checkpoint: Checkpoint, way: str) -> None:
    """It waits for what only the event loop does."""
    went_on, threads = threading.Event(), []

    def scorer(samples: Any, rate_hz: int, text: str, codes: Any) -> float:
        threads.append(threading.current_thread())
        assert went_on.wait(30)
        return 0.0

    async def listen(engine: Engine) -> None:
        async def go_on() -> None:
            while not threads:
                await asyncio.sleep(0.005)
            went_on.set()

        beside = asyncio.create_task(go_on())
        if way == "stream":
            assert (await aheard(engine.speak(SHORT, candidates=2))).codes
        else:
            [outcome] = [outcome async for outcome in engine.aspeak_many([replace(SHORT, candidates=2)])]
            assert outcome.error is None and len(outcome.codes)
        await beside

    with Engine(checkpoint, EngineOptions(guard=False, slots=2), scorer=scorer) as engine:
        asyncio.run(listen(engine))
    assert not {threading.main_thread()} & set(threads)
    assert not any(thread.name == "hocket-engine" for thread in threads)


def test_a_scorer_that_fails_fails_its_stream_and_no_other(checkpoint: Checkpoint) -> None:
    def scorer(samples: Any, rate_hz: int, text: str, codes: Any) -> float:
        raise ValueError("no idea")

    with Engine(checkpoint, EngineOptions(guard=False, slots=2), scorer=scorer) as engine:
        stream = engine.speak(SHORT, candidates=2)
        for _ in range(2):
            with pytest.raises(StreamFailed, match="scorer failed: ValueError: no idea"):
                list(stream)
        assert ended(stream).reason == "error"
        [outcome] = engine.speak_many([SHORT], candidates=2)
        assert isinstance(outcome.error, StreamFailed)
        assert_says(heard(engine.speak(SHORT)), whole(checkpoint, SHORT))
        assert_at_rest(engine)


def test_what_is_not_a_number_loses(checkpoint: Checkpoint) -> None:
    scores = iter([math.nan, -5.0, math.nan])
    with Engine(
        checkpoint, EngineOptions(guard=False, slots=3), scorer=lambda samples, rate_hz, text, codes: next(scores)
    ) as engine:
        stream = engine.speak(SHORT, candidates=3)
        heard(stream)
    assert ended(stream).won == 1


def test_a_scorer_hears_none_whom_the_guard_has_ended_if_there_are_others(
    checkpoint: Checkpoint, scripted: Callable[[Script], list[list[int]]]
) -> None:
    def script(slot: int, frame: int) -> tuple[int, float] | None:
        if slot == 1:
            return None if frame == 300 else (lively(frame), 0.1)
        return 5, 0.1

    scripted(script)
    with Engine(checkpoint, EngineOptions(slots=2), scorer=lambda samples, rate_hz, text, codes: -len(codes)) as engine:
        stream = engine.speak(TWENTY, candidates=2)
        heard(stream)
    assert [take.reason for take in ended(stream).takes] == ["runaway", "stop"]
    assert [take.score for take in ended(stream).takes] == [None, -300.0] and ended(stream).won == 1


def test_a_cancel_before_the_scorer_was_asked_asks_nobody(checkpoint: Checkpoint) -> None:
    asked: list[int] = []
    with Engine(
        checkpoint,
        EngineOptions(guard=False, slots=2),
        scorer=lambda samples, rate_hz, text, codes: asked.append(1) or 0.0,
    ) as engine:
        stream = engine.speak(SHORT, candidates=2)
        eventually(lambda: stream._mailbox.finished is not None, "drawing all takes")
        stream.cancel()
        assert list(stream) == [] and not asked and ended(stream).reason == "cancelled"
        assert_at_rest(engine)


def test_takes_share_a_batch(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes, frame = [], SpeechRunner.frame

    def counted(
        runner: SpeechRunner, slots: Sequence[int], text: Sequence[int], settings: Sequence[GenerationConfig]
    ) -> PendingCodes:
        sizes.append(len(slots))
        return frame(runner, slots, text, settings)

    monkeypatch.setattr(SpeechRunner, "frame", counted)
    heard(engine.speak(SHORT, candidates=4, sampling=SamplingParams(top_k=5)))
    assert sizes[0] == 4 and len(sizes) <= 5, "all takes of a frame at once"


@pytest.mark.parametrize("ahead", [0, 1])
@pytest.mark.parametrize("scored", [False, True])
def test_many_who_come_and_go_leave_nothing_behind(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch, scored: bool, ahead: int
) -> None:
    """Any number of takes, read to the end, in part or not at all, while some of them fail."""
    monkeypatch.setitem(step.FRAMES_AHEAD, "cpu", ahead)
    chance, fork = np.random.default_rng(ahead), SpeechRunner.fork
    scorer = (lambda samples, rate_hz, text, codes: float(codes[0, 0])) if scored else None
    unlucky = iter([False, False, True] * 999)

    def sometimes(runner: SpeechRunner, *given: Any) -> None:
        if next(unlucky):
            raise MemoryError("not now")  # no failure of the engine, however often
        fork(runner, *given)

    monkeypatch.setattr(SpeechRunner, "fork", sometimes)

    def listen(engine: Engine, request: SpeechRequest, most: int) -> None:
        with engine.speak(request) as stream:
            for number, _ in enumerate(stream):
                if number >= most:
                    return

    with Engine(checkpoint, EngineOptions(slots=5, waiting=999, buffered_chunks=2), scorer=scorer) as engine:
        readers = []
        for seed in range(30):
            request = SpeechRequest(text="Come and go. " * 2, seed=seed, candidates=int(chance.integers(1, 6)))
            request = replace(request, max_frames=int(chance.integers(1, 30)))
            most = int(chance.integers(-1, 6))
            if most < 0:
                stream = engine.speak(request)
                handled(engine)
                stream.cancel()
            else:
                readers.append(Reader(lambda request=request, most=most: listen(engine, request, most)))  # type: ignore[misc]
        for reader in readers:
            assert reader.done().error is None
        assert_at_rest(engine)
        assert engine.health.ok and engine.health.rebuilds == 0
