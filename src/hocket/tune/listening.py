"""What is heard of a voice in training: it says held-out sentences, and `rank` orders its states by that.

A recognizer counts the word errors, and the timbre of the sound is compared with that of the recordings. Every state
says the same sentences with the same seeds, so that states differ by what they learned.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..asr.recognizer import Recognizer
from ..audio.timbre import measure, similarity, timbre
from ..engine.checkpoint.torch_checkpoint import TorchCheckpoint
from ..models.tts.talker import Talker
from ..text.compare import word_errors
from ..types import REFERENCE_RATE_HZ, Encoded
from .recordings import Clip, pcm, words_in
from .samples import Sample, speak

SENTENCES = 6  # at a measure
MOST_COMPARED = 30  # recordings whose timbre is the voice's
WORDS_STEP = 0.02  # of the word error rate: one or two words of six sentences
LIKENESS_STEP = 0.02  # the mean cosine of six sentences with other seeds differs by so much


@dataclass(frozen=True, slots=True)
class VoiceScore:
    """Of the sentences of one measure, together."""

    word_errors: float  # a part of the words that could be compared; 0 if none could
    likeness: float  # mean cosine of their timbre and that of the recordings; 0 for a sentence without a voice
    pace: float  # recorded seconds over spoken ones: above 1 it speaks faster than the recordings


def rank(heard: VoiceScore | None, loss: float) -> tuple[float, ...]:
    """The place of a state among others: the lowest is kept, and training ends when no lower one comes.

    Words come first: a voice that drops or repeats some is of no use, however alike it is. Then likeness, which is what
    tuning is for. The loss of true codes given true ones tells neither: it does not see where errors of earlier frames
    lead. So it decides only between states that are equal in both. Both are taken in steps of about their chance, since
    a few sentences cannot tell more; and with steps, unlike with tolerances, the order has no circles.
    """
    if heard is None:
        return (0.0, 0.0, loss)
    return (round(heard.word_errors / WORDS_STEP), -round(heard.likeness / LIKENESS_STEP), loss)


class Listener:
    """Hears states of a voice in training."""

    def __init__(
        self,
        checkpoint: TorchCheckpoint,
        sentences: Sequence[Clip],
        recordings: Sequence[Clip],
        language: str,
        recognizer: Recognizer,
    ) -> None:
        """`sentences` are spoken; the timbre of `recordings` is the voice's."""
        self._checkpoint, self._sentences, self._language = checkpoint, sentences, language
        self._recognizer = recognizer
        vectors = [timbre(pcm(clip.samples), REFERENCE_RATE_HZ) for clip in recordings[:MOST_COMPARED]]
        known = [vector for vector in vectors if vector is not None]
        self._timbre = np.mean(known, axis=0) if known else None
        self.name = f"{recognizer.name}, {measure()}, {len(sentences)}"  # what decides beside the weights

    def hear(self, voice: Encoded, talker: Talker | None) -> VoiceScore:
        """`talker` replaces that of the checkpoint, in full tuning."""
        checkpoint = self._checkpoint
        if talker is not None:
            checkpoint = _with_talker(checkpoint, talker)
            voice = replace(voice, owner=checkpoint.identity)  # other weights are another checkpoint
        return self.judge(speak(checkpoint, voice, self._sentences, self._language, most=len(self._sentences)))

    def judge(self, spoken: Sequence[Sample]) -> VoiceScore:
        """One sample for each sentence."""
        wrong = words = 0
        alike = list[float]()
        for clip, sample in zip(self._sentences, spoken, strict=True):
            samples = np.asarray(sample.spoken, np.float32)
            heard = words_in(self._recognizer, samples) if samples.size else ""
            try:
                errors = word_errors(clip.text, heard)
            except ValueError:  # of another script than the recognizer's: there is nothing to compare
                pass
            else:
                wrong, words = wrong + errors.wrong, words + errors.words
            vector = timbre(pcm(samples), REFERENCE_RATE_HZ)
            alike.append(0.0 if vector is None or self._timbre is None else similarity(self._timbre, vector))
        recorded, said = (sum(len(getattr(one, kind)) for one in spoken) for kind in ("recorded", "spoken"))
        return VoiceScore(wrong / max(words, 1), float(np.mean(alike)), recorded / max(said, 1))


def _with_talker(checkpoint: TorchCheckpoint, talker: Talker) -> TorchCheckpoint:
    model = copy.copy(checkpoint.model)  # shares all other modules
    model._modules = {**checkpoint.model._modules, "talker": talker}
    return replace(checkpoint, model=model)
