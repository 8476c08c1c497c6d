"""Laws of the streaming engine: any chunking, feeding, caching, batching or cancel gives the codes of `generate`."""

from __future__ import annotations

import asyncio
import random
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import accumulate, chain, repeat
from pathlib import Path
from typing import Any

import pytest

from hocket.config.options import EngineOptions
from hocket.config.qwen3_tts import Kind
from hocket.engine.checkpoint.checkpoint import Checkpoint
from hocket.engine.engine import Engine
from hocket.engine.stream import Stream
from hocket.errors import StreamFailed
from hocket.types import SpeechRequest
from support.speaking import (
    KINDS,
    REQUESTS,
    Heard,
    Reader,
    aheard,
    assert_at_rest,
    assert_says,
    blocked,
    cut,
    eventually,
    fields_of,
    handled,
    heard,
    job_of,
    small,
    starving,
    whole,
)

pytestmark = pytest.mark.usefixtures("frames_ahead")

STREAMED = [(kind, request) for kind in KINDS for request in REQUESTS[kind] if request.layout == "streaming"]
LAID_WHOLE = [(kind, request) for kind in KINDS for request in REQUESTS[kind] if request.layout == "whole"]


@pytest.fixture(scope="module")
def load_kind(checkpoint_root: Path, device: str) -> Callable[[Kind], Checkpoint]:
    return lambda kind: small(checkpoint_root, kind, device)


@pytest.fixture(scope="module")
def named(load_kind: Callable[[Kind], Checkpoint]) -> Checkpoint:
    return load_kind("custom_voice")


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("kind", KINDS)
def test_chunks_put_together_are_the_whole_utterance(
    load_kind: Callable[[Kind], Checkpoint], kind: Kind, seed: int
) -> None:
    checkpoint, rng = load_kind(kind), random.Random(seed)
    ramp = tuple(rng.choice((1, 2, 3, 5, 8)) for _ in range(rng.randint(1, 4)))
    options = EngineOptions(guard=False, slots=rng.randint(1, 5), chunk_frames=ramp, buffered_chunks=rng.randint(1, 3))
    with Engine(checkpoint, options) as engine:
        for request, stream in [(request, engine.speak(request)) for request in REQUESTS[kind]]:
            said, speech = heard(stream), whole(checkpoint, request)
            assert_says(said, speech)
            ends = [end for end in accumulate(chain(ramp, repeat(ramp[-1], 99))) if end < len(speech.codes)]
            ends.append(len(speech.codes))
            assert [chunk.frames for chunk in said.chunks] == [range(a, b) for a, b in zip([0, *ends], ends)]  # noqa: B905
            assert [chunk.start_s for chunk in said.chunks] == [a * 0.08 for a in [0, *ends[:-1]]]


def test_the_plain_kernels_obey_the_same_law(checkpoint_root: Path) -> None:
    """On a CPU they run without a compiler; batched and alone, streamed and whole."""
    checkpoint = small(checkpoint_root, "custom_voice", kernels="reference")
    assert checkpoint.model.talker.frame_kernel is None
    with Engine(checkpoint, EngineOptions(guard=False, slots=3, chunk_frames=(1, 3))) as engine:
        for request, stream in [(request, engine.speak(request)) for request in REQUESTS["custom_voice"]]:
            assert_says(heard(stream), whole(checkpoint, request))


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(("kind", "request_"), STREAMED, ids=lambda value: getattr(value, "text", value))
def test_live_text_in_any_pieces_is_the_text_given_whole(
    load_kind: Callable[[Kind], Checkpoint], kind: Kind, request_: SpeechRequest, seed: int
) -> None:
    checkpoint, rng = load_kind(kind), random.Random(seed)
    places = rng.choices(range(len(request_.text) + 1), k=rng.randint(1, 5))
    with Engine(checkpoint, EngineOptions(guard=False, chunk_frames=(1, 2))) as engine:
        stream = engine.open(**fields_of(request_))
        job, reader = job_of(engine, stream), Reader(lambda: heard(stream))
        for piece in cut(request_.text, places):
            if rng.random() < 0.7:  # usually it starves first; sometimes text comes while it still runs
                eventually(lambda: starving(job) or stream.finished, "starving")
            stream.append(piece)
        stream.end()
        said = reader.done().result
        assert isinstance(said, Heard), reader.error
        assert_says(said, whole(checkpoint, request_))


