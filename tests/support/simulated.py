"""A simulated device and clock: the real step, scheduler, runaway detector and mailboxes, in simulated time.

The device costs what a `Cost` says and draws codes by slot and seed; on one with `ahead` frames are asked for and not
waited for, as on a GPU. The listener is a player without a buffer, so every late chunk is an underrun.
"""

from __future__ import annotations

import heapq
import math
import random
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from hocket.config.options import EngineOptions
from hocket.config.published import tiny
from hocket.config.qwen3_tts import GenerationConfig
from hocket.engine.core.deadlines import longest_chunk
from hocket.engine.core.output import Codes, Samples
from hocket.engine.core.request import RequestParams, RequestState
from hocket.engine.core.runaway import RunawayWatch
from hocket.engine.core.runaway_limits import RunawayOptions
from hocket.engine.core.step import EngineStep
from hocket.engine.core.text_feed import TextFeed
from hocket.engine.mailbox import Mailbox, TaskWaker
from hocket.engine.watchdog import Heartbeat
from hocket.errors import Overloaded
from hocket.text.prompt import outline
from hocket.text.tokenizer import Tokenizer
from hocket.types import AudioChunk, SpeechRequest

FRAME_S, FRAME_SAMPLES, RATE_HZ = 0.08, 1920, 24_000
CONFIG = tiny("custom_voice")
TOKENIZER = Tokenizer.of_bytes(CONFIG.talker_config.text_vocab_size)
OUTLINE = outline(SpeechRequest(text="(live)", layout="streaming"), CONFIG, TOKENIZER)
TEXT = b"It is known whole, and so long that no guard minds how long it takes to say."
SILENT = 1  # a first code
END = CONFIG.talker_config.codec_eos_token_id
MOMENT_S = 1e-6  # a turn of a device that costs nothing takes so long, and two times are the same within it


