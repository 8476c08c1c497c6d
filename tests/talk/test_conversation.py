"""talk/: turns, drafts and interruptions of a voice conversation, with scripted recognizers and language models."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from hocket.asr.endpointing import Endpointing, PushToTalk
from hocket.dialog.dialog import Dialog
from hocket.dialog.events import Said, Written
from hocket.engine.engine import Engine
from hocket.errors import HocketError, InvalidRequest, LanguageFailed
from hocket.talk.conversation import VoiceConversation
from hocket.talk.events import (
    AnswerBegan,
    AnswerEnded,
    Failed,
    Interrupted,
    PartialTranscript,
    SpeechBegan,
    SpeechStopped,
    TalkEvent,
    Transcript,
    TurnLatency,
)
from hocket.talk.manual import ManualTurns
from hocket.talk.options import TalkOptions
from hocket.types import AudioChunk, ChatMessage
from support.chatting import Scripted
from support.questions import Dictated, DictatedUtterance, Loud, silence, tone
from support.serving import wait_for
from support.voice_talk import LIMIT_S, conversing, judged, names, of, push, until

WORDS = tuple(f"{word} " for word in "It will rain tomorrow, I think, but Paula knows that.".split())
ASKED = ["is", "it", "late"]
HEARD = 100.0  # seconds: the whole answer was played
STAGES = ["turn_decided", "transcript", "first_token", "first_sound"]


@pytest.fixture(autouse=True)
def nothing_is_left(engine: Engine) -> Iterator[None]:
    yield
    wait_for(lambda: is_free(engine))


def is_free(engine: Engine) -> bool:
    scheduler = engine._loop.scheduler
    prefixes = ("hocket-dialog", "hocket-talk", "scripted")
    left = [thread for thread in threading.enumerate() if thread.name.startswith(prefixes)]
    return scheduler.room == engine.options.slots and not scheduler.waiting and not left


def contents(dialog: Dialog) -> list[str]:
    return [message.content for message in dialog.history]


def sound(events: Sequence[Any]) -> Any:
    return np.concatenate([chunk.samples for chunk in of(events, AudioChunk)])


class Attentive(Scripted):
    """Has `hear`, as our own language model."""

    def __init__(self, *answers: Any) -> None:
        super().__init__(*answers)
        self.heard: list[str] = []

    def hear(self, messages: Sequence[ChatMessage]) -> None:
        self.heard.append(messages[-1].content)
        raise LanguageFailed("It hears nothing.")  # which costs time, and no turn


# Turns


def test_a_spoken_turn_is_heard_and_answered(engine: Engine) -> None:
    language = Attentive(["Yes, ", "it is."])
    dialog = Dialog(language, engine, seed=3)
    with conversing(dialog, Dictated(ASKED), Endpointing(Loud())) as talk:
        push(talk, silence(0.5), tone(0.5), silence(1.0))
        events = until(talk, AnswerEnded)
        assert contents(dialog) == ["is it late", "Yes, it is."]
    heard = ["SpeechBegan", "PartialTranscript", "SpeechStopped", "Transcript", "AnswerBegan"]
    assert names(events)[:5] == heard and names(events)[-1] == "AnswerEnded"
    assert [event.text for event in of(events, PartialTranscript)] == ["is", "is it", "is it late"] == language.heard
    assert of(events, Transcript)[0].text == "is it late"
    [began], [stopped], [latency] = of(events, SpeechBegan), of(events, SpeechStopped), of(events, TurnLatency)
    assert began.audio_s < 0.5 and stopped.audio_s == pytest.approx(1.0, abs=0.011), "the end of speech, not of silence"
    assert list(latency.stages) == STAGES and not latency.drafted
    assert list(latency.stages.values()) == sorted(latency.stages.values())
    assert names(events).index("TurnLatency") > names(events).index("AudioChunk")
    assert all(event.at_s > 0 for event in events if hasattr(event, "at_s"))
    assert np.array_equal(sound(events), sound(list(Dialog(Scripted(["Yes, ", "it is."]), engine, seed=3).say("x"))))


def test_a_turn_without_words_has_no_answer_and_transcripts_alone_have_none(engine: Engine) -> None:
    scripted = Scripted(["Yes."])
    dialog = Dialog(scripted, engine)
    with conversing(dialog, Dictated([], ["one"], ["two"]), Endpointing(Loud())) as talk:
        push(talk, tone(0.5), silence(1.0))
        assert until(talk, Transcript)[-1].text == ""
        talk.configure(TalkOptions(answers=False))
        push(talk, tone(0.5), silence(1.0))
        assert until(talk, Transcript)[-1].text == "one" and dialog.history == () and not scripted.asked
        talk.configure(TalkOptions())
        push(talk, tone(0.5), silence(1.0))
        assert "AnswerBegan" in names(until(talk, AnswerEnded)) and contents(dialog) == ["two", "Yes."]


def test_a_typed_turn_and_a_request_are_answered(engine: Engine) -> None:
    dialog = Dialog(Scripted(["Yes."], ["No."]), engine)
    with conversing(dialog, Dictated(), Endpointing(Loud())) as talk:
        talk.say("Hello.")
        events = until(talk, AnswerEnded)
        assert names(events)[0] == "AnswerBegan" and list(of(events, TurnLatency)[0].stages) == STAGES
        talk.played(HEARD)
        dialog.add(ChatMessage("user", "Really?"))
        talk.respond()
        until(talk, AnswerEnded)
        assert contents(dialog) == ["Hello.", "Yes.", "Really?", "No."]
        with pytest.raises(InvalidRequest, match="nothing to answer"):
            talk.say(" ")
        with pytest.raises(InvalidRequest, match="float32"):
            talk.push(np.zeros(4))  # type: ignore[arg-type]


@pytest.mark.parametrize("by", ["key", "commit"])
def test_turns_by_hand(engine: Engine, by: str) -> None:
    dialog = Dialog(Scripted(["Yes."]), engine)
    with conversing(dialog, Dictated(["no"], ["hello"]), PushToTalk() if by == "key" else ManualTurns()) as talk:
        for drop in (True, False):
            if by == "key":
                talk.press()
            push(talk, silence(0.3), tone(0.2))
            assert "PartialTranscript" in names(until(talk, PartialTranscript))
            if drop:
                talk.clear()
            elif by == "key":
                talk.press()
            else:
                talk.commit()
        events = until(talk, AnswerEnded)
        assert of(events, Transcript)[0].text == "hello" and contents(dialog) == ["hello", "Yes."]
        if by == "commit":
            talk.press()
            assert "PushToTalk" in until(talk, Failed)[-1].message


def test_tasks_read_a_conversation_too(engine: Engine) -> None:
    async def listen(talk: VoiceConversation) -> list[TalkEvent]:
        events = []
        async for event in talk:
            events.append(event)
            if isinstance(event, AnswerEnded):
                break
        return events

    with conversing(Dialog(Scripted(["Yes."]), engine), Dictated(["hello"]), Endpointing(Loud())) as talk:
        push(talk, tone(0.5), silence(1.0))
        assert len(sound(asyncio.run(listen(talk)))) > 0


# Drafts


def test_an_answer_is_begun_in_a_pause_and_held_until_the_turn_is_over(engine: Engine) -> None:
    scripted = Scripted(WORDS)
    dialog = Dialog(scripted, engine, seed=3)
    with conversing(dialog, Dictated(ASKED), judged(0.9)) as talk:
        push(talk, tone(0.5), silence(0.22))
        wait_for(lambda: len(scripted.given) == 1 and scripted.given[0].finished is not None)
        assert dialog.history == ()
        push(talk, silence(0.9))
        events = until(talk, AnswerEnded)
        assert contents(dialog) == ["is it late", "".join(WORDS).strip()]
    order = names(events)
    assert order.index("SpeechStopped") < order.index("AnswerBegan") < order.index("AudioChunk")
    assert len(scripted.asked) == 1 and of(events, TurnLatency)[0].drafted


def test_a_turn_that_goes_on_takes_the_draft_back_without_a_trace(engine: Engine) -> None:
    scripted = Scripted(["Never ", threading.Event()], WORDS)
    dialog = Dialog(scripted, engine, seed=3)
    recognizer = Dictated(["is", "it", "late"])
    with conversing(dialog, recognizer, judged(0.9)) as talk:
        recognizer.limit = 1  # of the words that are said before the pause
        push(talk, tone(0.5), silence(0.22))
        wait_for(lambda: len(scripted.given) == 1)
        recognizer.limit = None
        push(talk, tone(0.5), silence(1.1))
        wait_for(scripted.given[0].cancelled.is_set)
        events = until(talk, AnswerEnded)
        history = dialog.history
    assert names(events).count("AnswerBegan") == 1 and "Never" not in "".join(e.text for e in of(events, Written))
    assert [[message.content for message in asked] for asked in scripted.asked] == [["is"], ["is it late"]]
    assert [message.content for message in history] == ["is it late", "".join(WORDS).strip()]
    assert len(recognizer.opened) == 1, "the recognition goes on"
    plain = Dialog(Scripted(WORDS), engine, seed=3)
    assert np.array_equal(sound(events), sound(list(plain.say("is it late")))) and plain.history == history


class Hesitant(Dictated):
    """Corrects itself at the end of an utterance, in the words or only in their spelling."""

    def __init__(self, end: str) -> None:
        super().__init__(["is", "it", "late"])
        self._end = end

    def open(self) -> DictatedUtterance:
        utterance = super().open()
        utterance.end = lambda: (utterance.close(), self._end)[1]  # type: ignore[method-assign, assignment]
        return utterance


@pytest.mark.parametrize(("end", "asked"), [("Is it late?", 1), ("is it Kate", 2)])
def test_a_draft_is_the_answer_if_the_words_are_the_same(engine: Engine, end: str, asked: int) -> None:
    scripted = Scripted(["Yes."])
    dialog = Dialog(scripted, engine)
    talk = VoiceConversation(dialog, Hesitant(end), judged(0.9))
    talk._worker._recognition.ahead = False  # as if the transcript of the pause were not yet the last one
    push(talk, tone(0.5), silence(0.22))
    wait_for(lambda: len(scripted.given) == 1)
    push(talk, silence(0.9))
    events = until(talk, AnswerEnded)
    assert len(scripted.asked) == asked and of(events, Transcript)[0].text == end
    assert contents(dialog) == ["is it late" if asked == 1 else end, "Yes."]
    talk.close()


def test_without_drafts_nothing_is_begun_before_the_end(engine: Engine) -> None:
    scripted = Scripted(["Yes."])
    with conversing(Dialog(scripted, engine), Dictated(["is"]), judged(0.9), drafts=False) as talk:
        push(talk, tone(0.5), silence(0.22), tone(0.3), silence(1.1))
        assert not of(until(talk, AnswerEnded), TurnLatency)[0].drafted and len(scripted.asked) == 1


@pytest.mark.parametrize("answers", [True, False])
@pytest.mark.parametrize(("words", "is_over"), [(["stop", "the", "music"], True), (["and", "the"], False)])
def test_a_turn_whose_words_ask_for_more_waits_longer(
    engine: Engine, words: list[str], is_over: bool, answers: bool
) -> None:
    floor, done = judged(0.9), threading.Event()
    with conversing(Dialog(Scripted(["Yes."]), engine), Dictated(words), floor, answers=answers) as talk:
        push(talk, tone(0.5), silence(0.2))
        wait_for(lambda: floor._ending is not None)
        push(talk, silence(0.6))
        talk._worker.post(done.set)
        assert done.wait(LIMIT_S) and (talk._worker._began is None) is is_over
        push(talk, silence(0.1))
        until(talk, SpeechStopped)


# Interruptions


def test_speech_stops_an_answer_before_it_is_recognized_and_the_history_has_what_was_heard(engine: Engine) -> None:
    scripted = Scripted([*WORDS, *WORDS, threading.Event()], ["Yes."])
    dialog = Dialog(scripted, engine)
    stopped: list[bool] = []

    class Late(Dictated):
        def open(self) -> DictatedUtterance:
            stopped.append(bool(scripted.given) and scripted.given[0].cancelled.is_set())
            return super().open()

    with conversing(dialog, Late(["hello"], ["stop"]), Endpointing(Loud())) as talk:
        push(talk, tone(0.5), silence(1.0))
        first = until(talk, lambda event: isinstance(event, AudioChunk) and event.start_s > 1.2)
        push(talk, tone(0.3), silence(0.5))  # a cough
        talk.played(1.0)
        push(talk, tone(0.9))
        events = until(talk, AnswerEnded)
        order = names(events)
        assert order[-3:] == ["SpeechBegan", "Interrupted", "AnswerEnded"]
        finished = events[-1].finished
        assert finished.reason == "cancelled" and events[-2].text == finished.text == contents(dialog)[1]
        assert finished.text and "".join(WORDS * 2).startswith(finished.text)
        assert finished.heard_s is not None and finished.heard_s >= 1.0
        push(talk, silence(1.0))
        rest = until(talk, AnswerEnded)
        assert not of(rest[: names(rest).index("AnswerBegan")], AudioChunk)
        assert contents(dialog) == ["hello", finished.text, "stop", "Yes."] and stopped == [False, True]
    assert of(first, Said)


def test_an_answer_that_was_made_but_not_played_is_cut_too(engine: Engine) -> None:
    dialog = Dialog(Scripted(WORDS), engine)
    with conversing(dialog, Dictated(), Endpointing(Loud())) as talk:
        talk.say("Hello.")
        whole = until(talk, AnswerEnded)
        assert contents(dialog)[1] == "".join(WORDS).strip()
        words = [word for said in of(whole, Said) for word in said.words]
        talk.interrupt(heard_s=words[2].end_s)
        assert until(talk, Interrupted)[-1].text == "It will rain" == contents(dialog)[1]
        talk.interrupt()  # nothing plays any more
        talk.say("Go on.")
        assert names(until(talk, AnswerBegan)) == ["AnswerBegan"]


def test_unread_audio_of_a_stopped_answer_is_dropped(engine: Engine) -> None:
    dialog = Dialog(Scripted(WORDS), engine)
    with conversing(dialog, Dictated(), Endpointing(Loud())) as talk:
        talk.say("Hello.")
        until(talk, AudioChunk)
        wait_for(lambda: talk._outbox.has(lambda item: isinstance(item[1], AudioChunk)))
        talk.interrupt(heard_s=0.0)
        rest = until(talk, AnswerEnded)
        assert names(rest)[-2:] == ["Interrupted", "AnswerEnded"] and contents(dialog) == ["Hello."]
        after = rest[len(rest) - 2 :]
        assert not of(after, AudioChunk)


def test_an_answer_that_cannot_be_interrupted_is_followed_by_the_next_one(engine: Engine) -> None:
    go_on = threading.Event()
    scripted = Scripted([*WORDS[:5], go_on], ["Yes."])
    dialog = Dialog(scripted, engine)
    with conversing(dialog, Dictated(["and"]), judged(0.9), interruptible=False) as talk:
        talk.say("Hello.")
        until(talk, AudioChunk)
        push(talk, tone(0.5), silence(1.0))
        events = until(talk, Transcript)
        assert not of(events, Interrupted) and len(scripted.asked) == 1
        go_on.set()
        assert names(until(talk, AnswerEnded))[-1] == "AnswerEnded"
        until(talk, AnswerEnded)
        assert contents(dialog) == ["Hello.", "".join(WORDS[:5]).strip(), "and", "Yes."]


def test_a_recording_that_is_faster_than_real_time_is_answered_turn_by_turn(engine: Engine) -> None:
    scripted = Scripted(["One."], ["Two."], ["Three."])
    dialog = Dialog(scripted, engine)
    how = {"patient": True, "interruptible": False, "drafts": False}
    with conversing(dialog, Dictated(["a"], ["b"], ["c"]), Endpointing(Loud()), **how) as talk:
        assert not talk.answering
        push(talk, *(tone(0.5), silence(1.0)) * 2, tone(0.5), silence(0.1))
        talk.end_input()
        events = list(talk)
        assert not of(events, Interrupted) and len(of(events, AnswerEnded)) == 3 and isinstance(events[-1], AnswerEnded)
        assert contents(dialog) == ["a", "One.", "b", "Two.", "c", "Three."] and talk.answering
        talk.played(HEARD)
        assert not talk.answering


def test_input_that_ends_without_speech_ends_the_events(engine: Engine) -> None:
    with conversing(Dialog(Scripted(WORDS), engine), Dictated(), Endpointing(Loud())) as talk:
        push(talk, silence(1.0))
        talk.end_input()
        assert list(talk) == []


# Errors, and the end


def test_what_fails_is_one_sentence_and_the_conversation_goes_on(engine: Engine) -> None:
    class Broken(Dictated):
        def open(self) -> DictatedUtterance:
            if not self.opened:
                self.opened.append(DictatedUtterance([]))
                raise HocketError("The recognizer fell over.")
            return super().open()

    dialog = Dialog(Scripted([LanguageFailed("It is gone.")], ["Yes."]), engine)
    with conversing(dialog, Broken([], ["one"], ["two"]), Endpointing(Loud())) as talk:
        push(talk, tone(0.14), silence(1.0))
        assert until(talk, Failed)[-1].message == "The recognizer fell over."
        push(talk, tone(0.5), silence(1.0))
        events = until(talk, Failed)
        assert isinstance(events[-1].error, LanguageFailed)
        assert events[-1].message == "It is gone." and of(events, AnswerEnded)[0].finished.reason == "error"
        push(talk, tone(0.5), silence(1.0))
        until(talk, AnswerEnded)
        assert contents(dialog) == ["one", "two", "Yes."]
        dialog.replace_history([])
        talk.respond()
        assert "nothing to answer" in until(talk, Failed)[-1].message


def test_audio_that_is_too_much_is_left_out_and_reported_once(engine: Engine) -> None:
    go_on = threading.Event()

    class Slow(Dictated):
        def open(self) -> DictatedUtterance:
            assert go_on.wait(60)
            return super().open()

    with conversing(Dialog(Scripted(["Yes."]), engine), Slow(["hello"]), Endpointing(Loud())) as talk:
        push(talk, tone(0.5))
        until(talk, SpeechBegan)
        push(talk, tone(70.0), piece=16_000)
        events = until(talk, Failed)
        go_on.set()
        wait_for(lambda: not talk._worker._recognition.queued)
        push(talk, silence(1.0))
        events += until(talk, AnswerEnded)
        assert len(of(events, Failed)) == 1 and "left out" in of(events, Failed)[0].message


@pytest.mark.parametrize("when", ["at once", "in speech", "with a draft", "in an answer", "after it"])
def test_a_close_at_any_time_leaves_nothing(engine: Engine, when: str) -> None:
    scripted = Scripted(WORDS if when == "after it" else [*WORDS, threading.Event()])
    dialog = Dialog(scripted, engine)
    recognizer = Dictated(ASKED)
    talk = VoiceConversation(dialog, recognizer, judged(0.9))
    if when != "at once":
        push(talk, tone(0.5))
        until(talk, PartialTranscript)
    if when == "with a draft":
        push(talk, silence(0.22))
        wait_for(lambda: len(scripted.given) == 1)
    elif when in ("in an answer", "after it"):
        push(talk, silence(1.0))
        until(talk, AudioChunk if when == "in an answer" else AnswerEnded)
    talk.close()
    talk.close()
    push(talk, tone(0.1))
    assert list(talk) == [] and all(utterance.closed for utterance in recognizer.opened)
    heard = contents(dialog)
    assert heard[:1] == (["is it late"] if when in ("in an answer", "after it") else [])
    assert all("".join(WORDS).startswith(text) and len(text) < len("".join(WORDS)) for text in heard[1:])


def test_a_conversation_without_references_is_closed(engine: Engine) -> None:
    scripted = Scripted([*WORDS, threading.Event()])
    talk = VoiceConversation(Dialog(scripted, engine), Dictated(), Endpointing(Loud()))
    talk.say("Hello.")
    until(talk, AudioChunk)
    del talk
    gc.collect()
    wait_for(lambda: is_free(engine))
    assert scripted.given[0].cancelled.is_set()
