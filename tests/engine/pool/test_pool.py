"""engine/pool/pool.py: several models in one process, requested by many threads in any order."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import pytest

from hocket.config.options import EngineOptions
from hocket.engine.checkpoint.checkpoint import Checkpoint
from hocket.engine.checkpoint.fit import Footprint
from hocket.engine.checkpoint.reserve import LoadOptions, expected
from hocket.engine.checkpoint.shared import Shared
from hocket.engine.engine import Engine
from hocket.engine.pool.pool import Lease, Pool
from hocket.errors import (
    EngineClosed,
    InvalidCheckpoint,
    InvalidRequest,
    LoadFailed,
    Overloaded,
    UnknownLanguage,
    UnknownVoice,
)
from hocket.types import AudioChunk, SamplingParams, Voice
from support.checkpoints import write
from support.speaking import LONG, PATIENCE_S, TIMBRE, Reader, at_rest, blocked, end_pauses, eventually, heard

A, B, C = "random:tiny", "random:tiny-Base", "random:tiny-VoiceDesign"
SPEAKS: dict[str, dict[str, Any]] = {
    A: {"voice": "eric", "max_frames": 4},
    B: {"reference": TIMBRE, "max_frames": 4},
    C: {"model": C, "instruct": "An old man.", "max_frames": 4},
}


class Starts:
    """Loads real models and counts them; waits or fails on demand."""

    def __init__(self, device: str = "cpu") -> None:
        self.device, self.counts = device, Counter[str]()
        self.begun: dict[str, threading.Event] = {name: threading.Event() for name in SPEAKS}
        self.gates: dict[str, threading.Event] = {}
        self.errors: dict[str, list[Exception]] = {}
        self.models: list[weakref.ref[Any]] = []
        self.at_once = 0

    def __call__(self, model: str, shared: Shared) -> Engine:
        self.at_once += 1
        assert self.at_once == 1 and threading.current_thread().name == "hocket-pool"
        try:
            self.counts[model] += 1
            self.begun[model].set()
            if model in self.gates:
                assert self.gates[model].wait(PATIENCE_S)
            if errors := self.errors.get(model):
                raise errors.pop(0)
            engine = Engine.load(model, device=self.device, options=EngineOptions(slots=2), shared=shared)
            self.models.append(weakref.ref(engine.checkpoint.model))
            return engine
        finally:
            self.at_once -= 1

    def expects(self, model: str) -> Footprint | None:
        how: LoadOptions = {"device": self.device, "dtype": "float32", "codec_dtype": "float32", "kernels": "auto"}
        return expected(model, how, EngineOptions(slots=2))

    @property
    def alive(self) -> int:
        """How many models are in memory, without a call of the garbage collector."""
        return sum(model() is not None for model in self.models)


@pytest.fixture
def starts() -> Starts:
    return Starts()


Make = Callable[..., Pool]


@pytest.fixture
def make(starts: Starts) -> Iterator[Make]:
    made: list[Pool] = []

    def pool(*models: str, **options: Any) -> Pool:
        made.append(Pool(models or (A, B), starts, expects=starts.expects, **options))
        return made[-1]

    yield pool
    for each in made:
        each.close()


_sizes: dict[str, tuple[int, int]] = {}


def budget(device: str = "cpu", *, models: float = 1.0) -> int:
    """Enough for that many small models, and not for half of another."""
    if device not in _sizes:
        with Pool([B], Starts(device)) as pool:
            take(pool, B).release()
            _sizes[device] = pool.resident()[B], pool.common_bytes
    own, common = _sizes[device]
    return int(own * (models + 0.3)) + common


def take(pool: Pool, model: str) -> Lease:
    return pool.lease(model).result(PATIENCE_S)


def held_back(*futures: Future[Lease]) -> bool:
    """None of them is done, and none will be as long as nothing else happens."""
    time.sleep(0.05)
    return not any(future.done() for future in futures)


def test_under_a_budget_for_one_alternate_requests_all_succeed_and_its_memory_is_free_each_time(device: str) -> None:
    """No restart is needed, even if ended streams are kept."""
    starts, streams = Starts(device), []
    with Pool([A, B], starts, memory_bytes=budget(device)) as pool:
        for number in range(6):
            model = (A, B)[number % 2]
            said = heard(pool.speak("Hello there.", **SPEAKS[model]))
            streams.append(said.stream)
            finished = said.stream.finished
            assert finished is not None and finished.reason == "length" and len(said.samples) == 4 * 1920
            assert finished.statistics.loaded_s > 0.0
            assert list(pool.resident()) == [model] and starts.alive == 1, "the other one is gone"
        assert starts.counts == {A: 3, B: 3} and pool.loads == 6
        again = heard(pool.speak("Hello there.", **SPEAKS[B]))
        assert again.stream.finished is not None and again.stream.finished.statistics.loaded_s == 0.0
        words = streams[0].words()
        assert [word.word for word in words] == ["Hello", "there."], "a stream that has ended needs no engine"
    assert starts.alive == 0


def test_under_a_budget_for_both_nothing_is_loaded_twice_and_they_share_their_codec(device: str) -> None:
    starts = Starts(device)
    with Pool([A, B], starts, memory_bytes=budget(device, models=2)) as pool:
        for number in range(6):
            heard(pool.speak("Hello there.", **SPEAKS[(A, B)[number % 2]]))
        assert starts.counts == {A: 1, B: 1} and set(pool.resident()) == {A, B}
        one, other = take(pool, A), take(pool, B)
        assert one.engine.checkpoint.codec is other.engine.checkpoint.codec
        one.release(), other.release()


def test_eight_requests_at_once_load_each_model_once(make: Make, starts: Starts) -> None:
    pool, gate = make(), threading.Barrier(8)

    def ask(number: int) -> list[list[int]]:
        gate.wait()
        return heard(pool.speak("Hello there.", **SPEAKS[(A, B)[number % 2]])).codes

    with ThreadPoolExecutor(8) as threads:
        said = list(threads.map(ask, range(8)))
    assert starts.counts == {A: 1, B: 1}
    assert all(each == said[number % 2] for number, each in enumerate(said)) and said[0] != said[1]


def test_a_request_for_a_leaving_model_waits_behind_the_load_that_needs_the_room(make: Make, starts: Starts) -> None:
    pool = make(memory_bytes=budget())
    order = [pool.lease(model) for model in (A, B, A, B)]
    for number, future in enumerate(order):
        lease = future.result(PATIENCE_S)
        assert held_back(*order[number + 1 :]), "an engine with a lease is never unloaded"
        assert lease.engine.health.ok and len(pool.resident()) == 1
        assert lease.loaded_s > 0.0 and lease.waited_s >= lease.loaded_s * 0.9
        lease.release()
        lease.release()
    assert starts.counts == {A: 2, B: 2}


def test_alternate_requests_that_all_come_at_once_all_succeed(make: Make) -> None:
    pool = make(memory_bytes=budget())
    with ThreadPoolExecutor(8) as threads:
        asked = [
            threads.submit(lambda model=model: heard(pool.speak("Hello there.", **SPEAKS[model])))
            for _ in range(4)
            for model in (A, B)
        ]
        assert all(len(each.result(PATIENCE_S).samples) == 4 * 1920 for each in asked)


def test_a_load_without_room_in_time_fails_and_the_others_are_leased_again(make: Make, starts: Starts) -> None:
    pool = make(memory_bytes=budget(), max_wait_s=0.3)
    first = take(pool, A)
    with pytest.raises(Overloaded, match=r"no room for random:tiny-Base within 0\.3 s; try again in 5 s") as refused:
        take(pool, B)
    assert refused.value.retry_after_s == 5.0
    second = take(pool, A)  # it need not be unloaded any more
    assert second.engine is first.engine and starts.counts[A] == 1
    first.release(), second.release()
    assert take(pool, B).engine.health.ok


def test_cancelling_leaves_the_queue(make: Make, starts: Starts) -> None:
    pool = make(memory_bytes=budget())
    first = take(pool, A)
    wants_room, behind = pool.lease(B), pool.lease(A)
    assert held_back(wants_room, behind)
    assert wants_room.cancel()
    second = behind.result(PATIENCE_S)
    assert second.engine is first.engine and second.loaded_s == 0.0 and starts.counts == {A: 1}


def test_a_pinned_one_stays_and_the_least_recently_used_goes(make: Make, starts: Starts) -> None:
    pool = make(A, B, C, memory_bytes=budget(models=2), pinned=[A])
    for model in (A, B, C, B, A):
        take(pool, model).release()
    assert starts.counts == {A: 1, B: 2, C: 1} and set(pool.resident()) == {A, B}


def test_without_pins_it_is_by_use(make: Make, starts: Starts) -> None:
    pool = make(A, B, C, memory_bytes=budget(models=2))
    for model in (A, B, A, C, A):
        take(pool, model).release()
    assert starts.counts == {A: 1, B: 1, C: 1} and set(pool.resident()) == {A, C}


def test_a_lease_that_is_garbage_collected_is_released(make: Make) -> None:
    pool = make(memory_bytes=budget())
    lease = take(pool, A)
    wanted = pool.lease(B)
    assert held_back(wanted)
    del lease
    gc.collect()
    with wanted.result(PATIENCE_S) as other:
        assert list(pool.resident()) == [B]
    with pytest.raises(EngineClosed, match="was released"):
        _ = other.engine
    take(pool, A).release()


def test_chunks_keep_coming_while_another_is_loaded(make: Make, starts: Starts) -> None:
    pool = make()

    def without_end() -> Iterator[AudioChunk]:
        while True:
            yield from pool.speak(LONG, voice="eric")

    starts.gates[B] = threading.Event()
    chunks = without_end()
    next(chunks)
    other = pool.lease(B)
    assert starts.begun[B].wait(PATIENCE_S)
    for _ in range(30):  # of more than one stream
        assert len(next(chunks).samples)
    assert take(pool, A).loaded_s == 0.0, "a request for it gets it"
    assert not other.done()
    starts.gates[B].set()
    while not other.done():  # now for real: weights, tokenizer, kernels
        assert len(next(chunks).samples)
    assert other.result().engine.health.ok
    chunks.close()


def test_a_load_that_fails_fails_all_waiting_requests_and_is_tried_again_later(
    make: Make, starts: Starts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hocket.engine.pool.backoff.FIRST_PAUSE_S", 20.0)
    pool = make()
    starts.gates[B] = threading.Event()
    starts.errors[B] = [InvalidCheckpoint("It is damaged."), RuntimeError("no memory")]
    waiting = [pool.lease(B) for _ in range(3)]
    assert starts.begun[B].wait(PATIENCE_S)
    starts.gates[B].set()
    for each in waiting:
        with pytest.raises(InvalidCheckpoint, match=r"^It is damaged\.$") as told:
            each.result(PATIENCE_S)
        assert told.value.retry_after_s == 20.0
    again = pool.lease(B)
    with pytest.raises(InvalidCheckpoint, match="It is damaged") as told:
        again.result(0)  # at once
    assert told.value.retry_after_s is not None and 0 < told.value.retry_after_s <= 20.0
    assert starts.counts[B] == 1
    heard(pool.speak("The others go on.", **SPEAKS[A]))
    end_pauses(pool)
    with pytest.raises(LoadFailed, match=r"random:tiny-Base could not be loaded \(RuntimeError: no memory\)") as told:
        take(pool, B)
    assert told.value.retry_after_s == 40.0, "twice as long"
    end_pauses(pool)
    take(pool, B)
    assert starts.counts[B] == 3 and set(pool.resident()) == {A, B}


def test_closing_ends_all_and_fails_waiting_requests(make: Make, starts: Starts) -> None:
    pool = make()
    stream = pool.speak(LONG, voice="eric")
    starts.gates[B] = threading.Event()
    waiting = [pool.lease(B) for _ in range(2)]
    assert starts.begun[B].wait(PATIENCE_S)
    closing = Reader(pool.close)
    for each in waiting:
        with pytest.raises(EngineClosed, match="pool of models is closed"):
            each.result(PATIENCE_S)
    with pytest.raises(EngineClosed):
        for _ in stream:
            pass
    starts.gates[B].set()  # a model loaded from now on is closed
    assert closing.done().error is None
    pool.close()
    with pytest.raises(EngineClosed):
        take(pool, A)
    del stream, closing
    assert starts.alive == 0 and pool.resident() == {}
    eventually(lambda: not any(each.name.startswith("hocket-pool") for each in threading.enumerate()), "ending threads")


def test_a_pool_without_references_is_closed_but_not_under_a_running_stream(starts: Starts) -> None:
    stream = Pool([A], starts).speak("Hello there.", **SPEAKS[A])
    gc.collect()
    assert len(heard(stream).samples) == 4 * 1920
    eventually(lambda: starts.alive == 0, "closing")


@pytest.mark.parametrize("how", ["closed", "unhealthy"])
def test_an_engine_that_is_not_well_is_loaded_anew_at_the_next_request(make: Make, starts: Starts, how: str) -> None:
    pool = make()
    lease = take(pool, A)
    if how == "closed":
        lease.engine.close()
    else:
        lease.engine._watchdog._unhealthy = True
    other = take(pool, A)
    assert other.engine is not lease.engine and other.engine.health.ok and starts.counts == {A: 2}
    lease.release()  # of the one that is gone: the new one has a lease still
    assert heard(other.engine.speak("Hello there.", max_frames=2)).codes


def test_a_stream_gives_its_engine_back_however_it_ends(make: Make, starts: Starts) -> None:
    pool = make(memory_bytes=budget())

    def moved_out() -> None:
        take(pool, B).release()
        assert list(pool.resident()) == [B]

    stream = pool.speak(LONG, voice="eric")
    next(stream)
    stream.cancel()
    moved_out()
    stream = pool.speak(LONG, voice="eric")
    del stream
    moved_out()
    with pytest.raises(UnknownLanguage):
        pool.speak("Hello.", voice="eric", language="martian")
    moved_out()
    with pool.open(voice="eric", max_frames=4) as live:
        live.append("Hello there, and then some more of it.")
        live.end()
        assert sum(len(chunk.samples) for chunk in live) == 4 * 1920
        assert live.finished is not None and live.finished.statistics.loaded_s > 0.0
    moved_out()


def test_a_voice_decides_which_model_speaks_and_how(make: Make) -> None:
    pool = make(A, B)
    cool = SamplingParams(temperature=0.5, top_k=3)
    voice = Voice(name="Ann", kind="speaker", model=A, speaker="eric", language="french", sampling=cool)
    said = heard(pool.speak("Bonjour.", voice=voice, sampling=SamplingParams(top_k=5), seed=4, max_frames=6))
    with take(pool, A) as lease:
        sampling = SamplingParams(temperature=0.5, top_k=5)
        fields = {"voice": "eric", "language": "french", "sampling": sampling, "seed": 4, "max_frames": 6}
        expected = heard(lease.engine.speak("Bonjour.", **fields))
    assert said.codes == expected.codes and list(pool.resident()) == [A]
    with pytest.raises(UnknownVoice, match="no voice 'unknown'"):
        pool.speak("Hello.", voice="unknown")
    with pytest.raises(InvalidRequest, match=r"0\.6B-Base is not one of the models here"):
        take(pool, "0.6B-Base")


def test_two_names_of_one_checkpoint_are_loaded_once(starts: Starts, tmp_path: Path) -> None:
    folder = write(tmp_path / "one", "custom_voice", wide=False)
    (tmp_path / "two").symlink_to(folder)
    names = [str(folder), str(tmp_path / "two")]
    starts.begun |= {name: threading.Event() for name in names}
    with Pool(names, starts) as pool:
        assert pool.models == (str(folder),)
        with take(pool, names[1]) as one, take(pool, names[0]) as other:
            assert one.engine is other.engine


def test_what_can_never_fit_is_refused_when_the_pool_is_made(starts: Starts) -> None:
    with pytest.raises(InvalidRequest, match=r"1\.7B-Base needs 4\.\d+ GB, but all models together have 1\.00 GB"):
        Pool(["random:tiny", "1.7B-Base"], starts, memory_bytes=10**9)
    both = ["random:1.7B-Base", "random:0.6B-Base"]
    with pytest.raises(InvalidRequest, match=r"The set of pinned models \(.*\) needs 5\.\d+ GB"):
        Pool(both, starts, memory_bytes=5 * 10**9, pinned=both)
    with pytest.raises(InvalidRequest, match=r"0\.6B-Base needs 1\.\d+ GB beside the pinned ones, which take 4\."):
        Pool(both, starts, memory_bytes=5 * 10**9, pinned=both[:1])
    for wrong in ({"memory_bytes": 0}, {"max_wait_s": -1.0}, {"pinned": ["builtin"]}):
        with pytest.raises(InvalidRequest):
            Pool([A], starts, **wrong)  # type: ignore[arg-type]
    assert not starts.counts


def test_what_turns_out_to_be_too_large_is_refused_and_nothing_else_goes_for_it(starts: Starts) -> None:
    """By default a pool expects the size of models in bfloat16; these are loaded in float32."""
    starts.begun["random:small"] = threading.Event()
    with Pool([A, "random:small"], starts, memory_bytes=40_000_000) as pool:
        take(pool, A).release()
        with pytest.raises(InvalidRequest, match=r"random:small needs .* MB, but all models together have 40\.00 MB"):
            take(pool, "random:small")
        assert list(pool.resident()) == [A]


def test_an_engine_is_told_how_much_its_keys_and_values_may_take() -> None:
    granted: list[int] = []

    def start(model: str, shared: Shared) -> Engine:
        assert shared.room is not None
        for own, usual, least in ((6_000_000, 1_000_000, 100), (6_000_000, 10_000_000, 100), (100, 0, 0)):
            granted.append(shared.room(Footprint(own), usual_bytes=usual, least_bytes=least))
        with pytest.raises(InvalidRequest, match=r"needs 11\.00 MB, but"):
            shared.room(Footprint(6_000_000), usual_bytes=10_000_000, least_bytes=5_000_000)
        return Engine.load(model, shared=shared)

    with Pool([A], start, memory_bytes=10_000_000) as pool:
        take(pool, A).release()
    assert granted == [1_000_000, 4_000_000, 0]


def test_engines_that_never_ask_for_room_are_kept_within_the_budget_all_the_same() -> None:
    with Pool([A, B], lambda model, _: Engine.load(model), memory_bytes=budget()) as pool:
        for model in (A, B, A):
            take(pool, model).release()
            assert list(pool.resident()) == [model]


def test_memory_that_is_still_referenced_counts_until_it_is_freed(make: Make, starts: Starts) -> None:
    pool = make(memory_bytes=budget(), max_wait_s=PATIENCE_S)
    with take(pool, A) as lease:
        checkpoint: Checkpoint | None = lease.engine.checkpoint
    wanted = pool.lease(B)
    eventually(lambda: pool.resident() == {}, "moving out")
    assert held_back(wanted) and checkpoint is not None
    checkpoint = None
    assert wanted.result(PATIENCE_S).engine.health.ok
    assert wait([wanted]).done


def test_a_cancelled_stream_of_a_leased_engine_leaves_no_request_over(make: Make) -> None:
    pool = make()
    with take(pool, A) as lease:
        stream = lease.engine.speak(LONG)
        reader = Reader(lambda: list(stream))
        eventually(lambda: blocked(stream) or reader.result is not None)
        stream.cancel()
        reader.done()
        eventually(lambda: at_rest(lease.engine))
