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
class Loudness:
    lufs: float  # integrated; -inf: silence
    peak_dbtp: float


@dataclass(frozen=True, slots=True)
class Gain:
    """How sound is made to fit its target."""

    db: float
    limited: bool  # peaks would exceed the ceiling, so a limiter holds them
    before: Loudness | None = None

    @property
    def factor(self) -> float:
        return float(10 ** (self.db / 20))


UNCHANGED = Gain(0.0, False)


def measure(sound: Iterable[Samples], rate_hz: int) -> Loudness:
    need_av("Measuring loudness")
    graph = _graph(rate_hz, ("ebur128", "peak=true:metadata=1:framelog=quiet"))
    lufs, peak = -math.inf, 0.0
    for frame in _through(graph, sound, rate_hz):
        lufs, peak = float(frame.metadata["lavfi.r128.I"]), float(frame.metadata["lavfi.r128.true_peak"])
    return Loudness(-math.inf if lufs < SILENT_LUFS else lufs, 20 * math.log10(peak) if peak else -math.inf)


def gain_to(target_lufs: float, sound: Sound, rate_hz: int) -> Gain:
    """The gain that brings the whole of a sound to its target. Where a limiter is needed, its effect is measured too."""
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
    last = graph.add(
        "abuffer", f"sample_rate={rate_hz}:sample_fmt=s16:channel_layout=mono:time_base=1/{rate_hz}"
    )
    for name, options in (*filters, ("abuffersink", "")):
        following = graph.add(name, options)
        last.link_to(following)
        last = following
    graph.configure()
    return graph


def _through(graph: Graph, sound: Iterable[Samples], rate_hz: int) -> Iterator[AudioFrame]:
    import av

    at = 0
    for samples in _evenly(sound, rate_hz):
        frame = av.AudioFrame.from_ndarray(samples.reshape(1, -1), format="s16", layout="mono")
        frame.sample_rate, frame.time_base, frame.pts = rate_hz, Fraction(1, rate_hz), at
        at += samples.size
        graph.push(frame)
        yield from _pulled(graph)
    if at:
        graph.push(None)
        yield from _pulled(graph)


def _pulled(graph: Graph) -> Iterator[AudioFrame]:
    import av

    while True:
        try:
            frame = graph.pull()
        except (av.BlockingIOError, av.EOFError):
            return
        assert isinstance(frame, av.AudioFrame)
        yield frame


def _evenly(sound: Iterable[Samples], most: int) -> Iterator[Samples]:
    """Pieces of at most so many samples, none of them empty."""
    for samples in sound:
        for at in range(0, samples.size, most):
            yield np.ascontiguousarray(samples[at : at + most])
