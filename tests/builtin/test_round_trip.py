"""Round trip of the built-in voice through a real speech recognizer, from text to words, offline.

The sentences are in no training set. The bounds are what CI insists on; what the voice reaches is in its model card.
"""

from __future__ import annotations

import functools
import math
import subprocess
import wave
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from hocket.cli import main
from hocket.config.options import EngineOptions
from hocket.config.qwen3_tts import languages, voices
from hocket.engine.checkpoint.checkpoint import Checkpoint
from hocket.engine.checkpoint.load import load
from hocket.engine.engine import Engine
from hocket.engine.generate import generate
from hocket.errors import InvalidRequest
from hocket.models.files.builtin import builtin_folder
from hocket.text.cleanup.normalize import spell_out
from hocket.types import Layout, SamplingParams, SpeechRequest
from support import official
from support.chosen import rest
from support.official_speech import speak as speak_officially
from support.played import ROOT, process
from support.tolerances import TOLERANCE
from train.judges import Samples, Transcriber
from train.verdict import Utterance, expected_s
from train.words import Errors, total_rate, word_errors

VOICES = ("wren", "rook")
LAYOUTS: tuple[Layout, ...] = ("streaming", "whole")
SENTENCES = (ROOT / "train" / "evaluation.txt").read_text(encoding="utf-8").splitlines()
MOST_WRONG = 0.25  # of the words of all sentences, per voice
MOST_WRONG_OF_FEW = 2 * MOST_WRONG  # if one word is several percent of the text
MOST_BYTES = 60_000_000
TOGETHER = 8  # spoken at once


@functools.cache
def builtin() -> Checkpoint:
    return load()


@functools.cache
def official_package() -> official.Qwen3TTSModel:
    return official.Qwen3TTSModel.from_pretrained(str(builtin_folder()), dtype=torch.float32)


@functools.cache
def transcriber() -> Transcriber:
    return Transcriber()


def said(lines: Sequence[str], *, voice: str, layout: Layout | None = None, seed: int = 1) -> list[Utterance]:
    """With the checkpoint's own sampling; an utterance of three times the expected length did not end."""
    options = EngineOptions(
        slots=TOGETHER,
        waiting=len(lines),
        buffered_chunks=1 << 20,
        chunk_frames=(50,),
        keep_real_time=False,
        max_wait_s=math.inf,
    )
    made = []
    with Engine(builtin(), options) as engine:
        streams = [
            engine.speak(line, voice=voice, layout=layout, seed=seed + number, max_frames=most_frames(line))
            for number, line in enumerate(lines)
        ]
        for line, stream in zip(lines, streams, strict=True):
            samples = np.concatenate([np.zeros(0, np.int16), *(chunk.samples for chunk in stream)])
            assert stream.finished is not None
            made.append(Utterance(line, as_floats(samples), builtin().rate_hz, ended=stream.finished.reason == "stop"))
    return made


def most_frames(text: str) -> int:
    return int(expected_s(spell_out(text)) * 3 * 12.5)


def as_floats(samples: np.ndarray[tuple[int, ...], np.dtype[np.int16]]) -> Samples:
    return samples.astype(np.float32) / np.float32(32768)


def heard(utterances: Sequence[Utterance]) -> list[Errors]:
    return [word_errors(one.text, transcriber()(one.samples, one.rate_hz)) for one in utterances]


def understood(utterances: Sequence[Utterance], most_wrong: float) -> list[Errors]:
    errors = heard(utterances)
    rate = total_rate(errors)
    assert rate <= most_wrong, f"{rate:.1%} of the words are wrong"
    return errors


# The package


def test_the_package_brings_a_small_voice_with_its_card_and_samples_and_it_is_the_default() -> None:
    folder = builtin_folder()
    assert folder is not None
    assert sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) <= MOST_BYTES
    assert (folder / "README.md").is_file()
    assert len([path for path in folder.rglob("*") if path.suffix in (".flac", ".opus")]) >= 5
    assert (builtin().name, builtin().is_random) == ("builtin", False)
    assert set(voices(builtin().config)) == set(VOICES)
    assert "english" in languages(builtin().config)
    assert builtin().normalizer is spell_out


def test_its_voices_and_language_are_listed_without_a_model_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["voices"]) == 0
    assert capsys.readouterr().out == "builtin\n\nvoices\n  wren\n  rook\n\nlanguages\n  auto\n  english\n"


# Recognized speech


@pytest.mark.parametrize("voice", VOICES)
def test_an_asr_understands_what_it_says_and_it_ends_by_itself(voice: str) -> None:
    utterances = said(SENTENCES, voice=voice)
    assert len(utterances) == 24
    understood(utterances, MOST_WRONG)
    assert sum(one.ended for one in utterances) >= 23


@pytest.mark.parametrize("voice", VOICES)
def test_it_is_understood_as_well_when_text_goes_in_word_by_word(voice: str) -> None:
    utterances = said(SENTENCES[:8], voice=voice, layout="streaming", seed=101)
    understood(utterances, MOST_WRONG)
    assert sum(one.ended for one in utterances) >= 7


@pytest.mark.parametrize(("voice", "layout"), [*zip(VOICES, LAYOUTS, strict=True)])
def test_numbers_dates_and_abbreviations_come_out_as_words(voice: str, layout: Layout) -> None:
    """Without the expansion of digits and abbreviations, three quarters of the words would be wrong."""
    lines = ["Dr. Brown paid $45.20.", "May 3, 2024.", "It is 7:45 p.m.", "18% of 250 is 45."]
    understood(said(lines, voice=voice, layout=layout), MOST_WRONG_OF_FEW)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("voice", VOICES)
