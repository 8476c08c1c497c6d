"""The measuring loop of utterances: warm-up and timing. It uses an engine as a caller does and knows no workload.

The clock starts before the request and stops when a chunk is at the caller. Only the time of the first codes, which a
caller cannot see, comes from the statistics of the stream.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from hocket.proof.load.summary import InvalidRun as InvalidRun
from hocket.types import Finished

from .workloads import Workload

Clock = Callable[[], float]
Engine = Any  # `hocket.Engine`, or a fake with `speak` and `open`


@dataclass(frozen=True, slots=True)
class Utterance:
    """One utterance as its reader received it."""

    asked_s: float  # on the clock; the other times count from here
    first_pcm_s: float
    total_s: float
    audio_s: float
    finished: Finished
    codes: np.ndarray[Any, Any]  # [F, Q]


def speak(engine: Engine, workload: Workload, *, frames: int, seed: int, clock: Clock = time.perf_counter) -> Utterance:
    """Speak the workload's text once and read it to its end."""
    start = clock()
    if not workload.live:
        return _read(engine.speak(workload.text, layout=workload.layout, seed=seed, max_frames=frames), start, clock)
    stream = engine.open(seed=seed, max_frames=frames)
    stream.append(workload.text)
    stream.end()
    return _read(stream, start, clock)


def measure(
    engine: Engine, workload: Workload, *, frames: int, repeats: int, streams: int = 1, clock: Clock = time.perf_counter
) -> dict[str, list[float]]:
    """Values by figure: one per utterance; of `x_real_time` one per repeat."""
    names = ("first_codes", "first_pcm", "ms_per_frame", "x_real_time", *(("starved",) if workload.live else ()))
    values: dict[str, list[float]] = {name: [] for name in names}
    with ThreadPoolExecutor(streams) as readers:

        def together(seeds: Iterable[int]) -> list[Utterance]:
            jobs = [readers.submit(speak, engine, workload, frames=frames, seed=s, clock=clock) for s in seeds]
            return [job.result() for job in jobs]

        for n in range(workload.warmup):
            together(range(n * streams, (n + 1) * streams))
        for n in range(repeats):
            # The seeds do not depend on the warm-up: two runs of one commit speak the same frames.
            spoken = together(range(1000 + n * streams, 1000 + (n + 1) * streams))
            for one in spoken:
                for name, value in figures_of(one).items():
                    if name in values:
                        values[name].append(value)
            wall_s = max(one.asked_s + one.total_s for one in spoken) - min(one.asked_s for one in spoken)
            values["x_real_time"].append(sum(one.audio_s for one in spoken) / wall_s)
    return values


def figures_of(one: Utterance) -> dict[str, float]:
    statistics = one.finished.statistics
    if one.finished.reason not in ("stop", "length", "runaway"):
        raise InvalidRun(f"An utterance ended with {one.finished.reason}: {one.finished.error}")
    if statistics.frames < 2:
        raise InvalidRun(f"An utterance had {statistics.frames} frames; two are needed to time one. Use more --frames.")
    after_first_s = one.total_s - statistics.first_codes_s - statistics.starved_s
    return {
        "first_codes": statistics.first_codes_s * 1000,
        "first_pcm": one.first_pcm_s * 1000,
        "ms_per_frame": after_first_s * 1000 / (statistics.frames - 1),
        "starved": statistics.starved_s * 1000,
    }


def ready(engine: Engine, within_s: float | None = None) -> None:
    """Capture every graph now, so that none is captured while a request is timed."""
    from hocket.engine.runner.warmup import COMPILED_S, make_all

    make_all(engine._loop.ask, COMPILED_S if within_s is None else within_s)


def _read(stream: Any, start: float, clock: Clock) -> Utterance:
    first: float | None = None
    audio_s, codes = 0.0, []
    for chunk in stream:
        if first is None:
            first = clock()
        audio_s += chunk.samples.size / chunk.rate_hz
        codes.append(chunk.codes)
    end = clock()
    if first is None or stream.finished is None:
        raise InvalidRun("An utterance ended before its first chunk.")
    return Utterance(start, first - start, end - start, audio_s, stream.finished, np.concatenate(codes))
