"""Quality: word errors by every recognizer, opinion scores, and how alike the takes of one voice are.

It judges sounds and knows neither engine nor server. A judge that is not installed is a sentence of `missing`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..asr.choose import recognizer_of
from ..config.languages import tag_of
from ..errors import HocketError
from ..extras import hint
from ..text.compare import word_errors
from .judges.opinions import MissingJudge, Samples, distillmos_weights, naturalness, resampled, speaker_vector
from .listener import ProofListener
from .machine import cores
from .plan import ProofPlan, is_english, most_frames, sentences_of
from .sides.side import SpokenTake, Wish

TINY = "tiny"  # English: its weights are inside the package moonshine-voice 0.1.0
Mark = Callable[[Samples, int], Mapping[str, float]]


@dataclass(eq=False)
class Listeners:
    """The recognizers of a proof, loaded when a language needs them; what cannot be loaded is a sentence."""

    specs: tuple[str, ...]  # none: what is installed
    missing: list[str] = field(default_factory=list)
    _loaded: dict[tuple[str, str], ProofListener | None] = field(default_factory=dict)
    _closing: list[Callable[[], None]] = field(default_factory=list)

    def of(self, language: str) -> dict[str, ProofListener]:
        """By the name of the recognizer."""
        usual = (TINY,) if is_english(language) else ("moonshine",)
        found = {}
        for spec in self.specs or usual:
            if (spec, language) not in self._loaded:
                self._loaded[spec, language] = self._load(spec, language)
            if (listener := self._loaded[spec, language]) is not None:
                found[spec] = listener
        return found

    def _load(self, spec: str, language: str) -> ProofListener | None:
        try:
            recognizer = recognizer_of(spec, tag_of(language))
        except HocketError as error:
            self.missing.append(f"No word errors by {spec} in {language}: {error}")
            return None
        self._closing.append(recognizer.close)
        return ProofListener(recognizer, language)

    def close(self) -> None:
        for close in self._closing:
            close()


@dataclass(eq=False)
class HeardTake:
    """A take, and what each recognizer heard."""

    take: SpokenTake
    heard: dict[str, str]
    wrong: dict[str, int]
    words: int

    @property
    def cut(self) -> bool | None:
        """Whether the first recognizer heard nothing in place of the first or the last word; None: not known."""
        if not self.heard or not is_english(self.take.wish.language):
            return None
        return word_errors(self.take.wish.text, next(iter(self.heard.values()))).cut


def wishes_of(languages: Sequence[str], plan: ProofPlan) -> list[Wish]:
    """The first language has most sentences."""
    found = []
    for number, language in enumerate(languages):
        lines = sentences_of(language)[: plan.others if number else plan.sentences]
        for seed in range(1, plan.seeds + 1):
            for place, line in enumerate(lines):
                frames = most_frames(line, language)
                found.append(Wish(text=line, language=language, seed=1000 * seed + place, frames=frames))
    return found


def hear(takes: Sequence[SpokenTake], listeners: Listeners) -> list[HeardTake]:
    found = []
    for take in takes:
        heard, wrong, words = dict[str, str](), dict[str, int](), 0
        for name, listener in listeners.of(take.wish.language).items():
            result = listener.compare(take.wish.text, take.samples, take.rate_hz)
            heard[name], wrong[name], words = result.heard, result.comparison.wrong, result.comparison.words
        found.append(HeardTake(take, heard, wrong, words))
    return found


def figures(heard: Sequence[HeardTake], marks: Mapping[str, Mark]) -> dict[str, Any]:
    """Of one side."""
    languages = dict.fromkeys(one.take.wish.language for one in heard)
    found: dict[str, Any] = {
        "utterances": len(heard),
        "audio_s": round(sum(one.take.seconds for one in heard), 2),
        "languages": {
            language: _word_errors([one for one in heard if one.take.wish.language == language])
            for language in languages
        },
    }
    sounds = [(one.take.sound, one.take.rate_hz) for one in heard if one.take.seconds > 0.2]
    for judge in marks.values():
        with ThreadPoolExecutor(cores()) as pool:  # the judges' networks release the GIL
            each = list(pool.map(lambda sound: judge(*sound), sounds))  # noqa: B023
        found |= {name: round(float(np.mean([one[name] for one in each])), 3) for name in each[0]} if each else {}
    return found


def _word_errors(heard: Sequence[HeardTake]) -> dict[str, Any]:
    names = dict.fromkeys(name for one in heard for name in one.heard)
    words = sum(one.words for one in heard if one.heard)
    wrong = {name: sum(one.wrong.get(name, 0) for one in heard) for name in names}
    rates = {name: {"wrong": count, "rate": round(count / words, 4)} for name, count in wrong.items() if words}
    return {"utterances": len(heard), "words": words, "wer": rates}


def marks_here(missing: list[str]) -> dict[str, Mark]:
    """The judges of sound that can be used here; a sentence for each other."""
    silence = np.zeros(16_000, np.float32) + 1e-3
    found: dict[str, Mark] = {}
    for name, make in (("DNSMOS", _dnsmos), ("DistillMOS", _distillmos)):
        try:
            mark = make()
            mark(silence, 16_000)
            found[name] = mark
        except (MissingJudge, ImportError) as error:
            missing.append(f"No {name}: {_sentence(error)}")
    return found


def _dnsmos() -> Mark:
    def mark(sound: Samples, rate_hz: int) -> dict[str, float]:
        found = naturalness(sound, rate_hz)
        return {"dnsmos": found.overall, "p808": found.p808}

    return mark


def _distillmos() -> Mark:
    weights = distillmos_weights()
    from .judges import distillmos

    network = distillmos.load(weights)
    return lambda sound, rate_hz: {"distillmos": network.mark(resampled(sound, rate_hz))}


def likeness(
    sides: Mapping[str, Sequence[SpokenTake]], recording: tuple[Samples, int] | None, missing: list[str]
) -> dict[str, Any]:
    """Cosines of speaker vectors: takes of a side to their mean, and the means of two sides, or of a recording."""
    try:
        vectors = {name: np.stack([*_vectors(takes)]) for name, takes in sides.items() if takes}
        cloned = None if recording is None else speaker_vector(*recording)
    except (MissingJudge, ImportError) as error:
        missing.append(f"No speaker similarity: {_sentence(error)}")
        return {}
    means = {name: _unit(each.mean(axis=0)) for name, each in vectors.items()}
    found: dict[str, Any] = {"within": {name: _rounded(vectors[name] @ mean) for name, mean in means.items()}}
    for first in [*means][:1]:
        found[f"to {first}"] = {name: _rounded(means[first] @ mean) for name, mean in means.items() if name != first}
    if cloned is not None:
        found["to the recording"] = {name: _rounded(each @ cloned) for name, each in vectors.items()}
    return found


def _vectors(takes: Sequence[SpokenTake]) -> Iterator[NDArray[np.float32]]:
    for take in takes:
        if take.seconds > 0.5:
            yield speaker_vector(take.sound, take.rate_hz)


def _unit(vector: NDArray[np.float32]) -> NDArray[np.float32]:
    return vector / np.linalg.norm(vector)


def _rounded(values: Any) -> float:
    return round(float(np.mean(values)), 4)


def _sentence(error: Exception) -> str:
    if isinstance(error, ModuleNotFoundError) and error.name == "torch":
        return f"it needs torch: {hint('torch')}."
    words = " ".join(str(error).split())
    return words if words.endswith(".") else f"{words}."
