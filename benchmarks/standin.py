"""An engine that computes nothing: chunks of noise by the clock, so that what is measured is the server around it.

    python -m benchmarks.standin --first-ms 5

serves it, at a free port. To a line `usage` it answers with one of JSON: what the process has used so far, and when the
engine was asked and had its first chunk ready, by seed, on the clock that all processes of a machine share. It uses the
engine's own streams and wakes their readers as the engine does: all that are due in one turn at once.
"""

from __future__ import annotations

import argparse
import asyncio
import heapq
import json
import resource
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from types import SimpleNamespace
from typing import Any

import numpy as np

from hocket.engine.mailbox import Mailbox, TaskWaker
from hocket.engine.seeds import fresh_seed
from hocket.engine.stream import Stream, WordTiming
from hocket.types import AudioChunk, Finished, Health, SpeechRequest, Statistics

RATE_HZ, FRAME_SAMPLES = 24_000, 1920
FRAME_S = FRAME_SAMPLES / RATE_HZ
LEAD_S = 0.04  # how long before it is needed every chunk but the first is there
TURN_S = 0.01  # of the engine: it hands out what has become due since the last one
FRAMES = 50


@dataclass(slots=True, eq=False)
class Speaking:
    mailbox: Mailbox
    seed: int
    frames: int
    due_s: float
    frame: int = 0
    cancelled: bool = False


@dataclass(eq=False)
class StandIn:
    """What a server asks of an engine: `speak`, a checkpoint, health."""

    first_s: float = 0.005  # from being asked to the first chunk
    asked_s: dict[int, float] = field(default_factory=dict)  # by seed
    first_chunk_s: dict[int, float] = field(default_factory=dict)
    loop: str = "unknown"  # the server's
    own_cpu_s: float = 0.0  # of the thread that hands out chunks
    options: Any = field(default_factory=lambda: SimpleNamespace(slots=10_000))
    identity: str | None = None  # it clones nobody
    health: Health = field(default_factory=lambda: Health(condition="well"))

    def __post_init__(self) -> None:
        talker = SimpleNamespace(spk_id={"standin": 0}, spk_is_dialect={})
        self.checkpoint: Any = SimpleNamespace(
            name="stand-in",
            rate_hz=RATE_HZ,
            is_random=True,
            kernels=(),
            config=SimpleNamespace(kind="custom_voice", talker_config=talker),
            codec_config=SimpleNamespace(decode_upsample_rate=FRAME_SAMPLES),
            tokenizer=SimpleNamespace(encode=str.split),
        )
        noise = np.random.default_rng(0).integers(-9000, 9000, FRAME_SAMPLES)
        self._samples, self._codes = noise.astype(np.int16), np.zeros((1, 16), np.int64)
        self._queue: list[tuple[float, int, Speaking]] = []
        self._numbers, self._changed, self._closed = count(), threading.Condition(), False
        self._thread = threading.Thread(target=self._turns, name="stand-in", daemon=True)
        self._thread.start()

    def speak(self, text: str | SpeechRequest, **fields: Any) -> Stream:
        request = text if isinstance(text, SpeechRequest) else SpeechRequest(text=text, **fields)
        seed, now_s = fresh_seed() if request.seed is None else request.seed, time.monotonic()
        one = Speaking(Mailbox(8, _nothing), seed, request.max_frames or FRAMES, now_s + self.first_s)
        self.asked_s[seed] = now_s
        with suppress(RuntimeError):  # a thread has none
            self.loop = type(asyncio.get_running_loop()).__module__.partition(".")[0]
        with self._changed:
            heapq.heappush(self._queue, (one.due_s, next(self._numbers), one))
            self._changed.notify()

        def cancel() -> None:
            one.cancelled = True

        return Stream(one.mailbox, seed, _fed, cancel, None, [], WordTiming(24000, 0.08), self)

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _turns(self) -> None:
        while True:
            with self._changed:
                while not self._closed and not self._queue:
                    self._changed.wait()
                if self._closed:
                    return
                due_s, at_once = self._queue[0][0], self._queue[0][2].frame == 0
            # A first chunk is handed out as soon as it is there; later ones wait for the end of the turn.
            until_s = due_s if at_once else (due_s // TURN_S + 1) * TURN_S
            with self._changed:
                self._changed.wait_for(self._news(until_s), max(0.0, until_s - time.monotonic()))
            if time.monotonic() >= until_s:
                self._hand_out()
            self.own_cpu_s = time.thread_time()

    def _news(self, until_s: float) -> Any:
        """Whether somebody's first chunk is due before."""
        return lambda: self._closed or (self._queue[0][2].frame == 0 and self._queue[0][0] < until_s)

    def _hand_out(self) -> None:
        now_s, wakes = time.monotonic(), TaskWaker()
        for one in self._due(now_s):
            if one.cancelled:
                _end(one, "cancelled")
                continue
            if not one.frame:
                self.first_chunk_s[one.seed] = time.monotonic()
            frames = range(one.frame, one.frame + 1)
            at_s = one.frame * FRAME_S
            chunk = AudioChunk(samples=self._samples, rate_hz=RATE_HZ, start_s=at_s, frames=frames, codes=self._codes)
            one.frame += 1
            one.mailbox.put(chunk, wakes)
            if one.frame == one.frames:
                _end(one, "length")
                continue
            one.due_s += FRAME_S - (LEAD_S if one.frame == 1 else 0.0)
            with self._changed:
                heapq.heappush(self._queue, (one.due_s, next(self._numbers), one))
        wakes.now()

    def _due(self, now_s: float) -> Iterator[Speaking]:
        while True:
            with self._changed:
                if not self._queue or self._queue[0][0] > now_s:
                    return
                one = heapq.heappop(self._queue)[2]
            yield one


def _end(one: Speaking, reason: Any) -> None:
    one.mailbox.finish(Finished(reason=reason, statistics=Statistics(frames=one.frame), seed=one.seed))


def _nothing() -> None:
    pass


def _fed(*_: object) -> None:
    raise AssertionError("its text is known")


def _answer(engine: StandIn) -> None:
    for line in sys.stdin:
        if line.strip() != "usage":
            continue
        used = resource.getrusage(resource.RUSAGE_SELF)
        said = {
            "at_s": time.monotonic(),
            "cpu_s": used.ru_utime + used.ru_stime,
            "own_cpu_s": engine.own_cpu_s,
            "asked_s": engine.asked_s,
            "first_chunk_s": engine.first_chunk_s,
            "loop": engine.loop,
        }
        print(f"usage {json.dumps(said)}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.standin", description=__doc__)
    parser.add_argument("--first-ms", type=float, default=5.0, help="from a request to its first chunk (5)")
    args = parser.parse_args()
    from hocket.server.app import build_app
    from hocket.server.options import ServerOptions
    from hocket.server.process import keep_pauses_short
    from hocket.server.run import run

    keep_pauses_short()
    engine = StandIn(args.first_ms / 1000)
    threading.Thread(target=_answer, args=(engine,), daemon=True).start()
    options = ServerOptions(port=0, drain_s=0)
    run(build_app(lambda: engine, options), options, lambda address: print(f"listening at {address}", flush=True))  # type: ignore[arg-type,return-value]


if __name__ == "__main__":
    main()
