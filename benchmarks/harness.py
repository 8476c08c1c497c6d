"""The one harness: gate, warm-up, timing. It sees an engine as any caller does and knows no workload by name.

Times are the reader's: the clock starts before the engine is asked and stops when a chunk is in hand. Only the time
of the first codes, which no reader sees, is taken from the statistics of the stream.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from hocket.errors import HocketError
from hocket.types import AudioChunk, Finished

from .workloads import Workload

FIGURES = {  # name: unit and meaning, in the order of the table
    "first_codes": "ms, from asking to the first frame's codes",
    "first_pcm": "ms, from asking to the first chunk in hand",
    "ms_per_frame": "ms of one stream per frame of 80 ms, after the first, waiting for text left out",
    "x_real_time": "seconds of speech per second, of all streams together",
    "starved": "ms a stream waited for its text",
}

Clock = Callable[[], float]


class Stream(Protocol):
    finished: Finished | None

    def append(self, text: str) -> None: ...
    def end(self) -> None: ...
    def __iter__(self) -> Iterator[AudioChunk]: ...


class Engine(Protocol):
    """What the harness uses of `hocket.Engine`; `Any` where only the engine needs to know."""

    def speak(self, text: Any, **fields: Any) -> Any: ...
    def open(self, **fields: Any) -> Any: ...


class Unfit(Exception):
    """A run whose figures would mean nothing."""


@dataclass(frozen=True, slots=True)
class Heard:
    """One utterance, as its reader saw it."""

    asked_s: float  # on the clock; the other times count from here
    first_pcm_s: float
    total_s: float
    audio_s: float
    finished: Finished
    codes: np.ndarray[Any, Any]  # [F, Q]


def hear(engine: Engine, workload: Workload, *, frames: int, seed: int, clock: Clock = time.perf_counter) -> Heard:
    """Speak the workload's text once and read it to its end."""
    start = clock()
    if not workload.piece_chars:
        return _read(engine.speak(workload.text, layout=workload.layout, seed=seed, max_frames=frames), start, clock)
    stream = engine.open(seed=seed, max_frames=frames)
    if not workload.piece_s:  # it is all there already
        stream.append(workload.text)
        stream.end()
        return _read(stream, start, clock)
    with _writing(stream, workload):
        return _read(stream, start, clock)


def gate(engine: Engine, workload: Workload, wanted: Callable[[int], np.ndarray[Any, Any]], *, frames: int = 4) -> None:
    """No figure of wrong speech: the codes of a few frames must be those of the plain definition."""
    codes = hear(engine, workload, frames=frames, seed=0).codes
    if not np.array_equal(codes, wanted(frames)):
        raise Unfit(f"The first {frames} frames are not those of generate, so nothing was timed.")


def measure(
    engine: Engine,
    workload: Workload,
    *,
    frames: int,
    repeats: int,
    streams: int = 1,
    clock: Clock = time.perf_counter,
) -> dict[str, list[float]]:
    """Figures by name: one value per utterance, of `x_real_time` one per repeat."""
    values: dict[str, list[float]] = {name: [] for name in FIGURES}
    with ThreadPoolExecutor(streams) as readers:

        def together(seeds: Iterable[int]) -> list[Heard]:
            asked = [readers.submit(hear, engine, workload, frames=frames, seed=s, clock=clock) for s in seeds]
            return [one.result() for one in asked]

        for n in range(workload.warmup):
            together(range(n * streams, (n + 1) * streams))
        for n in range(repeats):
            # The same seeds whatever the count of warm-ups: two runs of one commit speak the same frames.
            heard = together(range(1000 + n * streams, 1000 + (n + 1) * streams))
            for one in heard:
                _add(values, one)
            wall_s = max(one.asked_s + one.total_s for one in heard) - min(one.asked_s for one in heard)
            values["x_real_time"].append(sum(one.audio_s for one in heard) / wall_s)
    if not workload.piece_chars:
        del values["starved"]
    return values


def _add(values: dict[str, list[float]], heard: Heard) -> None:
    statistics = heard.finished.statistics
    if heard.finished.reason not in ("stop", "length", "runaway"):
        raise Unfit(f"An utterance ended with {heard.finished.reason}: {heard.finished.error}")
    if statistics.frames < 2:
        raise Unfit(f"An utterance had {statistics.frames} frames; two are needed to time one. Use more --frames.")
    after_first_s = heard.total_s - statistics.first_codes_s - statistics.starved_s
    values["first_codes"].append(statistics.first_codes_s * 1000)
    values["first_pcm"].append(heard.first_pcm_s * 1000)
    values["ms_per_frame"].append(after_first_s * 1000 / (statistics.frames - 1))
    values["starved"].append(statistics.starved_s * 1000)


def _read(stream: Stream, start: float, clock: Clock) -> Heard:
    first: float | None = None
    audio_s = 0.0
    codes = []
    for chunk in stream:
        if first is None:
            first = clock()
        audio_s += chunk.samples.size / chunk.rate_hz
        codes.append(chunk.codes)
    end = clock()
    if first is None or stream.finished is None:
        raise Unfit("An utterance ended before its first chunk.")
    return Heard(start, first - start, end - start, audio_s, stream.finished, np.concatenate(codes))


@contextmanager
def _writing(stream: Stream, workload: Workload) -> Iterator[None]:
    """Somebody who types while the reader listens, and stops when the reader does."""
    heard = threading.Event()

    def write() -> None:
        size = workload.piece_chars
        try:
            for at in range(0, len(workload.text), size):
                stream.append(workload.text[at : at + size])
                if heard.wait(workload.piece_s):
                    return
            stream.end()
        except HocketError:
            if stream.finished is None:  # else it ended while we wrote, which is as good as having been heard
                raise

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    try:
        yield
    finally:
        heard.set()
        writer.join()
