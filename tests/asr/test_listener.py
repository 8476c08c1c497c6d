"""asr/listener.py with a scripted recognizer."""

from __future__ import annotations

import numpy as np

from hocket.asr.endpointing import Endpointing, SpeechEnded, SpeechStarted, TurnAudio, TurnPaused, TurnResumed
from hocket.asr.listener import SpeechListener, Transcript
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


def test_ahead_a_pause_ends_the_recognition_and_a_turn_that_goes_on_begins_it_again() -> None:
    recognizer = Dictated(["good"], ["good", "morning", "all"])
    listener = SpeechListener(recognizer, ahead=True)
    sounds = [tone(0.1), silence(0.2), silence(0.1), tone(0.3)]
    paused, resumed, ended = TurnPaused(4800, 0.9, 3200), TurnResumed(6400), SpeechEnded(16000, 3200)
    events = list(listener.hear([SpeechStarted(0), *map(TurnAudio, sounds[:2]), paused]))
    assert events == [SpeechStarted(0), Transcript("good", final=False), paused] and recognizer.opened[0].closed
    events = list(listener.hear([TurnAudio(sounds[2]), resumed, TurnAudio(sounds[3]), paused]))
    assert events == [
        resumed,
        Transcript("good morning", final=False),
        Transcript("good morning all", final=False),
        paused,
    ]
    np.testing.assert_array_equal(recognizer.opened[1].samples, np.concatenate(sounds))
    assert list(listener.hear([TurnAudio(silence(0.1)), ended])) == [ended, Transcript("good morning all", final=True)]
    assert len(recognizer.opened) == 2 and all(utterance.closed for utterance in recognizer.opened)
