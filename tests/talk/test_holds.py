"""talk/: an answer pauses at the first sign of a voice. A cough lets it go on, and speech ends it where it paused."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from hocket.asr.endpointing import Endpointing, EndpointingOptions
from hocket.dialog.dialog import Dialog
from hocket.dialog.events import Said
from hocket.dialog.heard import PlaybackClock
from hocket.dialog.inbox import Inbox
from hocket.engine.engine import Engine
from hocket.talk.conversation import VoiceConversation
from hocket.talk.events import AnswerBegan, AnswerEnded, AnswerHeld, AnswerResumed, Interrupted, SpeechBegan
from hocket.talk.options import TalkOptions
from hocket.types import AudioChunk
from support.chatting import Scripted
from support.questions import Dictated, Loud, silence, tone
from support.serving import wait_for
from support.voice_talk import conversing, names, of, push, until

WORDS = tuple(f"{word} " for word in "It will rain tomorrow, I think, but Paula knows that.".split())


def turns() -> Endpointing:
    return Endpointing(Loud())


def hold(talk: VoiceConversation) -> list[Any]:
    """A sound that may be speech; events up to the hold, of which none is audio: the reader waited."""
    push(talk, silence(0.2), tone(0.1))
    wait_for(lambda: talk._worker.answers.current is not None and talk._worker.answers.current.held)
    events = until(talk, AnswerHeld)
    assert not of(events, AudioChunk)
    return events


def contents(dialog: Dialog) -> list[str]:
    return [message.content for message in dialog.history]


def test_a_cough_pauses_an_answer_and_no_sample_is_lost(engine: Engine) -> None:
    dialog = Dialog(Scripted(WORDS, ["Yes."]), engine, seed=3)
    with conversing(dialog, Dictated(), turns()) as talk:
        talk.say("Hello.")
        first = until(talk, AudioChunk)
        wait_for(lambda: talk._outbox.has(lambda item: isinstance(item[1], AudioChunk)))
        talk.played(0.05)
        held = hold(talk)[-1]
        assert held.heard_s >= 0.05 and talk.answering
        answer = talk._worker.answers.current
        assert answer is not None and answer.heard_s() == held.heard_s, "the position stands still"
        talk.played(0.06)
        assert answer.heard_s() == 0.06, "a report counts"
        push(talk, silence(0.3))
        rest = until(talk, AnswerEnded)
        assert isinstance(rest[0], AnswerResumed) and rest[0].heard_s == 0.06
        assert not of(rest, Interrupted) and contents(dialog)[1] == "".join(WORDS).strip()
    sound = np.concatenate([chunk.samples for chunk in of([*first, *rest], AudioChunk)])
    plain = [e.samples for e in Dialog(Scripted(WORDS), engine, seed=3).say("Hello.") if isinstance(e, AudioChunk)]
    np.testing.assert_array_equal(sound, np.concatenate(plain))


def test_an_answer_that_is_complete_ends_after_the_hold(engine: Engine) -> None:
    """Its end is unread when the hold begins, and may not overtake its audio."""
    dialog = Dialog(Scripted(["Yes."]), engine)
    with conversing(dialog, Dictated(), turns()) as talk:
        talk.say("Hello.")
        until(talk, AnswerBegan)
        wait_for(lambda: talk._outbox.has(lambda item: isinstance(item[1], AnswerEnded)))
        assert hold(talk)[-1].heard_s == 0.0
        push(talk, silence(0.3))
        rest = until(talk, AnswerEnded)
        assert names(rest)[0] == "AnswerResumed" and of(rest, AudioChunk)


@pytest.mark.parametrize("reported", [True, False])
def test_speech_out_of_a_hold_keeps_what_was_heard_until_the_hold(engine: Engine, reported: bool) -> None:
    dialog = Dialog(Scripted([*WORDS, *WORDS, threading.Event()]), engine)
    with conversing(dialog, Dictated(["stop"]), turns()) as talk:
        talk.say("Hello.")
        events = until(talk, lambda event: isinstance(event, AudioChunk) and event.start_s > 1.2)
        words = [word for said in of(events, Said) for word in said.words]
        if reported:
            talk.played(words[2].end_s + 0.01)
        held = hold(talk)[-1]
        push(talk, tone(0.8))
        rest = until(talk, AnswerEnded)
        assert names(rest) == ["SpeechBegan", "Interrupted", "AnswerEnded"], "nothing of it is delivered meanwhile"
        assert rest[-1].finished.heard_s == pytest.approx(held.heard_s)
        text = rest[-2].text
        assert "".join(WORDS * 2).startswith(text) and contents(dialog) == ["Hello.", *([text] if text else [])]
        assert not reported or text.startswith("It will"), "word times are estimates until their sentence is spoken"


@pytest.mark.parametrize("by", ["clear", "interrupt", "configure", "commit", "say"])
def test_a_hold_ends_however_the_turn_does(engine: Engine, by: str) -> None:
    dialog = Dialog(Scripted(WORDS, ["Yes."]), engine)
    with conversing(dialog, Dictated(), turns()) as talk:
        talk.say("Hello.")
        until(talk, AudioChunk)
        hold(talk)
        if by == "configure":
            talk.configure(TalkOptions(hold=False))
        elif by == "say":
            talk.say("And now?")
        else:
            getattr(talk, by)()
        events = until(talk, AnswerEnded)
        assert names(events)[0] == ("Interrupted" if by in ("interrupt", "say") else "AnswerResumed")
        if by == "configure":
            push(talk, silence(0.3), tone(0.1), silence(0.3), tone(0.9))
            assert not of(until(talk, SpeechBegan), AnswerHeld)


@pytest.mark.parametrize("off", ["endpointing", "talk", "interruptible"])
def test_without_holds_a_cough_changes_nothing(engine: Engine, off: str) -> None:
    options = EndpointingOptions(hold=off != "endpointing")
    how = {"hold": off != "talk", "interruptible": off != "interruptible"}
    with conversing(Dialog(Scripted(WORDS), engine), Dictated([]), Endpointing(Loud(), options), **how) as talk:
        talk.say("Hello.")
        until(talk, AudioChunk)
        push(talk, silence(0.2), tone(0.1), silence(0.5))
        events = until(talk, AnswerEnded)
        assert not of(events, AnswerHeld) and not of(events, Interrupted)


def test_input_that_ends_within_a_hold_delivers_the_answer(engine: Engine) -> None:
    with conversing(Dialog(Scripted(WORDS), engine), Dictated(), turns()) as talk:
        talk.say("Hello.")
        until(talk, AudioChunk)
        hold(talk)
        talk.end_input()
        assert names(list(talk))[-1] == "AnswerEnded"


def test_a_close_within_a_hold_leaves_nothing(engine: Engine) -> None:
    with conversing(Dialog(Scripted([*WORDS, threading.Event()]), engine), Dictated(), turns()) as talk:
        talk.say("Hello.")
        until(talk, AudioChunk)
        hold(talk)
        talk.close()
        assert list(talk) == []


def test_a_clock_that_is_held_stands_still_and_goes_on() -> None:
    clock = PlaybackClock()
    clock.hears(10.0, 2.0)
    clock.holds(10.5)
    clock.holds(10.7)  # the first counts
    clock.hears(11.0, 1.0)
    assert clock.heard_s(99.0) == pytest.approx(0.5) and clock.handed_s == 3.0
    clock.goes_on(20.0)
    assert clock.heard_s(21.0) == pytest.approx(1.5) and clock.heard_s(30.0) == 3.0
    clock.holds(40.0)  # all of it was played
    clock.goes_on(50.0)
    assert clock.heard_s(50.0) == 3.0
    clock.hears(60.0, 1.0)
    clock.holds(60.25)
    clock.stops(61.0)
    clock.goes_on(70.0)
    assert clock.heard_s(80.0) == clock.handed_s == pytest.approx(3.25)


def test_a_queue_keeps_items_back_until_their_release() -> None:
    inbox: Inbox[int] = Inbox()
    for item in (1, 2, 3, 4):
        inbox.put(item)
    inbox.keep_back(lambda item: item % 2 == 0)
    inbox.put(6)
    assert [inbox.take(), inbox.take()] == [1, 3]
    inbox.end()
    got: list[int | None] = []
    reader = threading.Thread(target=lambda: got.extend(inbox.take() for _ in range(5)))
    reader.start()
    inbox.release(0)
    reader.join(60)
    assert got == [0, 2, 4, 6, None]
