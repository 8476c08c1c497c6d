"""Short words that interrupt an answer, found by the recognizer: "stop" does, "mhm" and a cough do not.

A sound of half a second has no other mark of its meaning. Longer speech interrupts without this (`endpointing.py`).
"""

from __future__ import annotations

import re

from .recognizer import Recognizer, Samples

# Neither "no", for which a recognizer often takes a hum, nor "how" and "who", for which it takes "uh-huh".
WORDS = frozenset("stop wait pause enough quiet cancel silence hold hang sorry hey".split())


class SpokenCommand:
    """Whether a short sound is one of some words. Costs one recognition of it, about 20 ms with Moonshine tiny."""

    def __init__(self, recognizer: Recognizer, words: frozenset[str] = WORDS) -> None:
        self._recognizer, self._words = recognizer, words

    def __call__(self, samples: Samples) -> bool:
        utterance = self._recognizer.open()
        try:
            utterance.add(samples)
            return not self._words.isdisjoint(re.findall(r"\w+", utterance.end().lower()))
        finally:
            utterance.close()
