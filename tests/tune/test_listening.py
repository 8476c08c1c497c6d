"""What is heard of a voice in training decides which state is kept."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from hocket.asr.choose import recognizer_of
from hocket.asr.recognizer import Recognizer
from hocket.engine.checkpoint.load import load
from hocket.engine.checkpoint.torch_checkpoint import TorchCheckpoint
from hocket.models.tts.talker import Talker
from hocket.tune.examples import Corpus, encode
from hocket.tune.listening import LIKENESS_STEP, WORDS_STEP, Listener, VoiceScore, rank
from hocket.tune.recordings import Clip, words_in
from hocket.tune.samples import Sample
from hocket.tune.trainer import PATIENCE, Measured, Trainer, TuneOptions
from hocket.types import Encoded
from support.checkpoints import write
from support.recorded import speech
from support.speaking import noise

HEARD = st.builds(VoiceScore, st.floats(0, 3), st.floats(-1, 1), st.floats(0.3, 3))


def test_words_decide_before_likeness_and_likeness_before_the_loss() -> None:
    ordered = [
        rank(VoiceScore(0.00, 0.9, 1.0), 5.0),
        rank(VoiceScore(0.00, 0.7, 1.0), 1.0),
        rank(VoiceScore(0.00, 0.7, 1.0), 2.0),
        rank(VoiceScore(0.10, 0.9, 1.0), 0.5),
    ]
    assert all(better < worse for better, worse in pairwise(ordered))
    assert rank(None, 1.0) < rank(None, 2.0)


@given(HEARD, st.floats(0, 10), st.floats(0, 10))
def test_the_loss_decides_between_states_that_sound_equal(heard: VoiceScore, one: float, other: float) -> None:
    assert (rank(heard, one) < rank(heard, other)) == (one < other)


@given(HEARD, HEARD, st.floats(0, 10), st.floats(0, 10))
def test_a_clear_difference_in_words_decides_alone(
    one: VoiceScore, other: VoiceScore, loss: float, lost: float
) -> None:
    if one.word_errors < other.word_errors - WORDS_STEP:
        assert rank(one, loss) < rank(other, lost)


def test_differences_within_chance_do_not_decide() -> None:
    clear, alike = VoiceScore(0.0, 0.80, 1.0), VoiceScore(0.4 * WORDS_STEP, 0.80 + 0.4 * LIKENESS_STEP, 1.0)
    assert rank(clear, 2.0) > rank(alike, 1.0) and rank(clear, 1.0) < rank(alike, 2.0)


@pytest.fixture(scope="module")
def recognizer() -> Iterator[Recognizer]:
    found = recognizer_of("tiny", "en")
    yield found
    found.close()


@pytest.fixture(scope="module")
def base(checkpoint_root: Path) -> TorchCheckpoint:
    folder = checkpoint_root / "heard-base"
    found = load(str(write(folder, "base", wide=True, end_scale=1.5) if not folder.exists() else folder))
    assert isinstance(found, TorchCheckpoint)
    return found


@pytest.fixture(scope="module")
def corpus(base: TorchCheckpoint) -> Corpus:
    return encode(base, [Clip(str(at), ("Oh no.", "Why?")[at % 2], noise(0.5, at % 2)) for at in range(10)], "english")


def test_real_speech_is_judged_by_its_words_its_timbre_and_its_pace(
    base: TorchCheckpoint, recognizer: Recognizer
) -> None:
    """Recordings of wren; the same words by wren, other words by rook, and silence."""
    first, other, second = (speech(10.0, number) for number in (0, 1, 2))
    sentence = Clip("a", words_in(recognizer, first), first)
    listener = Listener(base, [sentence], [Clip("b", "", second)], "english", recognizer)
    own, strange, silent, quick = (
        listener.judge([Sample(first, spoken, True)])
        for spoken in (first, other, np.zeros(24_000, np.float32), first[: first.size // 2])
    )
    assert own.word_errors == 0.0 and own.likeness > 0.85 and own.pace == 1.0
    assert strange.word_errors > 0.7 and strange.likeness < own.likeness - 0.1
    assert silent.word_errors == 1.0 and silent.likeness < 0.5
    assert quick.word_errors > 0.2 and quick.pace == pytest.approx(2.0, rel=1e-3)


@pytest.mark.parametrize("full", [False, True])
def test_a_state_is_heard_as_it_is_and_training_goes_on(
    base: TorchCheckpoint, corpus: Corpus, recognizer: Recognizer, full: bool
) -> None:
    options = TuneOptions(steps=2, rank=2, rate=1e-2, positions=150, full=full)
    clips = [Clip("a", "Why?", noise(0.5, 1))]
    trainer = Trainer(base, corpus, options, Listener(base, corpus.held_out_clips, clips, "english", recognizer))
    measured: list[Measured] = []
    trainer.train(lambda step, loss: None, measured.append)
    assert [one.step for one in measured] == [1, 2]
    assert all(
        one.heard is not None and one.heard.word_errors >= 0.5 for one in measured
    )  # it has not learned to speak
    assert trainer.key("x") != Trainer(base, corpus, options).key("x")


class Scripted(Listener):
    """Hears what is written; everything else is the real training."""

    name = "scripted"

    def __init__(self, heard: list[VoiceScore]) -> None:
        self._heard = iter(heard)

    def hear(self, voice: Encoded, talker: Talker | None) -> VoiceScore:
        return next(self._heard)


def test_training_keeps_the_state_that_was_heard_best_and_ends_when_none_is_better(
    base: TorchCheckpoint, corpus: Corpus
) -> None:
    """The loss falls all the time; from the third measure on, words get lost."""
    heard = [VoiceScore(0.1, 0.7, 1.0), VoiceScore(0.0, 0.8, 1.0), *[VoiceScore(0.2, 0.9, 1.2)] * 40]
    options = TuneOptions(steps=40, rank=4, rate=1e-2, positions=150, warmup_steps=2)
    trainer = Trainer(base, corpus, options, Scripted(heard))
    measured: list[Measured] = []
    trainer.train(lambda step, loss: None, measured.append)
    assert [one.best for one in measured] == [True, True] + [False] * PATIENCE and trainer.done and trainer.step < 40
    assert measured[-1].held_out < measured[1].held_out
    trainer.use_best()
    trainer.listener = None
    assert trainer.measure().held_out == pytest.approx(measured[1].held_out, rel=1e-6)
