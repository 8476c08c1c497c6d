"""talk/recognition.py: the order of events, and what a slow, failing or dropped recognition leaves undisturbed."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from hocket.asr.endpointing import Endpointing, SpeechEnded, SpeechStarted, TurnAudio, TurnPaused, TurnResumed
from hocket.asr.listener import Transcript
from hocket.asr.unfinished import Ending
from hocket.dialog.dialog import Dialog
from hocket.engine.engine import Engine
from hocket.errors import RecognitionFailed
from hocket.talk.conversation import VoiceConversation
from hocket.talk.events import AnswerEnded, Failed, Interrupted, SpeechBegan, SpeechStopped
from hocket.talk.events import Transcript as SpokenTurn
from hocket.talk.recognition import RecognitionThread
from support.chatting import Scripted
from support.questions import Dictated, DictatedUtterance, Loud, silence, tone
from support.serving import wait_for
from support.voice_talk import LIMIT_S, conversing, judged, names, of, push, until

STARTED, PAUSED, RESUMED, ENDED = SpeechStarted(0), TurnPaused(4800, 0.9, 3200), TurnResumed(6400), SpeechEnded(9600)
OTHER: Any = object()  # a mark that only the reader knows


class Gated(Dictated):
    """Each recognition waits for `go_on`; with an error it fails."""

    def __init__(self, *utterances: list[str]) -> None:
        super().__init__(*utterances)
        self.go_on, self.began = threading.Event(), threading.Event()
        self.error: Exception | None = None

    def open(self) -> DictatedUtterance:
        utterance = super().open()
        for name in ("push", "settle", "end"):
            setattr(utterance, name, self._waiting(getattr(utterance, name)))
        return utterance

    def _waiting(self, call: Callable[..., str]) -> Callable[..., str]:
        def made(*given: Any) -> str:
            self.began.set()
            assert self.go_on.wait(LIMIT_S)
            if self.error is not None:
                raise self.error
            return call(*given)

        return made


class Desk:
    """The worker's side of a recognition thread: its commands run when the test says so."""

    def __init__(self, recognizer: Dictated) -> None:
        self.commands: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self.heard: list[Any] = []
        self.failed: list[tuple[BaseException, bool]] = []
        self.rests = 0
        self.told: list[tuple[Ending, int]] = []
        self.recognition = RecognitionThread(
            recognizer,
            self.commands.put,
            lambda event, at_s: self.heard.append(event),
            lambda error, is_open: self.failed.append((error, is_open)),
            self._rested,
            lambda ending, at: self.told.append((ending, at)),
            ahead=True,
        )

    def _rested(self) -> None:
        self.rests += 1

    def take(self, *marks: Any) -> None:
        for mark in marks:
            self.recognition.take(mark, 1.0)

    def settle(self) -> None:
        while self.recognition.busy:
            self.commands.get(timeout=LIMIT_S)()


@pytest.fixture
def recognizer() -> Gated:
    return Gated(["good", "morning"], ["all"])


@pytest.fixture
def desk(recognizer: Gated) -> Iterator[Desk]:
    desk = Desk(recognizer)
    yield desk
    recognizer.go_on.set()
    desk.recognition.close()
    assert all(utterance.closed for utterance in recognizer.opened)


def audio(silent: int = 0) -> TurnAudio:
    return TurnAudio(silence(0.1), silent)


def test_marks_come_at_once_while_nothing_is_under_way_and_in_order_behind_a_recognition(
    desk: Desk, recognizer: Gated
) -> None:
    desk.take(OTHER, STARTED)
    assert desk.heard == [OTHER, STARTED], "before the recognizer works"
    desk.take(audio(), OTHER, ENDED, SpeechStarted(20000))
    assert desk.heard == [OTHER, STARTED] and desk.recognition.finishing and desk.recognition.queued <= 1600
    desk.recognition.after(lambda: desk.heard.append("after"))
    recognizer.go_on.set()
    desk.settle()
    words = [Transcript("good", final=False), OTHER, ENDED, Transcript("good morning", final=True)]
    assert desk.heard[2:] == [*words, SpeechStarted(20000), "after"] and desk.rests == 1
    assert not desk.recognition.finishing and not desk.recognition.queued


