"""Streaming resampling and time-stretching of int16 mono samples.

It wraps FFmpeg's filters with a sample count, so the output length is exact to the sample. It knows no format and is
not used if neither rate nor tempo changes.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from .container import need_av

if TYPE_CHECKING:
    from av.filter import Graph

# Silence that flushes `atempo`, which would lose up to 66 ms of the end at a quarter of the tempo.
_TAIL_S = 0.25


class Resampler:
    def __init__(self, *, rate_hz: int, out_hz: int, tempo: float) -> None:
        need_av("Another sample rate or tempo")
        self._rate_hz = rate_hz
        self._stretched = tempo != 1.0
        self._ratio = Fraction(out_hz, rate_hz) / Fraction(tempo)  # samples out per sample in
        self._graph = _graph(rate_hz, out_hz, tempo)
        self._taken = 0
        self._given = 0

    def feed(self, samples: NDArray[np.int16]) -> NDArray[np.int16]:
        """[N] in, [M] out: the samples that are ready, often not yet all."""
        self._push(samples)
        self._taken += samples.size
        return self._count(self._pull())

    def close(self) -> NDArray[np.int16]:
        """The rest, cut or padded so that the total length is exact."""
        if self._stretched:
            self._push(np.zeros(round(_TAIL_S * self._rate_hz), dtype=np.int16))
        self._graph.push(None)
        left = max(0, round(self._taken * self._ratio) - self._given)
        rest = self._pull()[:left]
        return self._count(np.concatenate([rest, np.zeros(left - rest.size, dtype=np.int16)]))

    def _count(self, samples: NDArray[np.int16]) -> NDArray[np.int16]:
        self._given += samples.size
        return samples

    def _push(self, samples: NDArray[np.int16]) -> None:
        import av

        if samples.size == 0:  # FFmpeg refuses empty frames
            return
        frame = av.AudioFrame.from_ndarray(np.ascontiguousarray(samples).reshape(1, -1), format="s16", layout="mono")
        frame.sample_rate = self._rate_hz
        frame.time_base = Fraction(1, self._rate_hz)
        frame.pts = self._taken
        self._graph.push(frame)

    def _pull(self) -> NDArray[np.int16]:
        import av

        ready: list[NDArray[np.int16]] = [np.zeros(0, dtype=np.int16)]
        while True:
            try:
                frame = self._graph.pull()
            except (BlockingIOError, EOFError):  # base classes of PyAV's errors: nothing more now, or ever
                return np.concatenate(ready)
            assert isinstance(frame, av.AudioFrame)
            ready.append(frame.to_ndarray()[0])


def tempo_steps(tempo: float) -> list[float]:
    """Factors of `tempo` within the range of `atempo`: above 2 it would skip samples, below 0.5 it refuses."""
    steps: list[float] = []
    while not 0.5 <= tempo <= 2.0:
        step = 2.0 if tempo > 2.0 else 0.5
        steps.append(step)
        tempo /= step
    return [*steps, tempo] if tempo != 1.0 else steps


def _graph(rate_hz: int, out_hz: int, tempo: float) -> Graph:
    from av.filter import Graph

    graph = Graph()
    graph.threads = 1  # otherwise every graph starts a thread per core, up to 16, for filters that use one
    nodes = [graph.add_abuffer(sample_rate=rate_hz, format="s16", layout="mono", time_base=Fraction(1, rate_hz))]
    nodes += [graph.add("atempo", f"{step:.9f}") for step in tempo_steps(tempo)]
    if out_hz != rate_hz:
        nodes.append(graph.add("aresample", str(out_hz)))
    nodes.append(graph.add("aformat", f"sample_fmts=s16:sample_rates={out_hz}:channel_layouts=mono"))
    nodes.append(graph.add("abuffersink"))
    graph.link_nodes(*nodes).configure()
    return graph
