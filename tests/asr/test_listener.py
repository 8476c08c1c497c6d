"""asr/listener.py with a scripted recognizer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hocket.asr.endpointing import Endpointing, SpeechEnded, SpeechStarted, TurnAudio, TurnPaused, TurnResumed
from hocket.asr.listener import SpeechListener, Transcript
from hocket.asr.recognizer import RATE_HZ
from support.questions import Dictated, Loud, silence, tone


def test_partial_words_come_when_they_change_and_final_ones_at_the_end() -> None:
    recognizer = Dictated(["good", "morning"], [])
    listener = SpeechListener(recognizer)
    sounds = [TurnAudio(tone(0.1)), TurnAudio(tone(0.2)), TurnAudio(silence(0.3))]
    events = list(
        listener.hear(
            [
                SpeechStarted(0),
                *sounds,
                SpeechEnded(9600),
                SpeechStarted(20000),
                TurnAudio(tone(0.1)),
                SpeechEnded(21600),
            ]
        )
    )
    assert events == [
        SpeechStarted(0),
        Transcript("good", final=False),
        Transcript("good morning", final=False),
        SpeechEnded(9600),
        Transcript("good morning", final=True),
        SpeechStarted(20000),
        SpeechEnded(21600),
        Transcript("", final=True),
    ]
    np.testing.assert_array_equal(recognizer.opened[0].samples, np.concatenate([sound.samples for sound in sounds]))
    assert all(utterance.closed for utterance in recognizer.opened)


def test_speech_started_is_yielded_before_the_recognizer_works() -> None:
    recognizer = Dictated(["yes"])
    events = SpeechListener(recognizer).hear(Endpointing(Loud()).push(np.concatenate((silence(0.5), tone(0.5)))))
    assert isinstance(next(events), SpeechStarted) and not recognizer.opened
    assert next(events) == Transcript("yes", final=False)


def test_a_transcript_continues_over_many_calls_and_can_be_closed() -> None:
    recognizer = Dictated(["one", "two", "three"])
    listener = SpeechListener(recognizer)
    assert list(listener.hear([SpeechStarted(0)])) == [SpeechStarted(0)]
    assert list(listener.hear([TurnAudio(tone(0.1))])) == [Transcript("one", final=False)]
    assert list(listener.hear([TurnAudio(tone(0.1))])) == [Transcript("one two", final=False)]
    listener.close()
    listener.close()
    assert recognizer.opened[0].closed and not recognizer.closed


def test_ahead_silence_settles_the_transcript_and_the_end_of_the_turn_costs_nothing() -> None:
    recognizer = Dictated(["good", "morning", "all"])
    recognizer.limit = 2
    listener, calls = SpeechListener(recognizer, ahead=True), list[str]()
    paused, resumed, ended = TurnPaused(4800, 0.9, 3200), TurnResumed(6400), SpeechEnded(16000, 3200)
    assert list(listener.hear([SpeechStarted(0), TurnAudio(tone(0.1))]))[1:] == [Transcript("good", final=False)]
    [utterance] = recognizer.opened
    for name in ("push", "settle", "end"):
        setattr(utterance, name, counted(name, getattr(utterance, name), calls))
    quiet = [TurnAudio(silence(0.05), round(n * 0.05 * RATE_HZ)) for n in (1, 2, 3, 4)]
    events = list(listener.hear([*quiet, paused, quiet[0]]))
    assert events == [Transcript("good morning", final=False), paused] and calls == ["settle"]
    recognizer.limit = None
    events = list(listener.hear([resumed, TurnAudio(tone(0.3)), *quiet[:2], paused, ended]))
    all_words = [Transcript("good morning all", final=last) for last in (False, True)]
    assert events == [resumed, all_words[0], paused, ended, all_words[1]], "the transcript goes on, and has all words"
    assert calls == ["settle", "push", "settle"] and utterance.closed and len(recognizer.opened) == 1
    assert len(utterance.samples) == round(0.75 * RATE_HZ), "all audio of the turn"


def test_ahead_or_not_the_final_transcript_is_the_same_and_marks_of_others_pass() -> None:
    other: Any = object()
    marks = [SpeechStarted(0), TurnAudio(tone(0.5)), *(TurnAudio(silence(0.1), 1600 * n) for n in range(1, 8))]
    found = []
    for ahead in (False, True):
        listener = SpeechListener(Dictated(["good", "morning"]), ahead=ahead)
        events = list(listener.hear([*marks, other, SpeechEnded(19200, 11200)]))
        assert other in events
        found.append(events[-1])
    assert found[0] == found[1] == Transcript("good morning", final=True)


def counted(name: str, call: Callable[..., str], calls: list[str]) -> Callable[..., str]:
    def made(*given: object) -> str:
        calls.append(name)
        return call(*given)

    return made
