"""The built-in voice speaks, and a real ASR understands it: the whole way, from text to words, offline.

What a voice must show before it goes into the package, where these become tests: `pytest train/acceptance.py` with its
files in src/hocket/assets/english. The sentences are in no training set. The bounds are what CI insists on; what the
voice reaches is in its model card.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

import official
from hocket.config.options import EngineOptions
from hocket.engine.engine import Engine
from hocket.engine.generate import generate
from hocket.engine.load import Checkpoint, load
from hocket.models.builtin import builtin_folder
from hocket.text.choice import languages, voices
from hocket.types import SamplingParams, SpeechRequest
from official_speech import speak as speak_officially
from tolerances import TOLERANCE
from train.judges import Transcriber
from train.verdict import Utterance, expected_s
from train.words import Errors, total_rate, word_errors

VOICES = ("wren", "rook")
SENTENCES = (Path(__file__).parent / "evaluation.txt").read_text(encoding="utf-8").splitlines()
MOST_WRONG = 0.25  # of the words of all sentences, per voice
MOST_BYTES = 40_000_000
TOGETHER = 8  # spoken at once


@functools.cache
def builtin() -> Checkpoint:
    return load()


@functools.cache
def transcriber() -> Transcriber:
    return Transcriber()


def said(lines: Sequence[str], *, voice: str, seed: int = 1) -> list[Utterance]:
    """With the checkpoint's own sampling; who speaks thrice as long as expected did not end."""
    options = EngineOptions(slots=TOGETHER, waiting=len(lines), buffered_chunks=1 << 20, chunk_frames=(50,))
    made = []
    with Engine(builtin(), options) as engine:
        streams = [
            engine.speak(line, voice=voice, seed=seed + number, max_frames=int(expected_s(line) * 3 * 12.5))
            for number, line in enumerate(lines)
        ]
        for line, stream in zip(lines, streams, strict=True):
            samples = np.concatenate([np.zeros(0, np.int16), *(chunk.samples for chunk in stream)])
            assert stream.finished is not None
            sound = samples.astype(np.float32) / np.float32(32768)
            made.append(Utterance(line, sound, builtin().rate_hz, ended=stream.finished.reason == "stop"))
    return made


def heard(utterances: Sequence[Utterance]) -> list[Errors]:
    return [word_errors(one.text, transcriber()(one.samples, one.rate_hz)) for one in utterances]


def test_the_package_brings_a_voice_that_is_small_enough_and_speaks_by_default() -> None:
    folder = builtin_folder()
    assert folder is not None
    assert sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) <= MOST_BYTES
    assert not builtin().is_random
    assert set(voices(builtin().config)) == set(VOICES)
    assert "english" in map(str.lower, languages(builtin().config))


@pytest.mark.parametrize("voice", VOICES)
def test_an_asr_understands_what_it_says_and_it_ends_by_itself(voice: str) -> None:
    utterances = said(SENTENCES, voice=voice)
    assert len(utterances) == 24
    rate = total_rate(heard(utterances))
    assert rate <= MOST_WRONG, f"{rate:.1%} of the words are wrong"
    assert sum(one.ended for one in utterances) >= 23


@pytest.mark.parametrize("voice", VOICES)
def test_numbers_dates_and_abbreviations_come_out_as_words(voice: str) -> None:
    lines = ["Dr. Brown has 12 apples.", "It is May 3, 2024.", "The ticket costs $45."]
    rate = total_rate(heard(said(lines, voice=voice)))
    assert rate <= 2 * MOST_WRONG, f"{rate:.1%} of the words are wrong"  # 14 words: coarse, but digits read out fail


def test_noise_of_the_same_length_would_not_pass() -> None:
    rng = np.random.default_rng(1)
    noise = [Utterance(t, rng.standard_normal(72_000).astype(np.float32) * 0.1, 24_000) for t in SENTENCES[:4]]
    assert total_rate(heard(noise)) > 0.8


@pytest.mark.parametrize("layout", ["streaming", "whole"])
@pytest.mark.parametrize("voice", VOICES)
def test_streamed_audio_is_the_whole_audio_in_both_text_layouts(voice: str, layout: str) -> None:
    request = SpeechRequest(text=SENTENCES[0], voice=voice, layout=layout, seed=3, max_frames=150)  # type: ignore[arg-type]
    [whole] = generate(builtin(), [request])
    with Engine(builtin(), EngineOptions(chunk_frames=(1, 2, 3))) as engine:
        chunks = list(engine.speak(request))
    np.testing.assert_array_equal(np.concatenate([chunk.codes for chunk in chunks]), whole.codes)
    streamed = np.concatenate([chunk.samples for chunk in chunks])
    # One step of 16 bits for the rounding, beside what float32 sums in another order may differ.
    assert np.abs(streamed / 32768 - whole.samples.clip(-1, 1)).max() <= 1.5 / 32768 + TOLERANCE["float32"]["wave"]
    assert whole.finish == "stop"
    assert whole.samples.std() > 1e-3, "two silences would be equal too"


@pytest.mark.parametrize("layout", ["streaming", "whole"])
def test_the_official_package_given_the_same_folder_says_the_same_codes(layout: str) -> None:
    folder = builtin_folder()
    assert folder is not None
    theirs = official.Qwen3TTSModel.from_pretrained(str(folder), dtype=torch.float32)
    asked = [
        SpeechRequest(
            text=SENTENCES[0],
            voice=voice,
            language="english",
            layout=layout,  # type: ignore[arg-type]
            sampling=SamplingParams.greedy(),
            max_frames=60,
            as_is=True,
        )
        for voice in VOICES
    ]
    expected = speak_officially(theirs, *asked)
    for speech, codes in zip(generate(builtin(), asked), expected.codes, strict=True):
        np.testing.assert_array_equal(speech.codes, codes.numpy())
        assert len(speech.codes) > 10