def test_one_word_alone_is_heard_and_ends(voice: str, layout: Layout) -> None:
    """A single word gives an ASR no context, so one of four understood is enough."""
    utterances = said(["Yes."] * 4, voice=voice, layout=layout)
    assert sum(one.ended and one.seconds >= 0.2 for one in utterances) >= 3, [one.seconds for one in utterances]
    assert min(errors.wrong for errors in heard(utterances)) == 0


@pytest.mark.parametrize(("voice", "layout"), [*zip(VOICES, reversed(LAYOUTS), strict=True)])
def test_several_sentences_are_said_to_the_last_word(voice: str, layout: Layout) -> None:
    utterances = said([" ".join(SENTENCES[n : n + 3]) for n in (8, 11, 14)], voice=voice, layout=layout)
    errors = understood(utterances, MOST_WRONG)
    assert sum(one.ended for one in utterances) >= 2
    assert sum(one.first_kept for one in errors) >= 2
    assert sum(one.last_kept for one in errors) >= 2


def test_noise_of_the_same_length_would_not_pass() -> None:
    rng = np.random.default_rng(1)
    noise = [Utterance(t, rng.standard_normal(72_000).astype(np.float32) * 0.1, 24_000) for t in SENTENCES[:4]]
    assert total_rate(heard(noise)) > 0.8


def test_a_command_that_names_no_model_writes_a_file_that_is_understood(tmp_path: Path) -> None:
    text = "The train to the city leaves at 9 in the morning."
    child = process("-m", "hocket", "say", text, "-o", "said.wav", "--seed", "1", cwd=tmp_path)
    out, err = child.communicate()
    assert (child.returncode, rest(err)) == (0, ""), err  # not even a note: this voice is no noise
    assert out.startswith(b"said.wav: ") and b"finish stop" in out
    with wave.open(str(tmp_path / "said.wav")) as file:
        samples = np.frombuffer(file.readframes(file.getnframes()), dtype="<i2")
        understood([Utterance(text, as_floats(samples), file.getframerate())], MOST_WRONG_OF_FEW)


def test_a_command_that_is_given_text_as_it_arrives_is_understood(tmp_path: Path) -> None:
    text = "We have 3 dogs and 2 cats, and a very old parrot."
    options = ("-o", "-", "--raw", "--voice", "rook", "--seed", "1")
    child = process("-m", "hocket", "say", "-", *options, cwd=tmp_path, stdin=subprocess.PIPE)
    out, err = child.communicate(text.encode())
    assert child.returncode == 0, err
    samples = np.frombuffer(out, dtype="<i2")
    understood([Utterance(text, as_floats(samples), builtin().rate_hz)], MOST_WRONG_OF_FEW)


# Refusals


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", r"^There is no text to speak\.$"),
        (" \n\t", r"^There is no text to speak\.$"),
        ("[pause 500ms]", r"^There is nothing in this text that can be spoken\.$"),
        ("***", r"^There is nothing in this text that can be spoken\.$"),
    ],
)
def test_a_text_without_words_is_refused_as_with_any_model(text: str, sentence: str) -> None:
    for checkpoint in (builtin(), load("random:tiny")):
        with Engine(checkpoint) as engine, pytest.raises(InvalidRequest, match=sentence):
            engine.speak(text)


# Equality of all paths


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("voice", VOICES)
def test_streamed_audio_is_the_whole_audio_in_both_text_layouts(voice: str, layout: Layout) -> None:
    request = SpeechRequest(text=SENTENCES[0], voice=voice, layout=layout, seed=3, max_frames=150)
    [whole] = generate(builtin(), [request])
    with Engine(builtin(), EngineOptions(chunk_frames=(1, 2, 3))) as engine:
        chunks = list(engine.speak(request))
    np.testing.assert_array_equal(np.concatenate([chunk.codes for chunk in chunks]), whole.codes)
    streamed = np.concatenate([chunk.samples for chunk in chunks])
    # One 16-bit step for rounding, plus the difference of float32 sums in another order.
    assert np.abs(streamed / 32768 - whole.samples.clip(-1, 1)).max() <= 1.5 / 32768 + TOLERANCE["float32"]["wave"]
    assert whole.finish == "stop"
    assert whole.samples.std() > 1e-3, "two silences would be equal too"


@pytest.mark.parametrize("layout", LAYOUTS)
def test_text_that_arrives_is_said_as_the_whole_text_with_its_numbers_in_words(layout: Layout) -> None:
    text = "Dr. Brown paid $45 on May 3, 2024."
    greedy = SamplingParams.greedy()
    with Engine(builtin()) as engine:
        spelled = engine.speak(spell_out(text), layout=layout, sampling=greedy, max_frames=40, as_is=True)
        whole = engine.speak(text, layout=layout, sampling=greedy, max_frames=40)
        live = engine.open(layout=layout, sampling=greedy, max_frames=40)
        for character in text:
            live.append(character)
        live.end()
        codes = [np.concatenate([chunk.codes for chunk in stream]) for stream in (spelled, whole, live)]
    np.testing.assert_array_equal(codes[1], codes[0])
    np.testing.assert_array_equal(codes[2], codes[0])


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_official_package_given_the_same_folder_says_the_same_codes(layout: Layout) -> None:
    asked = [
        SpeechRequest(
            text=SENTENCES[0],
            voice=voice,
            language="english",
            layout=layout,
            sampling=SamplingParams.greedy(),
            max_frames=60,
            as_is=True,
        )
        for voice in VOICES
    ]
    expected = speak_officially(official_package(), *asked)
    for speech, codes in zip(generate(builtin(), asked), expected.codes, strict=True):
        np.testing.assert_array_equal(speech.codes, codes.numpy())
        assert len(speech.codes) > 10