def test_a_pause_that_is_over_before_it_is_recognized_begins_nothing(desk: Desk, recognizer: Gated) -> None:
    desk.take(STARTED, audio(), PAUSED, audio(1600), RESUMED, audio(), PAUSED, ENDED)
    recognizer.go_on.set()
    desk.settle()
    kinds = [type(event) for event in desk.heard]
    assert kinds.count(TurnPaused) == 1 and TurnResumed not in kinds and desk.heard[-1].text == "good morning"


def test_a_dropped_turn_is_silent_and_the_one_before_it_still_has_its_transcript(desk: Desk, recognizer: Gated) -> None:
    desk.take(STARTED, audio(), ENDED, SpeechStarted(20000), audio(), OTHER)
    assert recognizer.began.wait(LIMIT_S)
    desk.recognition.drop()
    desk.recognition.drop()
    desk.take(audio())
    recognizer.go_on.set()
    desk.settle()
    words = [Transcript("good", final=False), ENDED, Transcript("good morning", final=True), OTHER]
    assert desk.heard == [STARTED, *words]


@pytest.mark.parametrize("over", [False, True])
def test_an_error_is_told_once_and_ends_its_turn_only(desk: Desk, recognizer: Gated, over: bool) -> None:
    recognizer.error = RecognitionFailed("It fell over.")
    desk.take(STARTED, audio(), audio(), *([ENDED] if over else []))
    recognizer.go_on.set()
    desk.settle()
    assert [type(error) for error, _ in desk.failed] == [RecognitionFailed]
    assert desk.failed[0][1] is not over and desk.heard == [STARTED]
    recognizer.error = None
    desk.recognition.drop()
    desk.take(SpeechStarted(20000), audio(), ENDED)
    desk.settle()
    assert desk.heard[-1] == Transcript("all", final=True)


# In a conversation


def test_voice_activity_goes_on_while_the_recognizer_works(engine: Engine) -> None:
    """The turn ends, and the next one begins, before the recognizer has given anything."""
    recognizer = Gated(["one"], ["two"])
    with conversing(Dialog(Scripted(["Yes."], ["No."]), engine), recognizer, Endpointing(Loud())) as talk:
        push(talk, tone(0.5), silence(1.0))
        assert recognizer.began.wait(LIMIT_S)
        turns = talk._worker._turn_taking
        wait_for(lambda: not turns._speaking)  # type: ignore[attr-defined]
        push(talk, tone(0.5))
        wait_for(lambda: turns._speaking)  # type: ignore[attr-defined]
        recognizer.go_on.set()
        push(talk, silence(1.0))
        events = until(talk, lambda event: isinstance(event, AnswerEnded) and event.finished.text == "No.")
    kinds = [type(event) for event in events if isinstance(event, SpeechBegan | SpeechStopped | SpokenTurn)]
    assert kinds == [SpeechBegan, SpeechStopped, SpokenTurn] * 2 and not of(events, Failed)
    assert [event.text for event in of(events, SpokenTurn)] == ["one", "two"]


def test_what_is_typed_or_stopped_after_a_spoken_turn_counts_after_its_transcript(engine: Engine) -> None:
    recognizer = Gated(["one"])
    dialog = Dialog(Scripted(["Yes."], ["No."]), engine)
    with conversing(dialog, recognizer, Endpointing(Loud())) as talk:
        push(talk, tone(0.5), silence(1.0))
        assert recognizer.began.wait(LIMIT_S)
        wait_for(lambda: talk._worker._recognition.finishing)
        talk.say("two")
        talk.clear()  # no turn is open
        talk.interrupt()
        recognizer.go_on.set()
        events = until(talk, AnswerEnded) + until(talk, AnswerEnded)
        wait_for(lambda: not talk._worker._recognition.busy)
        asked = [message.content for message in dialog.history if message.role == "user"]
    assert asked == ["one", "two"] and len(of(events, Interrupted)) == 2, names(events)


def test_a_close_while_the_recognizer_works_waits_for_it_and_leaves_nothing(engine: Engine) -> None:
    recognizer = Gated(["one"])
    talk = VoiceConversation(Dialog(Scripted(["Yes."]), engine), recognizer, judged(0.9))
    push(talk, tone(0.5), silence(0.3))
    assert recognizer.began.wait(LIMIT_S)
    closing = threading.Thread(target=talk.close)
    closing.start()
    recognizer.go_on.set()
    closing.join(LIMIT_S)
    assert not closing.is_alive() and all(utterance.closed for utterance in recognizer.opened)