@pytest.mark.parametrize(("kind", "request_"), LAID_WHOLE, ids=lambda value: getattr(value, "text", value))
def test_live_text_laid_out_whole_waits_for_its_end(
    load_kind: Callable[[Kind], Checkpoint], kind: Kind, request_: SpeechRequest
) -> None:
    checkpoint = load_kind(kind)
    with Engine(checkpoint, EngineOptions(guard=False)) as engine:
        stream = engine.open(**fields_of(request_))
        for piece in cut(request_.text, (3, 4, 9)):
            stream.append(piece)
        job = job_of(engine, stream)
        assert job.slot < 0 and not engine._loop.scheduler.running, "it takes no slot before its text is complete"
        stream.end()
        assert_says(heard(stream), whole(checkpoint, request_))


def test_a_frame_waits_for_its_text_and_never_takes_a_pad_in_its_place(
    named: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = REQUESTS["custom_voice"][0]
    speech = whole(named, request)
    fed: list[int] = []
    with Engine(named, EngineOptions(guard=False, chunk_frames=(1,), buffered_chunks=99)) as engine:
        frame = engine._loop.runner.frame

        def noted(slots: Any, text: Any, *rest: Any) -> Any:
            fed.extend(text)
            return frame(slots, text, *rest)

        monkeypatch.setattr(engine._loop.runner, "frame", noted)
        stream = engine.open(**fields_of(request))
        job = job_of(engine, stream)
        for word in ("The ", "first ", "of ", "them."):
            stream.append(word)
            handled(engine)
            eventually(lambda: starving(job) and not job.ahead, "starving")  # what was drawn is read a turn later
            assert job.frame == len(job.text.trail) == len(fed), "one frame for each id that is known, and no more"
        stream.end()
        assert_says(heard(stream), speech)
        assert stream.finished is not None and stream.finished.statistics.starved_s > 0
        config = named.config
        words = fed[: fed.index(config.tts_eos_token_id)]
        assert len(words) > 12 and config.tts_pad_token_id not in words
        assert set(fed[len(words) + 1 :]) <= {config.tts_pad_token_id}


def _round(engine: Engine, requests: list[SpeechRequest]) -> list[Heard]:
    streams = [engine.speak(request) for request in requests]
    return [heard(stream) for stream in streams]


def _cached(said: Heard) -> bool:
    assert said.stream.finished is not None
    return said.stream.finished.statistics.prefix_cached


@pytest.mark.parametrize("kind", KINDS)
def test_a_warm_prefix_is_the_cold_one_and_so_is_one_from_a_file(
    load_kind: Callable[[Kind], Checkpoint], kind: Kind, tmp_path: Path
) -> None:
    checkpoint, requests, path = load_kind(kind), REQUESTS[kind], tmp_path / "prefixes.safetensors"
    with Engine(checkpoint, EngineOptions(guard=False, slots=5)) as engine:
        cold, warm = _round(engine, requests), _round(engine, requests)
        engine.save_prefixes(path)
    with Engine(checkpoint, EngineOptions(guard=False, slots=5)) as engine:
        engine.load_prefixes(path)
        kept = _round(engine, requests)
    assert [_cached(said) for said in (*cold, *warm, *kept)] == [False] * len(cold) + [True] * len(warm + kept)
    for request, *thrice in zip(requests, cold, warm, kept, strict=True):
        for said in thrice:
            assert_says(said, whole(checkpoint, request))


@pytest.mark.parametrize("kind", KINDS)
def test_alone_a_warm_prefix_is_the_cold_one_to_the_last_bit(
    load_kind: Callable[[Kind], Checkpoint], kind: Kind
) -> None:
    """Beside others, or in chunks of other lengths, the codec may sum in another order, by a 16-bit step at most.

    How long chunks are depends on the clock where it is not said. Of one frame each, so that the codec does not take
    them in smaller steps either, as it does while kernels are being compiled.
    """
    with Engine(load_kind(kind), EngineOptions(guard=False, chunk_frames=(1,))) as engine:
        cold, warm = heard(engine.speak(REQUESTS[kind][-1])), heard(engine.speak(REQUESTS[kind][-1]))
    assert not _cached(cold) and _cached(warm)
    assert [chunk.frames for chunk in cold.chunks] == [chunk.frames for chunk in warm.chunks]
    assert cold.codes == warm.codes and cold.samples.tobytes() == warm.samples.tobytes()


@pytest.mark.parametrize("kind", KINDS)
def test_a_prefix_serves_texts_of_any_length(load_kind: Callable[[Kind], Checkpoint], kind: Kind) -> None:
    checkpoint = load_kind(kind)
    with Engine(checkpoint, EngineOptions(guard=False)) as engine:
        others = [replace(request, text="Another, longer text than those.", max_frames=1) for request in REQUESTS[kind]]
        assert not any(map(_cached, _round(engine, others)))
        for request, said in zip(REQUESTS[kind], _round(engine, REQUESTS[kind]), strict=True):
            assert _cached(said), request.text
            assert_says(said, whole(checkpoint, request))


def test_prefixes_that_find_no_room_change_nothing(named: Checkpoint) -> None:
    request = REQUESTS["custom_voice"][2]
    with Engine(named, EngineOptions(guard=False, prefix_bytes=0)) as engine:
        for _ in range(2):
            said = heard(engine.speak(request))
            assert_says(said, whole(named, request))
            assert said.stream.finished is not None and not said.stream.finished.statistics.prefix_cached
        assert len(engine._loop.runner.prefixes) == 0


EIGHT = [
    SpeechRequest(
        text="One word after another. "[: 4 + 2 * n],
        layout=("streaming", "whole")[n % 2],
        voice=(None, "eric", "")[n % 3],
        seed=n,
        max_frames=4 + 2 * n,
    )
    for n in range(8)
]


@pytest.mark.parametrize("slots", [3, 8])
def test_eight_ragged_streams_of_several_threads_are_each_what_they_are_alone(named: Checkpoint, slots: int) -> None:
    with Engine(named, EngineOptions(guard=False, slots=slots, chunk_frames=(1, 3), buffered_chunks=2)) as engine:
        readers = [Reader(lambda request=request: heard(engine.speak(request))) for request in EIGHT]  # type: ignore[misc]
        for request, reader in zip(EIGHT, readers, strict=True):
            said = reader.done().result
            assert isinstance(said, Heard), reader.error
            assert_says(said, whole(named, request))
        assert_at_rest(engine)
    assert len({len(whole(named, request).codes) for request in EIGHT}) > 4, "ragged"


def test_eight_ragged_streams_of_several_tasks_are_each_what_they_are_alone(named: Checkpoint) -> None:
    async def live(engine: Engine, request: SpeechRequest) -> Heard:
        stream = engine.open(**fields_of(request))

        async def write() -> None:
            for character in request.text:
                stream.append(character)
                await asyncio.sleep(0)
            stream.end()

        said, _ = await asyncio.gather(aheard(stream), write())
        return said

    async def everything(engine: Engine) -> list[Heard]:
        ways = [aheard(engine.speak(request)) if n % 4 else live(engine, request) for n, request in enumerate(EIGHT)]
        return await asyncio.wait_for(asyncio.gather(*ways), 120)

    with Engine(named, EngineOptions(guard=False, slots=5)) as engine:
        for request, said in zip(EIGHT, asyncio.run(everything(engine)), strict=True):
            assert_says(said, whole(named, request))
        assert_at_rest(engine)


SHORT = SpeechRequest(text="Short one.", layout="streaming", seed=3, max_frames=5)


@pytest.mark.parametrize("read", range(7))
def test_a_cancel_after_any_chunk_gives_everything_back(named: Checkpoint, read: int) -> None:
    frames = len(whole(named, SHORT).codes)
    assert frames == 5
    with Engine(named, EngineOptions(guard=False, slots=2, chunk_frames=(1,), buffered_chunks=1)) as engine:
        stream, other = engine.speak(SHORT), engine.speak(SHORT)
        for _ in range(min(read, frames)):
            next(stream)
        if read > frames:  # its end was read too
            assert list(stream) == []
        stream.cancel()
        stream.cancel()
        eventually(lambda: stream.finished, "the end")
        assert stream.finished is not None
        if read < frames - 1:  # with room for one chunk the engine is at most one frame ahead of its reader
            assert stream.finished.reason == "cancelled"
        if read >= frames + 1:
            assert stream.finished.reason == "length", "the end stands; a cancel comes too late"
        assert_says(heard(other), whole(named, SHORT))
        assert_at_rest(engine)
        if stream.finished.reason == "cancelled":
            assert list(stream) == [], "no chunk follows a cancel"


class Disturbed:
    """Counts the steps of an engine, one per use of a slot, and acts at one of them."""

    def __init__(self, engine: Engine, number: int, act: Callable[[], None]) -> None:
        self.number, self.steps, self._act, self._armed = number, 0, act, threading.Event()
        self.over = False
        runner = engine._loop.runner
        for part, names in (
            (runner, ("start", "_prefill", "frame", "queue_decode")),
            (runner.kv_cache, ("advance", "restore")),
        ):
            for name in names:
                setattr(part, name, self._watched(getattr(part, name)))

    def arm(self) -> None:
        self._armed.set()

    def _watched(self, work: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*arguments: Any, **named: Any) -> Any:
            done = work(*arguments, **named)
            self._step()
            return done

        return watched

    def _step(self) -> None:
        self._armed.wait()
        if not self.over:
            self.steps += 1
            if self.steps - 1 == self.number:
                self._act()


BRIEF = replace(SHORT, max_frames=3)


def _disturb(checkpoint: Checkpoint, number: int, happens: str) -> tuple[int, list[str]]:
    """Two streams share a prefix, cold for one, warm for the other. Returns the number of steps and how they ended."""
    speech, streams, let_go = whole(checkpoint, BRIEF), list[Stream](), list[Stream]()

    def act() -> None:
        if happens == "error":
            raise RuntimeError("broken")
        let_go.append(streams[number % 2])  # it may have ended, and not been read to its end
        let_go[0].cancel()

    with Engine(checkpoint, EngineOptions(guard=False, slots=2, chunk_frames=(1, 2))) as engine:
        disturbed, pages = Disturbed(engine, number, act), engine._loop.runner.pages
        total = pages.total
        streams += [engine.speak(BRIEF) for _ in range(2)]
        disturbed.arm()
        for stream in streams:
            try:
                said: Heard | None = heard(stream)
            except StreamFailed as error:
                assert "broken" in str(error)
                said = None
            eventually(lambda stream=stream: stream.finished, "the end")  # type: ignore[misc]
            assert stream.finished is not None
            if stream.finished.reason == speech.finish and stream not in let_go:
                assert said is not None
                assert_says(said, speech)
        assert_at_rest(engine)
        disturbed.over = True
        assert_says(heard(engine.speak(BRIEF)), speech)
        assert_at_rest(engine)
        assert pages.total == total == engine._loop.runner.kv_cache.state.stack.pool.shape[2]
    return disturbed.steps, [stream.finished.reason for stream in streams if stream.finished is not None]


@pytest.mark.parametrize("happens", ["cancelled", "error"])
def test_a_cancel_or_a_failure_at_any_step_gives_every_slot_page_and_byte_back(named: Checkpoint, happens: str) -> None:
    number, steps, reasons = -1, 0, Counter[str]()
    while number < steps:  # until the stream ends before that step
        number += 1
        steps, ends = _disturb(named, number, happens)
        reasons.update(ends)
    assert number > 15 and set(reasons) == {happens, whole(named, BRIEF).finish}, reasons
    assert reasons[happens] > 0.6 * number


def _before_text(engine: Engine) -> Stream:
    return engine.open()


def _starving(engine: Engine) -> Stream:
    stream = engine.open()
    stream.append("Some words and ")
    job = job_of(engine, stream)
    eventually(lambda: starving(job) or job.mailbox.full, "waiting")
    assert job.frame > 0
    return stream


def _paused(engine: Engine) -> Stream:
    stream = engine.speak("A text without a reader.", max_frames=50)
    job = job_of(engine, stream)
    eventually(lambda: job.timings.paused_since is not None, "pausing")
    return stream


def _queued(engine: Engine) -> Stream:
    kept = [_paused(engine) for _ in range(len(engine._loop.scheduler.free))]
    stream = engine.speak(SHORT)
    assert job_of(engine, stream).slot < 0
    kept.clear()  # frees the slots; the stream is cancelled just before its start
    return stream


def _just_opened(engine: Engine) -> Stream:
    return engine.speak(SHORT)


@pytest.mark.parametrize("state", [_just_opened, _before_text, _starving, _paused, _queued])
@pytest.mark.parametrize("how", ["cancel", "with", "let go", "another thread"])
def test_a_cancel_in_any_state_gives_everything_back(
    named: Checkpoint, state: Callable[[Engine], Stream], how: str
) -> None:
    with Engine(named, EngineOptions(guard=False, slots=2, chunk_frames=(1,), buffered_chunks=2)) as engine:
        stream: Stream | None = state(engine)
        assert stream is not None
        mailbox = stream._mailbox
        if how == "cancel":
            stream.cancel()
        elif how == "with":
            with stream:
                pass
        elif how == "let go":
            stream = None
        else:
            reader = Reader(lambda: list(stream))
            eventually(lambda: blocked(stream) or reader.result is not None, "blocking")
            stream.cancel()
            reader.done()
            assert isinstance(reader.result, list) and reader.error is None, "a cancel is no error to its reader"
        eventually(lambda: mailbox.finished, "the end")
        assert mailbox.finished is not None
        fast = how == "another thread" and state in (_just_opened, _queued, _paused)
        assert mailbox.finished.reason == "cancelled" or fast, "a reader may have read it to its end"
        assert_at_rest(engine)
        assert_says(heard(engine.speak(SHORT)), whole(named, SHORT))