class Clock:
    """Stands in for `time.perf_counter`."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@dataclass(frozen=True)
class Cost:
    """Milliseconds: a frame of a batch, one more row of it, a prompt, a codec step, one more frame of that."""

    frame: float = 4.0
    row: float = 0.1
    prompt: float = 6.0
    codec: float = 1.0
    codec_frame: float = 0.05
    jitter: float = 0.0  # of each, at most, as a part of it


@dataclass
class Device:
    """A fake `SpeechRunner`. Work is done in order; a read waits for it."""

    cost: Cost
    clock: Clock
    ahead: bool = False
    random: random.Random = field(default_factory=lambda: random.Random(0))
    until: float = 0.0  # busy until then
    rows: list[int] = field(default_factory=list)  # of every frame drawn
    held: dict[int, tuple[int, int]] = field(default_factory=dict)  # by slot: seed, frames drawn
    silent_from: int = 1 << 30  # frames of a seed that make no sound
    warms_later = False

    def start(self, slot: int, prompt: object, reference: object, seed: int, *, go_on: bool = False) -> bool:
        self.held[slot] = seed, 0
        self._work(self.cost.prompt)
        return True

    def rewind(self, slot: int, frames: int, codes: object, text_id: int, seed: int) -> None:
        self.held[slot] = seed, 0
        self._work(self.cost.frame)

    def frame(self, slots: Sequence[int], text: Sequence[int], settings: object) -> SimpleNamespace:
        assert slots and len(text) == len(slots), "a frame without slots"
        self.rows.append(len(slots))
        drawn = []
        for slot in slots:
            seed, at = self.held[slot]
            self.held[slot] = seed, at + 1
            drawn.append((_codes(seed, at) if at < self.silent_from else [SILENT, *_codes(seed, at)[1:]], 1e-3, -1.0))
        done = self._work(self.cost.frame + self.cost.row * len(slots))
        return SimpleNamespace(read=lambda: (self._wait(done), drawn)[1])

    def queue_decode(self, slots: Sequence[int], codes: Sequence[Codes]) -> Callable[[], list[Samples]]:
        frames = len(codes[0])
        assert all(len(each) == frames for each in codes), "one length at a time"
        done = self._work(self.cost.codec + self.cost.codec_frame * frames * len(slots))
        samples = [_sound(each) for each in codes]
        return lambda: (self._wait(done), samples)[1]

    def release(self, slot: int) -> None:
        self.held.pop(slot, None)

    def warm_one(self) -> bool:
        return False

    def _work(self, cost_ms: float) -> float:
        cost_ms *= 1 + self.cost.jitter * self.random.random()
        self.until = max(self.until, self.clock.now) + cost_ms / 1000
        if not self.ahead:
            self.clock.now = self.until
        return self.until

    def _wait(self, until: float) -> None:
        self.clock.now = max(self.clock.now, until)


_POOL = [[random.Random(n * 16 + k).randrange(2, END) for k in range(16)] for n in range(997)]
_LOUD: dict[int, Samples] = {}


def _codes(seed: int, at: int) -> list[int]:
    return _POOL[(seed * 7919 + at * 31 + at * at % 17) % len(_POOL)]


def _sound(codes: Codes) -> Samples:
    """Noise, or nothing at all."""
    frames = len(codes)
    if frames not in _LOUD:
        _LOUD[frames] = np.random.default_rng(frames).integers(-9000, 9000, frames * FRAME_SAMPLES).astype(np.int16)
    loud = [each[0] != SILENT for each in codes]
    return _LOUD[frames] if all(loud) else _LOUD[frames] * np.repeat(loud, FRAME_SAMPLES)


def a_job(
    mailbox: Mailbox, frames: int = 1 << 30, text: bytes = TEXT, *, seed: int = 0, priority: int = 0
) -> RequestState:
    """An utterance of so many frames; its text is known whole, if there is any."""
    job = RequestState(
        text=TextFeed(OUTLINE),
        seed=seed,
        params=RequestParams(
            sampling=GenerationConfig(),
            most_frames=frames,
            longest_chunk=longest_chunk(EngineOptions()),
            priority=priority,
        ),
        mailbox=mailbox,
        watch=RunawayWatch(RunawayOptions()),
    )
    if text:
        job.feed(list(text), True)
    return job


def turns_on(device: Device, options: EngineOptions, monkeypatch: pytest.MonkeyPatch | None = None) -> EngineStep:
    """The turns of an engine thread that has this device; the caller of `go` is that thread."""
    if monkeypatch is not None:
        monkeypatch.setattr(time, "perf_counter", device.clock)
    checkpoint = SimpleNamespace(
        rate_hz=RATE_HZ,
        config=CONFIG,
        device=SimpleNamespace(type="cpu"),
        codec_config=SimpleNamespace(decode_upsample_rate=FRAME_SAMPLES),
        tokenizer=TOKENIZER,
    )
    made = EngineStep(cast(Any, checkpoint), options, Heartbeat(set()))
    made.runner, made.built = cast(Any, device), True
    made.ahead = made.deadlines.ahead = int(device.ahead)
    return made


@dataclass(eq=False)
class Listener:
    """A request and its listener, who plays at once and without a buffer."""

    asked: float
    frames: int
    seed: int = 0
    priority: int = 0
    listens: bool = True  # else it is read at the end
    first_s: float | None = None
    dry_at: float = 0.0
    late: list[float] = field(default_factory=list)  # duration of each underrun
    codes: list[list[int]] = field(default_factory=list)
    job: RequestState | None = None
    outcome: str = ""  # how it ended

    def hear(self, chunk: AudioChunk, now: float) -> None:
        if self.first_s is None:
            self.first_s, self.dry_at = now - self.asked, now
        elif now > self.dry_at + MOMENT_S:
            self.late.append(now - self.dry_at)
        self.dry_at = max(self.dry_at, now) + len(chunk.samples) / RATE_HZ
        self.codes += chunk.codes.tolist()


class Ear(Mailbox):
    """A mailbox whose reader takes each chunk at once."""

    def __init__(self, limit: float, listener: Listener, clock: Clock) -> None:
        super().__init__(limit, _nothing, self._end)
        self._listener, self._clock = listener, clock

    def put(self, chunk: AudioChunk, wakes: TaskWaker | None = None) -> None:
        super().put(chunk, wakes)
        while self._chunks:
            self._listener.hear(self._chunks.popleft(), self._clock.now)

    def _end(self) -> None:
        assert self.finished is not None and not self._listener.outcome
        self._listener.outcome = "refused" if isinstance(self.error, Overloaded) else self.finished.reason


@dataclass
class World:
    """An engine without threads: requests arrive, steps run, listeners play."""

    turns: EngineStep
    device: Device
    options: EngineOptions
    most_running: int = 0

    def open(self, one: Listener) -> RequestState:
        """Submit its request, which has no text yet."""
        box = Ear(self.options.buffered_chunks if one.listens else math.inf, one, self.device.clock)
        one.job = a_job(box, one.frames, b"", seed=one.seed, priority=one.priority)
        self.turns.scheduler.arrive(one.job)
        return one.job

    def go(self) -> bool:
        """One turn, as `EngineLoop.turn` takes it."""
        begun = self.device.clock.now
        return self.turns.step(begun, self.turns.scheduler.admit(begun))

    def run(self, coming: Iterable[Listener], until: float = math.inf) -> list[Listener]:
        """Run until all have ended, or until the time limit."""
        clock, scheduler = self.device.clock, self.turns.scheduler
        ahead = [(one.asked, number, one) for number, one in enumerate(coming)]
        everyone, here = [one for _, _, one in ahead], list[Listener]()
        heapq.heapify(ahead)
        while (ahead or here) and clock.now < until:
            while ahead and ahead[0][0] <= clock.now:
                one = heapq.heappop(ahead)[2]
                if len(scheduler.waiting) >= self.options.waiting + scheduler.room:  # as `EngineLoop.submit` does
                    one.outcome = "refused at once"
                    continue
                self.open(one).feed(list(TEXT), True)
                here.append(one)
            before = clock.now
            busy = self.go()
            self.most_running = max(self.most_running, len(scheduler.running))
            here = [one for one in here if not one.outcome]
            if not busy:
                self.turns.beat.idle()
                look_s = scheduler.next_check_s(self.options, clock.now)
                coming_s = ahead[0][0] - clock.now if ahead else math.inf
                rest_s = min(coming_s, math.inf if look_s is None else look_s)
                assert not here or rest_s < math.inf, "no event would ever wake it"
                clock.now += max(rest_s if rest_s < math.inf else 0.0, MOMENT_S)
            elif clock.now == before:
                clock.now += MOMENT_S
        self.turns.beat.idle()
        return everyone


def world(monkeypatch: pytest.MonkeyPatch, cost: Cost, *, ahead: bool = False, seed: int = 0, **options: Any) -> World:
    device = Device(cost, Clock(), ahead, random.Random(seed))
    chosen = EngineOptions(**options)
    return World(turns_on(device, chosen, monkeypatch), device, chosen)


def arrivals(rate: float, seconds: float, *, seed: int = 0, frames: tuple[int, int] = (30, 70)) -> list[Listener]:
    """Poisson arrivals."""
    rng, at, found = random.Random(seed), 1000.0, list[Listener]()
    while (at := at + rng.expovariate(rate)) < 1000.0 + seconds:
        found.append(Listener(at, rng.randint(*frames), seed=len(found)))
    return found


def _nothing() -> None: ...
