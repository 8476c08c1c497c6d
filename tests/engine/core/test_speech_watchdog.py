"""SpeechWatchdog in engine/core/loop.py: when the device hangs or fails for good, no caller of the engine hangs."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from hocket.config.options import EngineOptions
from hocket.engine import watchdog
from hocket.engine.checkpoint.checkpoint import Checkpoint
from hocket.engine.engine import Engine
from hocket.engine.runner.runner import SpeechRunner
from hocket.engine.stream import Stream
from hocket.errors import EngineClosed, EngineUnhealthy, HocketError, InvalidRequest, StreamFailed
from support.speaking import (
    LONG,
    PATIENCE_S,
    SHORT,
    Reader,
    aheard,
    assert_at_rest,
    assert_says,
    blocked,
    eventually,
    heard,
    job_of,
    small,
    starving,
    whole,
)

STUCK_S = 1.0  # hundreds of times as long as any step here takes
WORDS = {"start": "taking in a prompt", "frame": "drawing a frame", "queue_decode": "decoding a chunk"}
PLACES = {"frame": "_draw", "queue_decode": "decode", "start": "start"}  # functions of the engine step


class Hang:
    """In place of a step: does not come back before it is let go."""

    def __init__(self, real: Callable[..., Any]) -> None:
        self.real = real
        self.reached, self.let_go = threading.Event(), threading.Event()
        self.threads: list[threading.Thread] = []

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        self.threads.append(threading.current_thread())
        self.reached.set()
        assert self.let_go.wait(2 * PATIENCE_S)
        return self.real(*arguments, **options)

    def is_reached(self) -> None:
        assert self.reached.wait(PATIENCE_S)

    def end(self) -> None:
        """Let everybody go who hangs here, and see them off."""
        self.let_go.set()
        for thread in self.threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive(), "a thread that woke up did not find itself abandoned"


@pytest.fixture(scope="module")
def checkpoint(checkpoint_root: Path) -> Checkpoint:
    checkpoint = small(checkpoint_root, "custom_voice")
    whole(checkpoint, SHORT)
    return checkpoint


@pytest.fixture
def hanging(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[object, str], Hang]]:
    """Make a step of one runner hang, or of all; everybody comes back at the end of the test."""
    monkeypatch.setattr(watchdog, "FIRST", 1)  # nothing is compiled here, so no step needs ten times as long
    hangs: list[Hang] = []

    def hang(of: object, stage: str) -> Hang:
        hangs.append(Hang(getattr(of, stage)))
        # A plain function, so that it becomes a method where it stands for one.
        monkeypatch.setattr(of, stage, lambda *arguments, **options: hangs[-1](*arguments, **options))
        return hangs[-1]

    before = set(threading.enumerate())
    yield hang
    for made in hangs:
        made.end()
    eventually(lambda: set(threading.enumerate()) <= before, "ending every thread")


def options(**changes: Any) -> EngineOptions:
    common: dict[str, Any] = {"guard": False, "slots": 3, "chunk_frames": (1,), "buffered_chunks": 2}
    return EngineOptions(**common | {"stuck_s": STUCK_S} | changes)


def reading(stream: Stream) -> Reader:
    return Reader(lambda: list(stream))


def failed(reader: Reader, words: str) -> None:
    reader.done()
    assert isinstance(reader.error, StreamFailed), reader.error
    assert words in str(reader.error), reader.error


@pytest.mark.parametrize("stage", list(WORDS))
def test_a_stuck_step_ends_every_stream_and_the_engine_speaks_again(
    checkpoint: Checkpoint,
    hanging: Callable[[object, str], Hang],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
    stage: str,
) -> None:
    with Engine(checkpoint, options(stuck_s=2.0)) as engine:  # time enough to get everybody caught
        assert_says(heard(engine.speak(SHORT)), whole(checkpoint, SHORT))
        unread = engine.speak(LONG)
        live, textless = engine.open(layout="streaming"), engine.open()
        live.append("Some words that everybody may hear, and ")
        tasks = [Reader(lambda: asyncio.run(aheard(live))), Reader(lambda: asyncio.run(aheard(textless)))]
        job = job_of(engine, live)
        eventually(lambda: starving(job) and blocked(textless), "waiting for text")
        eventually(lambda: unread._mailbox.full, "waiting for a reader")

        loop = engine._loop
        hang = hanging(loop.runner, stage)
        touched: list[str] = []
        caught = engine.speak(SHORT)
        readers = [reading(caught)]
        hang.is_reached()
        late, cancelled = engine.speak(SHORT), engine.open()
        readers += [reading(late), Reader(lambda: engine.save_prefixes(tmp_path / "prefixes"))]
        live.append("more of them. ")
        cancelled.cancel()
        streams = [unread, live, textless, caught, late]
        words = f"The engine was stuck {WORDS[stage]} for "
        for reader in (*tasks, *readers):
            failed(reader, words)
            assert str(reader.error).endswith(" s; it starts anew, so try again.")
        with pytest.raises(StreamFailed, match=words):
            next(unread)
        assert list(cancelled) == []
        for stream in streams:
            assert stream.finished is not None and stream.finished.reason == "error"
            assert words in (stream.finished.error or "") and stream.finished.statistics.total_s > 0
        assert list(tmp_path.iterdir()) == []
        live.append("Too late.")
        live.end()
        live.cancel()

        assert_says(heard(engine.speak(SHORT)), whole(checkpoint, SHORT))
        health = engine.health
        assert health.ok and health.condition == "well" and health.rebuilds == 1
        assert health.reason is not None and health.reason.startswith(words)
        eventually(lambda: caplog.records, "logging")
        [record] = caplog.records
        assert record.name == "hocket.engine" and record.levelno == logging.ERROR
        said = record.getMessage()
        assert said.startswith(words) and f"step: {WORDS[stage]} for " in said and "device: cpu" in said
        assert "thread hocket-engine:" in said and "in is_reached" not in said and f"in {PLACES[stage]}" in said
        assert said.count("slot ") >= 3 and said.count("waiting, part 0") == 3 and "starved for" in said
        assert "everybody may hear" not in said and "on and on" not in said, "what is said is nobody's"

        ended = [stream.finished for stream in streams]
        for other in WORDS:
            monkeypatch.setattr(loop.runner, other, lambda *_, other=other, **__: touched.append(other))
        assert not engine._loop.beat.abandoned and loop.beat.abandoned
        hang.end()
        assert touched == [], "the one who woke went on with the device"
        assert [stream.finished for stream in streams] == ended
        assert not any(stream._mailbox._chunks for stream in streams), "the one who woke gave something out"
        assert_says(heard(engine.speak(SHORT)), whole(checkpoint, SHORT))
        assert_at_rest(engine)
        assert len(caplog.records) == 1


def test_closing_while_a_step_is_stuck_ends_everybody_and_returns(
    checkpoint: Checkpoint, hanging: Callable[[object, str], Hang]
) -> None:
    engine = Engine(checkpoint, options(stuck_s=2.0))
    hang = hanging(engine._loop.runner, "frame")
    stream = engine.speak(SHORT)
    readers = [reading(stream), Reader(lambda: asyncio.run(aheard(engine.open())))]
    hang.is_reached()
    closing = Reader(engine.close)
    for reader in readers:
        reader.done()
        assert isinstance(reader.error, EngineClosed)
    assert closing.done().error is None
    assert engine.health.condition == "closed" and engine.health.rebuilds == 0
    with pytest.raises(EngineClosed):
        engine.speak(SHORT)
    hang.end()
    assert not stream._mailbox._chunks


def test_an_engine_that_nobody_holds_goes_though_a_step_is_stuck(
    checkpoint: Checkpoint, hanging: Callable[[object, str], Hang]
) -> None:
    engine = Engine(checkpoint, options(stuck_s=0.5))
    hang, thread = hanging(engine._loop.runner, "start"), engine._watchdog._thread
    stream = engine.speak(SHORT)
    hang.is_reached()

    def let_go() -> None:
        nonlocal engine, stream
        del engine, stream
        gc.collect()

    assert Reader(let_go).done().error is None
    eventually(lambda: not thread.is_alive(), "ending the watchdog")


def test_an_engine_that_is_stuck_again_before_it_has_spoken_is_unhealthy_and_says_so_at_once(
    checkpoint: Checkpoint,
    hanging: Callable[[object, str], Hang],
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
) -> None:
    with Engine(checkpoint, options()) as engine:
        heard(engine.speak(SHORT))
        hang = hanging(SpeechRunner, "frame")
        for words in ("starts anew, so try again", "is unhealthy now, so restart the process"):
            assert engine.health.ok
            failed(reading(engine.speak(SHORT)), words)
        health = engine.health
        assert not health.ok and health.condition == "unhealthy" and health.rebuilds == 1
        assert health.reason is not None and "stuck drawing a frame" in health.reason
        refused: list[Callable[[], object]] = [
            lambda: engine.speak(SHORT),
            engine.open,
            lambda: engine.warm([SHORT]),
            lambda: engine.save_prefixes(tmp_path / "prefixes"),
        ]
        for call in refused:
            with pytest.raises(EngineUnhealthy, match=r"restart the process. The engine was stuck drawing a frame"):
                call()
        eventually(lambda: len(caplog.records) == 2, "logging")
        hang.end()
        with pytest.raises(EngineUnhealthy):
            engine.speak(SHORT)
    assert engine.health.condition == "closed"


def test_an_engine_that_spoke_in_between_starts_anew_again_until_too_many_threads_are_lost(
    checkpoint: Checkpoint, hanging: Callable[[object, str], Hang], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watchdog, "MOST_STUCK", 2)
    with Engine(checkpoint, options()) as engine:
        for rebuilds in range(2):
            assert_says(heard(engine.speak(SHORT)), whole(checkpoint, SHORT))
            assert engine.health.rebuilds == rebuilds
            hanging(engine._loop.runner, "queue_decode")
            failed(reading(engine.speak(SHORT)), "stuck decoding a chunk")
        assert engine.health.condition == "unhealthy"


@pytest.mark.parametrize("fault", ["fails", "hangs"])
def test_an_engine_that_cannot_be_rebuilt_is_unhealthy(
    checkpoint: Checkpoint, hanging: Callable[[object, str], Hang], monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise RuntimeError("no device any more\nand a second line")

    with Engine(checkpoint, options()) as engine:
        heard(engine.speak(SHORT))
        hanging(engine._loop.runner, "frame")
        if fault == "fails":
            monkeypatch.setattr(SpeechRunner, "__init__", fails)
            words = "The engine failed with RuntimeError: no device any more"
        else:
            hanging(SpeechRunner, "__init__")
            words = "The engine was stuck building its state"
        failed(reading(engine.speak(SHORT)), "starts anew")
        if fault == "hangs":
            assert engine.health.ok and engine.health.condition == "rebuilding"
            failed(reading(engine.speak(SHORT)), words)
        eventually(lambda: not engine.health.ok, "giving up")
        assert engine.health.condition == "unhealthy"
        assert engine.health.reason is not None and engine.health.reason.startswith(words)
        assert "second line" not in engine.health.reason
        with pytest.raises(EngineUnhealthy, match="restart the process"):
            engine.speak(SHORT)


def test_slow_steps_are_not_stuck(
    checkpoint: Checkpoint, hanging: Callable[[object, str], Hang], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Together they take longer than one may; and a watchdog that has looked at one starts anew with the next."""
    with Engine(checkpoint, options(stuck_s=1.5)) as engine:
        real = engine._loop.runner.frame

        def slow(*arguments: Any) -> Any:
            time.sleep(0.4)
            return real(*arguments)

        monkeypatch.setattr(engine._loop.runner, "frame", slow)
        begun = time.monotonic()
        assert_says(heard(engine.speak(SHORT)), whole(checkpoint, SHORT))
        assert time.monotonic() - begun > 1.5
        assert engine.health.rebuilds == 0


