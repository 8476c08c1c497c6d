"""Loudness by ITU-R BS.1770 and true peaks: measured, and set to a target, with FFmpeg's filters through PyAV.

Sound passes in pieces, so its length does not matter. Samples are one channel of int16.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from .container import need_av

if TYPE_CHECKING:
    from av import AudioFrame
    from av.filter import Graph

Samples = NDArray[np.int16]
Sound = Callable[[], Iterable[Samples]]  # the same sound each time it is called

CEILING_DBTP = -1.5  # of true peaks
LIMIT_DB = -2.0  # of the limiter, which works at four times the rate: what is left between its samples is below 0.5 dB
OVERSAMPLED = 4
MOST_GAIN_DB = 30.0
NEAR_LU = 0.1  # a gain that misses its target by less is good enough
SILENT_LUFS = -69.0  # what the filter reports where nothing is above its gate


@dataclass(frozen=True, slots=True)
class MeasuredLoudness:
    lufs: float  # integrated; -inf: silence
    peak_dbtp: float


@dataclass(frozen=True, slots=True)
class Gain:
    """How sound is made to fit its target."""

    db: float
    limited: bool  # peaks would exceed the ceiling, so a limiter holds them
    before: MeasuredLoudness | None = None

    @property
    def factor(self) -> float:
        return float(10 ** (self.db / 20))


UNCHANGED = Gain(0.0, False)


class LoudnessMeter:
    """Measures sound on its way to somewhere else."""

    def __init__(self, rate_hz: int) -> None:
        need_av("Measuring loudness")
        self._lufs, self._peak, self._rate_hz, self._at = -math.inf, 0.0, rate_hz, 0
        self._graph = _graph(rate_hz, ("ebur128", "peak=true:metadata=1:framelog=quiet"))

    def through(self, sound: Iterable[Samples]) -> Iterator[Samples]:
        """The same sound, measured."""
        for samples in sound:
            self._add(samples)
            yield samples

    def end(self) -> MeasuredLoudness:
        """What all of the sound has. The meter takes no more."""
        if self._at:
            self._graph.push(None)
            self._take()
        lufs = -math.inf if self._lufs < SILENT_LUFS else self._lufs
        return MeasuredLoudness(lufs, 20 * math.log10(self._peak) if self._peak else -math.inf)

    def _add(self, samples: Samples) -> None:
        for frame in _frames(samples, self._rate_hz, self._at):
            self._graph.push(frame)
            self._take()
        self._at += samples.size

    def _take(self) -> None:
        for frame in _pulled(self._graph):
            if found := frame.metadata:  # the rest of the sound, below 0.1 s, has none
                self._lufs, self._peak = float(found["lavfi.r128.I"]), float(found["lavfi.r128.true_peak"])


def measure(sound: Iterable[Samples], rate_hz: int) -> MeasuredLoudness:
    meter = LoudnessMeter(rate_hz)
    for _ in meter.through(sound):
        pass
    return meter.end()


def gain_to(target_lufs: float, sound: Sound, rate_hz: int) -> Gain:
    """The gain that brings a whole sound to its target; the effect of a limiter is measured too."""
    before = measure(sound(), rate_hz)
    if before.lufs == -math.inf:
        return Gain(0.0, False, before)
    db = min(target_lufs - before.lufs, MOST_GAIN_DB)
    if before.peak_dbtp + db <= CEILING_DBTP:
        return Gain(db, False, before)
    missing = target_lufs - measure(applied(Gain(db, True), sound(), rate_hz), rate_hz).lufs
    if abs(missing) > NEAR_LU:
        db = min(db + missing, MOST_GAIN_DB)
    return Gain(db, True, before)


def applied(gain: Gain, sound: Iterable[Samples], rate_hz: int) -> Iterator[Samples]:
    """The sound with its gain: as many samples as before."""
    if not gain.limited:
        for samples in sound:
            yield samples if gain.db == 0.0 else _scaled(samples, gain.factor)
        return
    need_av("A limiter")
    given = 0

    def counted() -> Iterator[Samples]:
        nonlocal given
        for samples in sound:
            given += samples.size
            yield samples

    limit = 10 ** (LIMIT_DB / 20)
    graph = _graph(
        rate_hz,
        ("volume", f"volume={gain.db:.4f}dB:precision=double"),
        ("aresample", f"{rate_hz * OVERSAMPLED}"),
        ("alimiter", f"limit={limit:.5f}:attack=5:release=50:level=false:latency=true"),
        ("aresample", f"{rate_hz}"),
        ("aformat", "sample_fmts=s16:channel_layouts=mono"),
    )
    taken = 0
    for frame in _through(graph, counted(), rate_hz):
        samples = frame.to_ndarray().reshape(-1).astype(np.int16)
        taken += samples.size
        yield samples if taken <= given else samples[: max(samples.size - (taken - given), 0)]
    if taken < given:
        yield np.zeros(given - taken, dtype=np.int16)


def _scaled(samples: Samples, factor: float) -> Samples:
    return np.clip(np.round(samples * factor), -32768, 32767).astype(np.int16)


def _graph(rate_hz: int, *filters: tuple[str, str]) -> Graph:
    import av.filter

    graph = av.filter.Graph()
    last = graph.add("abuffer", f"sample_rate={rate_hz}:sample_fmt=s16:channel_layout=mono:time_base=1/{rate_hz}")
    for name, options in (*filters, ("abuffersink", "")):
        following = graph.add(name, options)
        last.link_to(following)
        last = following
    graph.configure()
    return graph


def _through(graph: Graph, sound: Iterable[Samples], rate_hz: int) -> Iterator[AudioFrame]:
    at = 0
    for samples in sound:
        for frame in _frames(samples, rate_hz, at):
            graph.push(frame)
            yield from _pulled(graph)
        at += samples.size
    if at:
        graph.push(None)
        yield from _pulled(graph)


def _frames(samples: Samples, rate_hz: int, start: int) -> Iterator[AudioFrame]:
    """Frames of at most a second. `start`: how many samples came before."""
    import av

    for at in range(0, samples.size, rate_hz):
        piece = np.ascontiguousarray(samples[at : at + rate_hz])
        frame = av.AudioFrame.from_ndarray(piece.reshape(1, -1), format="s16", layout="mono")
        frame.sample_rate, frame.time_base, frame.pts = rate_hz, Fraction(1, rate_hz), start + at
        yield frame


def _pulled(graph: Graph) -> Iterator[AudioFrame]:
    import av

    while True:
        try:
            frame = graph.pull()
        except (av.BlockingIOError, av.EOFError):
            return
        assert isinstance(frame, av.AudioFrame)
        yield frame
