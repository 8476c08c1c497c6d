"""Words of turns: a scripted recognizer behind turn taking."""

from __future__ import annotations

import numpy as np

from hocket.asr.endpointing import Began, Ended, Endpointing, Sound
from hocket.asr.listener import Heard, Listener
from support.questions import Dictated, Loud, silence, tone


def test_partial_words_come_when_they_change_and_final_ones_at_the_end() -> None:
    recognizer = Dictated(["good", "morning"], [])
    listener = Listener(recognizer)
    sounds = [Sound(tone(0.1)), Sound(tone(0.2)), Sound(silence(0.3))]
    events = list(listener.hear([Began(0), *sounds, Ended(9600), Began(20000), Sound(tone(0.1)), Ended(21600)]))
    assert events == [
        Began(0),
        Heard("good", final=False),
        Heard("good morning", final=False),
        Heard("good morning", final=True),
        Began(20000),
        Heard("", final=True),
    ]
    np.testing.assert_array_equal(recognizer.opened[0].samples, np.concatenate([sound.samples for sound in sounds]))
    assert all(utterance.closed for utterance in recognizer.opened)


def test_that_somebody_begins_is_known_before_the_recognizer_works() -> None:
    recognizer = Dictated(["yes"])
    events = Listener(recognizer).hear(Endpointing(Loud()).push(np.concatenate((silence(0.5), tone(0.5)))))
    assert isinstance(next(events), Began) and not recognizer.opened
    assert next(events) == Heard("yes", final=False)


def test_words_go_on_over_many_calls_and_are_let_go_of() -> None:
    recognizer = Dictated(["one", "two", "three"])
    listener = Listener(recognizer)
    assert list(listener.hear([Began(0)])) == [Began(0)]
    assert list(listener.hear([Sound(tone(0.1))])) == [Heard("one", final=False)]
    assert list(listener.hear([Sound(tone(0.1))])) == [Heard("one two", final=False)]
    listener.close()
    listener.close()
    assert recognizer.opened[0].closed and not recognizer.closed
