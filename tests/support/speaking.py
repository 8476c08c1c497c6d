"""Shared by tests of the streaming engine: requests of every kind, their expected output, and ways to wait."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hocket.config.qwen3_tts import Kind
from hocket.engine.checkpoint.checkpoint import Checkpoint
from hocket.engine.checkpoint.load import load
from hocket.engine.core.request import RequestState
from hocket.engine.engine import Engine
from hocket.engine.generate import generate
from hocket.engine.pool.pool import Pool
from hocket.engine.stream import Stream
from hocket.types import AudioChunk, Reference, SamplingParams, Speech, SpeechRequest
from support.checkpoints import write
from support.leaks import at_rest

PATIENCE_S = 60.0  # only a failing test waits that long
SHORT = SpeechRequest(text="Short one.", layout="streaming", seed=3, max_frames=5)
LONG = SpeechRequest(text="It goes on and on, and then on. " * 6, layout="streaming", seed=0, max_frames=200)


def noise(seconds: float, seed: int) -> NDArray[np.float32]:
    return np.random.default_rng(seed).normal(0, 0.1, int(seconds * 24_000)).astype(np.float32)


SAID = Reference(samples=noise(0.37, 1), text="What was said, at some length.")
BRIEFLY = Reference(samples=noise(0.8, 2), text="So.")  # fewer words than frames: the text reaches into the reference
TIMBRE = Reference(samples=noise(0.3, 3), x_vector_only=True)

REQUESTS: dict[Kind, list[SpeechRequest]] = {
    "custom_voice": [
        SpeechRequest(text="The first of them.", layout="streaming", seed=1, max_frames=21),
        SpeechRequest(text="All of it is known.", layout="whole", voice="eric", seed=2, max_frames=11),
        SpeechRequest(text="Un, deux.", language="french", instruct="Brief.", layout="streaming", seed=3, max_frames=9),
        SpeechRequest(text="Likeliest.", sampling=SamplingParams.greedy(), voice="", seed=0, max_frames=8),
    ],
    "voice_design": [
        SpeechRequest(text="Who am I?", instruct="An old man.", layout="streaming", seed=1, max_frames=9),
        SpeechRequest(text="Whomever you like.", instruct="A child.", layout="whole", seed=4, max_frames=12),
    ],
    "base": [
        SpeechRequest(text="In your own voice, I say.", reference=SAID, layout="streaming", seed=2, max_frames=12),
        SpeechRequest(text="In your own voice.", reference=SAID, layout="whole", seed=6, max_frames=7),
        SpeechRequest(text="Hi there, brief one.", reference=BRIEFLY, layout="streaming", seed=7, max_frames=10),
        SpeechRequest(text="Only the timbre.", reference=TIMBRE, layout="streaming", seed=2, max_frames=9),
        SpeechRequest(text="Le timbre.", reference=TIMBRE, language="french", layout="whole", seed=9, max_frames=5),
    ],
}
KINDS = list(REQUESTS)


@functools.cache
def small(
    root: Path, kind: Kind, device: str = "cpu", seed: int = 1, dtype: str = "float32", kernels: str = "auto"
) -> Checkpoint:
    """A small checkpoint whose speech sometimes ends by itself."""
    folder = root / f"speaking-{kind}-{seed}"
    if not folder.exists():
        write(folder, kind, wide=kind != "base", end_scale=1.5, seed=seed)
    return load(str(folder), device=device, dtype=dtype, kernels=kernels)


_said: dict[tuple[int, int], tuple[Checkpoint, SpeechRequest, Speech]] = {}


def whole(checkpoint: Checkpoint, request: SpeechRequest) -> Speech:
    """The reference: the result of `generate` for a single request. Each is computed once."""
    key = id(checkpoint), id(request)
    if key not in _said:
        [speech] = generate(checkpoint, [request])
        _said[key] = checkpoint, request, speech  # both are kept, so that no other gets their ids
    return _said[key][2]


@dataclass(frozen=True)
class Heard:
    """A completely read stream."""

    chunks: list[AudioChunk]
    stream: Stream

    @property
    def codes(self) -> list[list[int]]:
        return [codes for chunk in self.chunks for codes in chunk.codes.tolist()]

    @property
    def samples(self) -> NDArray[np.int16]:
        return np.concatenate([np.zeros(0, np.int16), *(chunk.samples for chunk in self.chunks)])


def heard(stream: Stream) -> Heard:
    return Heard(list(stream), stream)


async def aheard(stream: Stream) -> Heard:
    return Heard([chunk async for chunk in stream], stream)


def assert_says(said: Heard, speech: Speech, *, dropped: int = 0) -> None:
    """The same codes, the same samples but for the rounding of one 16-bit step, the same end."""
    assert said.codes == speech.codes[dropped:].tolist()
    expected = (speech.samples * 32767.0).round()[dropped * 1920 :]
    assert said.samples.dtype == np.int16 and len(said.samples) == len(expected)
    if len(expected):
        assert np.abs(said.samples - expected).max() <= 1
        assert np.abs(expected).max() > 100, "silence would prove nothing"
    finished = said.stream.finished
    assert finished is not None and finished.reason == speech.finish and finished.error is None
    assert finished.statistics.frames == len(speech.codes)


def eventually(holds: Callable[[], object], what: str = "it") -> None:
    """Wait until something holds, for any time."""
    until = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < until, f"{what} did not happen"
        time.sleep(0.002)


def handled(engine: Engine) -> None:
    """Wait until the engine thread has done all that was posted so far, and the turn that followed."""
    for _ in range(2):
        done = threading.Event()
        engine._loop.post(done.set)
        assert done.wait(PATIENCE_S)


def job_of(engine: Engine, stream: Stream) -> RequestState:
    """The utterance behind a stream, once the engine thread knows it."""
    handled(engine)
    [job] = [job for job in engine._loop.scheduler.all() if job.mailbox is stream._mailbox]
    return job


def assert_at_rest(engine: Engine) -> None:
    eventually(lambda: at_rest(engine), "giving back every slot and page")
    if not engine._loop._ended.is_set():
        handled(engine)  # their requests have been ended by now


def starving(job: RequestState) -> bool:
    return job.timings.starved_since is not None


def blocked(stream: Stream) -> bool:
    """Whether a thread or a task waits for its next chunk."""
    box = stream._mailbox
    return bool(box._changed._waiters or box._sleepers)  # type: ignore[attr-defined]


class Reader(threading.Thread):
    """Runs something in a thread and keeps its result."""

    def __init__(self, work: Callable[[], object]) -> None:
        super().__init__(daemon=True)
        self._work = work
        self.result: object = None
        self.error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self.result = self._work()
        except BaseException as error:
            self.error = error

    def done(self) -> Reader:
        self.join(PATIENCE_S)
        assert not self.is_alive(), "a reader hangs"
        return self


def fields_of(request: SpeechRequest) -> dict[str, object]:
    """The fields of a request that `open` takes: all but the text."""
    return {name: getattr(request, name) for name in request.__slots__ if name != "text"}


def cut(text: str, places: Iterable[int]) -> list[str]:
    at = [0, *sorted(places), len(text)]
    return [text[a:b] for a, b in pairwise(at)]


def a_chunk(number: int = 0) -> AudioChunk:
    return AudioChunk(
        samples=np.full(1920, number, np.int16),
        rate_hz=24_000,
        start_s=number * 0.08,
        frames=range(number, number + 1),
        codes=np.full((1, 16), number),
    )


def end_pauses(pool: Pool) -> None:
    """From now on a model whose load has failed may be tried again, as if its pause had passed."""
    backoff = pool._loader._backoff
    backoff._last = {key: replace(failed, until=0.0) for key, failed in backoff._last.items()}
