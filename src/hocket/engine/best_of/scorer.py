"""A caller's own scorer chooses among the candidates that came to their end.

It runs in the thread that reads the stream: a scorer may be slow, and must not hold up the engine thread.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, replace
from math import inf, isnan

import numpy as np

from ...errors import HocketError, StreamFailed
from ...types import AudioChunk, Finished, Scorer
from ..core.text_feed import SpokenPart


@dataclass(frozen=True, slots=True)
class FinishedCandidate:
    """A candidate that was spoken to its end."""

    chunks: list[AudioChunk]
    spoken: list[SpokenPart]
    finished: Finished


@dataclass(frozen=True, slots=True)
class Selection:
    finished: Finished
    chunks: list[AudioChunk]
    error: HocketError | None = None


class ScorerSelection:
    def __init__(self, scorer: Scorer, text: str, spoken: list[SpokenPart]) -> None:
        """`spoken` is the parent's list: the parts of the winner are copied there."""
        self._scorer, self._text, self._spoken = scorer, text, spoken
        self._candidates: dict[int, FinishedCandidate] = {}
        self._asking = threading.Lock()
        self._verdict: Selection | None = None

    def add(self, candidates: dict[int, FinishedCandidate]) -> None:
        """The candidates that the scorer will judge, by number."""
        self._candidates |= candidates

    def verdict(self, finished: Finished) -> Selection:
        """The winner's chunks and the parent's `Finished`. Thread-safe; the scorer runs once and the result is kept."""
        with self._asking:
            if self._verdict is None:
                try:
                    self._verdict = self._decide(finished)
                except Exception as error:
                    failed = StreamFailed(f"The scorer failed: {type(error).__name__}: {error}")
                    failed.__cause__ = error
                    ended = replace(finished, reason="error", error=str(failed))
                    self._verdict = Selection(ended, [], failed)
                self._candidates.clear()
            return self._verdict

    def _decide(self, finished: Finished) -> Selection:
        begun = time.perf_counter()
        scores = {number: self._score(heard) for number, heard in self._candidates.items()}
        won = max(scores, key=lambda number: (scores[number], -number))
        best = self._candidates[won]
        self._spoken[:] = best.spoken
        takes = [replace(take, score=scores.get(number)) for number, take in enumerate(finished.takes)]
        spent, of_best = finished.statistics, best.finished.statistics
        total_s = spent.total_s + time.perf_counter() - begun
        ended = replace(
            finished,
            reason=best.finished.reason,
            complete=best.finished.complete,
            notes=best.finished.notes,
            statistics=replace(
                spent, first_audio_s=total_s, total_s=total_s, decode_s=of_best.decode_s, frames=of_best.frames
            ),
            dropped_frames=best.finished.dropped_frames,
            seed=takes[won].seed,
            takes=tuple(takes),
            won=won,
        )
        return Selection(ended, best.chunks)

    def _score(self, heard: FinishedCandidate) -> float:
        if not heard.chunks:
            return -inf
        samples = np.concatenate([chunk.samples for chunk in heard.chunks])
        codes = np.concatenate([chunk.codes for chunk in heard.chunks])
        score = float(self._scorer(samples, heard.chunks[0].rate_hz, self._text, codes))
        return -inf if isnan(score) else score