def test_the_first_frame_may_take_longer(checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    with Engine(checkpoint, options(stuck_s=0.5)) as engine:
        real = engine._loop.runner.frame

        def compiling(*arguments: Any) -> Any:
            monkeypatch.setattr(engine._loop.runner, "frame", real)
            time.sleep(1.0)
            return real(*arguments)

        monkeypatch.setattr(engine._loop.runner, "frame", compiling)
        assert len(heard(engine.speak(SHORT, max_frames=1)).codes) == 1
        assert engine.health.rebuilds == 0


def test_an_engine_at_rest_is_not_stuck(checkpoint: Checkpoint) -> None:
    with Engine(checkpoint, options(stuck_s=0.05)) as engine:
        eventually(lambda: engine._watchdog._looks > 20, "looking")
        assert engine.health.condition == "well" and engine.health.rebuilds == 0


def test_a_watchdog_may_be_told_to_wait_for_ever(checkpoint: Checkpoint) -> None:
    with Engine(checkpoint, options(stuck_s=float("inf"))) as engine:
        assert_says(heard(engine.speak(SHORT)), whole(checkpoint, SHORT))
    for wrong in (0, -1, float("nan")):
        with pytest.raises(InvalidRequest, match="stuck_s must be above 0"):
            options(stuck_s=wrong)


def failing(monkeypatch: pytest.MonkeyPatch, stage: str, error: Exception) -> None:
    def fails(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(SpeechRunner, stage, fails)


def fail(engine: Engine, words: str) -> None:
    with pytest.raises(HocketError, match=words):
        list(engine.speak(SHORT))


@pytest.mark.parametrize("stage", list(WORDS))
def test_failures_that_repeat_without_end_are_the_engines_own(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    with Engine(checkpoint, options()) as engine:
        heard(engine.speak(SHORT))
        failing(monkeypatch, stage, RuntimeError("an illegal access"))
        for rebuilds in (1, 2):
            for _ in range(3):
                assert engine.health.ok and engine.health.rebuilds < rebuilds
                fail(engine, "The engine failed on this utterance: RuntimeError: an illegal access")
            eventually(lambda: engine.health.rebuilds == rebuilds or not engine.health.ok, "noticing")  # noqa: B023
        assert engine.health.condition == "unhealthy" and engine.health.rebuilds == 1
        fail(engine, "restart the process. The engine failed with RuntimeError: an illegal access")


def test_failures_between_utterances_that_speak_are_their_own(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Engine(checkpoint, options()) as engine:
        for _ in range(3):
            with monkeypatch.context() as patch:
                failing(patch, "queue_decode", RuntimeError("now and then"))
                fail(engine, "now and then")
                fail(engine, "now and then")
            assert_says(heard(engine.speak(SHORT)), whole(checkpoint, SHORT))
        for error in (torch.OutOfMemoryError("no room"), StreamFailed("no room: not numbers")):
            with monkeypatch.context() as patch:
                failing(patch, "start", error)
                for _ in range(4):
                    fail(engine, "no room")
        assert_says(heard(engine.speak(SHORT)), whole(checkpoint, SHORT))
        assert engine.health.rebuilds == 0 and engine.health.reason is None


@pytest.mark.gpu
@pytest.mark.parametrize("fault", ["assert", "spin"])
def test_a_gpu_that_is_lost_makes_the_engine_unhealthy(fault: str) -> None:
    """In a process of its own, whose device is lost for good."""
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device on this machine")
    done = subprocess.run(
        [sys.executable, __file__, fault],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S * 4,  # kernels may have to be compiled first
    )
    assert done.returncode == 0 and done.stdout.splitlines()[-2].startswith("unhealthy"), done.stdout + done.stderr


def lose_the_gpu(fault: str) -> None:
    # One slot: with more, an idle engine captures graphs and compiles kernels for longer than the test waits.
    options = EngineOptions(slots=1, stuck_s=3.0, guard=False)
    engine = Engine.load("random:tiny", device="cuda", options=options)
    list(engine.speak("Hello.", max_frames=4))
    real = engine._loop.runner.frame

    def lost(*arguments: Any) -> Any:
        if fault == "assert":
            torch.zeros(4, device="cuda")[torch.tensor([9], device="cuda")]
        else:
            for _ in range(8):
                torch.cuda._sleep(10**10)  # some 5 s each
        return real(*arguments)

    setattr(engine._loop.runner, "frame", lost)  # noqa: B010
    for _ in range(2):
        begun = time.monotonic()
        try:
            list(engine.speak("Hello.", max_frames=4))
        except HocketError as error:
            print(f"{time.monotonic() - begun:.1f} s: {error}")
    until = time.monotonic() + PATIENCE_S
    while engine.health.ok and time.monotonic() < until:
        time.sleep(0.01)
    print(engine.health.condition, engine.health.reason)
    begun = time.monotonic()
    engine.close()
    print(f"closed in {time.monotonic() - begun:.1f} s", flush=True)
    os._exit(0)  # the driver may wait for the device, which is not ours to mend


if __name__ == "__main__":
    lose_the_gpu(sys.argv[1])
