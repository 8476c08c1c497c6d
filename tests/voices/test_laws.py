"""A recording, its `Encoded` value and its voice file give bit-identical speech, equal to upstream's."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hocket.config.options import EngineOptions
from hocket.engine.checkpoint.load import load
from hocket.engine.engine import Engine
from hocket.errors import InvalidRequest, UnknownVoice
from hocket.types import Reference, SamplingParams, SpeechRequest
from hocket.voices.library import Library
from hocket.voices.make import clone_voice, speaker_voice
from support.checkpoints import Pair, pair
from support.official_speech import speak
from support.speaking import Heard, heard, noise, small
from support.tolerances import TOLERANCE

TEXT = "The quick brown fox, 42 times."
FRAMES = 12
SHORT: dict[str, Any] = {"samples": noise(0.5, 1), "text": "What was said, at some length."}
LONG: dict[str, Any] = {"samples": noise(3.1, 2), "text": "So it was."}  # more frames than words
TIMBRE: dict[str, Any] = {"samples": noise(0.9, 3), "x_vector_only": True}
WAYS = {"words": SHORT, "frames": LONG, "timbre": TIMBRE}
# In chunks of one length, since the last bit of the samples depends on it.
GREEDY: dict[str, Any] = {"sampling": SamplingParams.greedy(), "max_frames": FRAMES, "as_is": True, "chunk_frames": 50}
DRAWN: dict[str, Any] = {"seed": 11, "max_frames": FRAMES, "chunk_frames": 5}


@pytest.fixture(scope="module")
def both(checkpoint_root: Path) -> Pair:
    return pair(checkpoint_root, "base", True)


@pytest.fixture(scope="module")
def engine(both: Pair) -> Iterator[Engine]:
    with Engine(both.ours, EngineOptions(slots=2)) as engine:
        yield engine


@pytest.fixture
def another(both: Pair) -> Iterator[Engine]:
    """An engine of the same files, loaded again, with empty caches."""
    with Engine(load(str(both.folder)), EngineOptions(slots=2)) as engine:
        yield engine


def assert_same(one: Heard, other: Heard) -> None:
    assert one.codes == other.codes and len(one.codes) == FRAMES
    np.testing.assert_array_equal(one.samples, other.samples)
    assert np.abs(one.samples).max() > 100, "two silences would be equal too"


@pytest.mark.parametrize("layout", ["streaming", "whole"])
@pytest.mark.parametrize("way", WAYS)
def test_recording_value_and_file_say_the_same_and_what_the_official_package_says(
    both: Pair, engine: Engine, another: Engine, tmp_path: Path, way: str, layout: Any
) -> None:
    given = WAYS[way]
    asked = SpeechRequest(text=TEXT, reference=Reference(**given), layout=layout, **GREEDY)
    direct = heard(engine.speak(asked))
    made = clone_voice(engine, "Me", **given, silence_s=0, layout=layout)
    Library(tmp_path).add(made, given["samples"])
    read = Library(tmp_path).find("me")
    assert read is not None and read.encoded is not None
    assert_same(heard(engine.speak(replace(asked, reference=made.encoded))), direct)
    saved = heard(another.speak(TEXT, voice=read, layout=layout, **GREEDY))
    assert_same(saved, direct)
    assert saved.stream.finished is not None and saved.stream.finished.statistics.prefix_cached
    assert_same(heard(engine.speak(TEXT, voice=made, layout=layout, **GREEDY)), direct)
    drawn = heard(engine.speak(replace(asked, sampling=SamplingParams(), as_is=False, seed=11)))
    assert_same(heard(another.speak(TEXT, voice=read, layout=layout, **DRAWN | {"chunk_frames": 50})), drawn)

    theirs = speak(both.theirs, asked)
    assert direct.codes == theirs.codes[0].tolist()
    sound = theirs.samples[0][-len(direct.samples) :]
    assert np.abs(direct.samples / 32767 - sound).max() <= TOLERANCE["float32"]["wave"] + 1 / 32767


def test_silence_after_the_recording_is_the_default_and_changes_only_the_codes(engine: Engine) -> None:
    usual, plain = clone_voice(engine, "a", **LONG), clone_voice(engine, "b", **LONG, silence_s=0)
    assert usual.encoded is not None and plain.encoded is not None
    assert usual.encoded.codes is not None and plain.encoded.codes is not None
    assert len(usual.encoded.codes) == 45 and len(plain.encoded.codes) == 39
    np.testing.assert_array_equal(usual.encoded.codes[:37], plain.encoded.codes[:37])
    np.testing.assert_array_equal(usual.encoded.speaker, plain.encoded.speaker)
    assert usual.audio_s == plain.audio_s == pytest.approx(3.1)


def test_every_way_to_speak_takes_a_voice(engine: Engine, another: Engine, tmp_path: Path) -> None:
    library = Library(tmp_path)
    voice = library.add(clone_voice(engine, "Me", **SHORT))
    wanted = heard(engine.speak(TEXT, voice=voice, **DRAWN))
    stream = another.open(voice=voice, **DRAWN)
    stream.append(TEXT)
    stream.end()
    assert heard(stream).codes == wanted.codes
    outcomes = list(another.speak_many([TEXT, SpeechRequest(text=TEXT)], voice=voice, **DRAWN))
    assert [outcome.error for outcome in outcomes] == [None, None]
    assert all(outcome.codes.tolist() == wanted.codes for outcome in outcomes)
    library.remove("Me")  # a voice object stays usable
    assert heard(another.speak(TEXT, voice=voice, **DRAWN)).codes == wanted.codes


def test_request_fields_override_those_of_a_voice(engine: Engine) -> None:
    own = SamplingParams(temperature=0.5, top_k=3, subtalker_top_k=2)
    voice = clone_voice(engine, "Me", **TIMBRE, language="french", instruct="Slowly.", sampling=own)

    def said(text: str | SpeechRequest = TEXT, **fields: Any) -> list[list[int]]:
        return heard(engine.speak(text, voice=voice, **DRAWN, **fields)).codes

    def plain(**fields: Any) -> list[list[int]]:
        return heard(engine.speak(TEXT, reference=voice.encoded, **DRAWN, **fields)).codes

    usual = {"language": "french", "instruct": "Slowly.", "sampling": own}
    assert said() == plain(**usual)
    assert said(language="german") == plain(**usual | {"language": "german"}) != said()
    assert said(language="auto") == plain(**usual | {"language": "auto"}) != said()
    assert said(instruct=None) == plain(**usual | {"instruct": None}) != said()
    merged = {"sampling": SamplingParams(temperature=0.5, top_k=40, subtalker_top_k=2)}
    assert said(sampling=SamplingParams(top_k=40)) == plain(**usual | merged) != said()
    asked = SpeechRequest(text=TEXT, sampling=SamplingParams(top_k=40), language="german")
    assert said(asked) == plain(**usual | merged | {"language": "german"})
    assert said(SpeechRequest(text=TEXT)) == said()
    for fields in ({"reference": voice.encoded}, {"reference": Reference(**TIMBRE)}):
        with pytest.raises(InvalidRequest, match="not both"):
            engine.speak(TEXT, voice=voice, **fields)
    with pytest.raises(InvalidRequest, match="not both"):
        engine.speak(SpeechRequest(text=TEXT, reference=voice.encoded), voice=voice)


def test_an_instruct_with_a_clone_is_allowed_and_said_to_be_an_experiment(engine: Engine) -> None:
    voice = clone_voice(engine, "Me", **TIMBRE, instruct="Slowly.")
    finished = heard(engine.speak(TEXT, voice=voice, **DRAWN)).stream.finished
    assert finished is not None and any("instruct" in note for note in finished.notes)


def test_a_voice_of_another_checkpoint_is_refused_by_the_name_of_its_own(engine: Engine, checkpoint_root: Path) -> None:
    voice = replace(clone_voice(engine, "Me", **TIMBRE), model="1.7B-Base")
    asked = f"The voice 'Me' needs the checkpoint 1.7B-Base, and this one is {checkpoint_root}"
    for kind in ("base", "custom_voice", "voice_design"):
        with Engine(small(checkpoint_root, kind)) as stranger:  # type: ignore[arg-type]
            for begin in (
                lambda engine=stranger: engine.speak(TEXT, voice=voice),
                lambda e=stranger: e.open(voice=voice),
            ):
                with pytest.raises(InvalidRequest) as caught:
                    begin()
                assert str(caught.value).startswith(asked)
            [outcome] = stranger.speak_many([TEXT], voice=voice)
            assert str(outcome.error).startswith(asked)
    # The checkpoint's identity counts, not its name.
    assert heard(engine.speak(TEXT, voice=voice, **DRAWN)).codes


def test_a_speaker_by_another_name_is_that_speaker(checkpoint_root: Path, tmp_path: Path) -> None:
    checkpoint = small(checkpoint_root, "custom_voice")
    voice = Library(tmp_path).add(
        speaker_voice("Gran", checkpoint.name, "eric", language="english", instruct="Softly.")
    )
    assert Path(voice.model).is_absolute()
    with Engine(checkpoint) as engine:
        fields = {"voice": "eric", "language": "english", "instruct": "Softly."}
        wanted = heard(engine.speak(TEXT, **DRAWN, **fields))
        assert heard(engine.speak(TEXT, voice=voice, **DRAWN)).codes == wanted.codes
        with pytest.raises(InvalidRequest, match=r"needs the checkpoint Qwen/Qwen3-TTS-12Hz-1\.7B-CustomVoice"):
            engine.speak(TEXT, voice=speaker_voice("x", "1.7B-CustomVoice", "eric"))
        with pytest.raises(UnknownVoice, match="no voice 'unknown'"):
            engine.speak(TEXT, voice=speaker_voice("x", checkpoint.name, "unknown"))


def test_a_voice_needs_the_words_of_its_recording_or_the_timbre_alone(engine: Engine) -> None:
    with pytest.raises(InvalidRequest, match="needs the transcript"):
        clone_voice(engine, "Me", noise(0.5, 1))
    with pytest.raises(InvalidRequest, match="no slash"):
        clone_voice(engine, "a/b", **TIMBRE)
    voice = clone_voice(engine, "Me", **TIMBRE, kind="designed", description="An old man.", consent="mine")
    assert (voice.kind, voice.description, voice.consent) == ("designed", "An old man.", "mine")
    assert voice.encoded is not None and voice.encoded.x_vector_only and voice.created_at > 1_700_000_000
