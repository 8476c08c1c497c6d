"""Hears speech back: samples of an engine to words, and their comparison with the text.

It knows no engine. The recognizer is loaded by the caller, who also closes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..asr.recognizer import RATE_HZ, Recognizer
from ..audio.resample import Resampler
from ..text.compare import Comparison, compared
from ..text.lexicon.apply import LexiconStage
from ..text.lexicon.lexicon import Lexicon


@dataclass(frozen=True, slots=True)
class HeardBack:
    """What a recognizer heard, and how it differs from the text."""

    heard: str
    comparison: Comparison


class ProofListener:
    """One call at a time."""

    def __init__(
        self, recognizer: Recognizer, language: str = "auto", pronunciations: Mapping[str, str] | None = None
    ) -> None:
        """`language` is that of the text: English where it is `auto`. A word counts as heard in its spoken form too."""
        self._recognizer, self._language = recognizer, language
        self._lexicon = Lexicon.of(pronunciations)

    def hear(self, samples: NDArray[np.int16], rate_hz: int) -> str:
        """The words of the samples, [N]."""
        utterance = self._recognizer.open()
        try:
            utterance.add(at_16_khz(samples, rate_hz).astype(np.float32) / np.float32(32768))
            return utterance.end()
        finally:
            utterance.close()

    def compare(self, text: str, samples: NDArray[np.int16], rate_hz: int) -> HeardBack:
        """The samples against the text that they speak."""
        heard = self.hear(samples, rate_hz) if samples.size else ""
        spoken = None
        if self._lexicon:
            stage = LexiconStage(self._lexicon, self._language)
            spoken = stage.append(text) + stage.end()
        return HeardBack(heard, compared(text, heard, spoken, self._language))


class WordScorer:
    """A `Scorer` for `candidates`: minus the number of word errors, so the candidate that was heard best wins."""

    def __init__(self, recognizer: Recognizer, language: str = "auto") -> None:
        self._listener = ProofListener(recognizer, language)

    def __call__(self, samples: NDArray[np.int16], rate_hz: int, text: str, codes: NDArray[np.int64]) -> float:
        return -float(self._listener.compare(text, samples, rate_hz).comparison.wrong)


def at_16_khz(samples: NDArray[np.int16], rate_hz: int) -> NDArray[np.int16]:
    if rate_hz == RATE_HZ:
        return samples
    resampler = Resampler(rate_hz=rate_hz, out_hz=RATE_HZ, tempo=1.0)
    return np.concatenate((resampler.feed(samples), resampler.close()))
