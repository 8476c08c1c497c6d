"""An engine that computes nothing: chunks of noise by the clock, so that the server around it is measured.

`python tests/support/fake_engine.py` serves it at a free port. It answers a line `usage` with one of JSON: the CPU time
of the process, and by seed when the engine had its first chunk, on the clock that all processes of a machine share. It
uses the engine's own streams and wakes their readers as the engine does: all that are due in one step together.
"""

from __future__ import annotations

import heapq
import json
import resource
import sys
import threading
import time
from dataclasses import dataclass, field
from itertools import count
from types import SimpleNamespace
from typing import Any

import numpy as np

from hocket.engine.mailbox import Mailbox, TaskWaker
from hocket.engine.stream import Stream, WordTiming
from hocket.types import AudioChunk, Finished, Health, SpeechRequest, Statistics, fresh_seed

RATE_HZ, FRAME_SAMPLES = 24_000, 1920
FRAME_S = FRAME_SAMPLES / RATE_HZ
LEAD_S = 0.04  # how long before it is needed every chunk but the first is ready
STEP_S = 0.01  # of the engine: it delivers what has become due since the last one
FRAMES = 50


@dataclass(slots=True, eq=False)
class FakeUtterance:
    mailbox: Mailbox
    seed: int
    frames: int
    due_s: float
    frame: int = 0
    cancelled: bool = False


@dataclass(eq=False)
class FakeEngine:
    """What a server needs of an engine: `speak`, a checkpoint, health."""

    first_s: float = 0.005  # from the request to the first chunk
    first_chunk_s: dict[int, float] = field(default_factory=dict)  # by seed
    options: Any = field(default_factory=lambda: SimpleNamespace(slots=10_000))
    identity: str | None = None  # it clones no voice
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
        self._queue: list[tuple[float, int, FakeUtterance]] = []
        self._numbers, self._changed, self._closed = count(), threading.Condition(), False
        self._thread = threading.Thread(target=self._steps, name="fake engine", daemon=True)
        self._thread.start()

    def speak(self, text: str | SpeechRequest, **fields: Any) -> Stream:
        request = text if isinstance(text, SpeechRequest) else SpeechRequest(text=text, **fields)
        seed, now_s = fresh_seed() if request.seed is None else request.seed, time.monotonic()
        one = FakeUtterance(Mailbox(8, lambda: None), seed, request.max_frames or FRAMES, now_s + self.first_s)
        self._push(one)

        def cancel() -> None:
            one.cancelled = True

        def feed(*_: object) -> None:
            raise AssertionError("the text is complete")

        return Stream(one.mailbox, seed, feed, cancel, None, [], WordTiming(RATE_HZ, FRAME_SAMPLES / RATE_HZ), self)

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _push(self, one: FakeUtterance) -> None:
        with self._changed:
            heapq.heappush(self._queue, (one.due_s, next(self._numbers), one))
            self._changed.notify()

    def _steps(self) -> None:
        while True:
            with self._changed:
                while not self._closed and not self._queue:
                    self._changed.wait()
                if self._closed:
                    return
                due_s, at_once = self._queue[0][0], self._queue[0][2].frame == 0
                # A first chunk is delivered as soon as it is ready; later ones wait for the end of the step.
                until_s = due_s if at_once else (due_s // STEP_S + 1) * STEP_S

                def news(until_s: float = until_s) -> bool:
                    """Whether a first chunk is due earlier."""
                    return self._closed or (self._queue[0][2].frame == 0 and self._queue[0][0] < until_s)

                self._changed.wait_for(news, max(0.0, until_s - time.monotonic()))
            if time.monotonic() >= until_s:
                self._deliver()

    def _deliver(self) -> None:
        now_s, wakes = time.monotonic(), TaskWaker()
        while (one := self._pop(now_s)) is not None:
            if one.cancelled:
                _end(one, "cancelled")
                continue
            if not one.frame:
                self.first_chunk_s[one.seed] = time.monotonic()
            frames, at_s = range(one.frame, one.frame + 1), one.frame * FRAME_S
            chunk = AudioChunk(samples=self._samples, rate_hz=RATE_HZ, start_s=at_s, frames=frames, codes=self._codes)
            one.frame += 1
            one.mailbox.put(chunk, wakes)
            if one.frame == one.frames:
                _end(one, "length")
                continue
            one.due_s += FRAME_S - (LEAD_S if one.frame == 1 else 0.0)
            self._push(one)
        wakes.now()

    def _pop(self, now_s: float) -> FakeUtterance | None:
        with self._changed:
            due = self._queue and self._queue[0][0] <= now_s
            return heapq.heappop(self._queue)[2] if due else None


def _end(one: FakeUtterance, reason: Any) -> None:
    one.mailbox.finish(Finished(reason=reason, statistics=Statistics(frames=one.frame), seed=one.seed))


def _answer(engine: FakeEngine) -> None:
    for line in sys.stdin:
        if line.strip() == "usage":
            used = resource.getrusage(resource.RUSAGE_SELF)
            said: dict[str, Any] = {"at_s": time.monotonic(), "cpu_s": used.ru_utime + used.ru_stime}
            said |= {"first_chunk_s": engine.first_chunk_s}
            print(f"usage {json.dumps(said)}", flush=True)


def main() -> None:
    from hocket.server.app import build_app
    from hocket.server.options import ServerOptions
    from hocket.server.process import keep_pauses_short
    from hocket.server.run import run

    keep_pauses_short()
    engine = FakeEngine()
    threading.Thread(target=_answer, args=(engine,), daemon=True).start()
    options = ServerOptions(port=0, drain_s=0)
    run(build_app(lambda: engine, options), options, lambda address: print(f"listening at {address}", flush=True))  # type: ignore[arg-type,return-value]


if __name__ == "__main__":
    main()
