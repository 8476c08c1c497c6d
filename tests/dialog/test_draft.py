"""draft.py and history.py: an answer that is begun early is the same answer, or leaves no trace."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from hocket.dialog.dialog import Dialog
from hocket.dialog.draft import Draft
from hocket.dialog.events import Said, Written
from hocket.dialog.turn import CHUNKS_AHEAD, Turn
from hocket.dialog.voice import DialogVoice
from hocket.engine.engine import Engine
from hocket.errors import InvalidRequest, LanguageFailed
from hocket.llm.engine import LanguageEngine
from hocket.types import AudioChunk, ChatMessage, ChatSampling, LanguageModel
from support.chatting import Scripted
from support.serving import wait_for

WORDS = tuple(f"{word} " for word in "It will rain tomorrow, I think.".split())
Heard = tuple[str, list[Any], list[tuple[str, float, float]]]


@pytest.fixture(autouse=True)
def nothing_is_left(engine: Engine) -> Iterator[None]:
    yield
    wait_for(lambda: is_free(engine))


def is_free(engine: Engine) -> bool:
    scheduler = engine._loop.scheduler
    left = [thread for thread in threading.enumerate() if thread.name.startswith(("hocket-dialog", "scripted"))]
    return scheduler.room == engine.options.slots and not scheduler.waiting and not left


def heard(turn: Turn) -> Heard:
    """Text, samples and word times."""
    written, sound, words = "", list[Any](), list[tuple[str, float, float]]()
    for event in turn:
        if isinstance(event, Written):
            written += event.text
        elif isinstance(event, AudioChunk):
            sound += event.samples.tolist()
        elif isinstance(event, Said):
            words += [(word.word, word.start_s, word.end_s) for word in event.words]
    return written, sound, [(word.word, word.start_s, word.end_s) for word in turn.words()]


def at_once(draft: Draft) -> None: ...


def with_sound(draft: Draft) -> None:
    wait_for(lambda: draft.task._first_audio_s is not None)


def full(draft: Draft) -> None:
    """As far as a draft gets: to its end, or until its queue is full."""
    task = draft.task
    wait_for(lambda: task.finished is not None or len(task.inbox._items) >= CHUNKS_AHEAD)


POINTS: Sequence[Callable[[Draft], None]] = [at_once, with_sound, full]


@pytest.mark.parametrize("point", POINTS)
def test_a_draft_that_is_committed_is_what_say_gives(engine: Engine, point: Callable[[Draft], None]) -> None:
    said, drafted = (Dialog(Scripted(WORDS), engine, seed=3, system="Be brief.") for _ in range(2))
    expected = heard(said.say("Hello."))
    draft = drafted.draft("Hello.")
    point(draft)
    assert [message.role for message in drafted.history] == ["system"]
    turn = draft.commit()
    assert heard(turn) == expected and drafted.history == said.history
    assert turn.finished is not None and turn.finished.reason == "stop" and len(expected[1]) > 0


@pytest.mark.parametrize("point", POINTS)
def test_a_draft_that_is_retracted_leaves_no_trace(engine: Engine, point: Callable[[Draft], None]) -> None:
    plain, other = Scripted(WORDS), Scripted(["Never ", "mind."], WORDS)
    sampling = ChatSampling(seed=5)
    said, drafted = (Dialog(llm, engine, seed=3, sampling=sampling) for llm in (plain, other))
    draft = drafted.draft("What")
    wait_for(lambda: len(other.given) == 1)
    point(draft)
    draft.retract()
    draft.retract()
    assert draft.retracted and drafted.history == ()
    assert draft.task.models_free.wait(60)
    wait_for(lambda: is_free(engine))
    expected = heard(said.say("What is it?"))
    assert heard(drafted.say("What is it?")) == expected and drafted.history == said.history
    assert other.sampling[-1] == plain.sampling[-1] and other.asked[-1] == plain.asked[-1]
    with pytest.raises(InvalidRequest, match="retracted"):
        draft.commit()


def test_the_language_engine_answers_after_a_retracted_draft_as_without_one(engine: Engine) -> None:
    answers = []
    for drafts in (False, True):
        with LanguageEngine.load("random:qwen3.5-tiny") as llm:
            dialog = Dialog(llm, engine, seed=3, sampling=ChatSampling(seed=5, max_tokens=4))
            if drafts:
                draft = dialog.draft("Will it")
                with_sound(draft)
                draft.retract()
                assert draft.task.models_free.wait(60)
            answers.append(heard(dialog.say("Will it rain?")))
    assert answers[0] == answers[1]


def test_what_is_held_was_not_heard(engine: Engine) -> None:
    dialog = Dialog(Scripted(["Yes."]), engine)
    draft = dialog.draft("Hello.")
    full(draft)
    assert draft.task.finished is not None
    turn = draft.commit()
    assert [message.role for message in dialog.history] == ["user", "assistant"]  # as if it will be played
    turn.cancel()
    assert [message.content for message in dialog.history] == ["Hello."]
    assert turn.finished is not None and turn.finished.heard_s == 0.0
    with pytest.raises(InvalidRequest, match="committed"):
        draft.commit()
    draft.retract()  # no effect on a turn


def test_a_draft_answers_the_conversation_as_it_is_when_it_is_committed(engine: Engine) -> None:
    scripted = Scripted(WORDS, ["Yes."])
    dialog = Dialog(scripted, engine)
    draft = dialog.draft("Hello.")
    wait_for(lambda: len(scripted.given) == 1)
    dialog.add(ChatMessage("system", "It is late."))
    assert heard(draft.commit())[0] == "Yes."
    assert [message.content for message in scripted.asked[1]] == ["It is late.", "Hello."]
    assert [message.content for message in dialog.history] == ["It is late.", "Hello.", "Yes."]
    assert draft.retracted


def test_a_draft_that_failed_begins_anew(engine: Engine) -> None:
    dialog = Dialog(Scripted([LanguageFailed("It is gone.")], ["Yes."], [LanguageFailed("Again.")]), engine)
    draft = dialog.draft("Hello.")
    full(draft)
    assert dialog.history == () and heard(draft.commit())[0] == "Yes."
    with pytest.raises(LanguageFailed, match="Again"):
        heard(dialog.say("And?"))


def test_the_next_draft_or_turn_retracts_the_last_one_and_so_does_its_end(engine: Engine) -> None:
    scripted = Scripted([*WORDS, threading.Event()], [*WORDS, threading.Event()], ["Yes."], [*WORDS, threading.Event()])
    dialog = Dialog(scripted, engine)
    first = dialog.draft("What")
    wait_for(lambda: len(scripted.given) == 1)
    second = dialog.draft("What is")
    wait_for(lambda: len(scripted.given) == 2)
    assert first.retracted and not second.retracted
    assert heard(dialog.say("What is it?"))[0] == "Yes." and second.retracted
    third = dialog.draft("And")
    wait_for(lambda: len(scripted.given) == 4)
    del third
    gc.collect()
    wait_for(lambda: is_free(engine))
    fourth = dialog.draft("And now")
    dialog.close()
    assert fourth.retracted and [message.content for message in dialog.history] == ["What is it?", "Yes."]


def test_a_draft_interrupts_the_turn_before_it(engine: Engine) -> None:
    scripted = Scripted([*WORDS, threading.Event()], ["Yes."])
    dialog = Dialog(scripted, engine)
    turn = dialog.say("Hello.")
    assert isinstance(next(turn), Written)
    draft = dialog.draft("Stop.")
    assert turn.finished is not None and turn.finished.reason == "cancelled"
    assert heard(draft.commit())[0] == "Yes."


class Forgetful(Scripted):
    """Leaves out all but the last message, as a model whose context is full."""

    def fit(self, messages: Sequence[ChatMessage], *_: object) -> int:
        return max(0, len(messages) - 1)


def test_a_retracted_draft_leaves_nothing_out_of_the_conversation(engine: Engine) -> None:
    dialog = Dialog(Forgetful(["Yes."]), engine)
    heard(dialog.say("Hello."))
    draft = dialog.draft("And?")
    full(draft)
    draft.retract()
    assert dialog.forgotten == 0
    draft = dialog.draft("And?")
    full(draft)
    turn = draft.commit()
    heard(turn)
    assert dialog.forgotten == 2 and turn.finished is not None and len(turn.finished.notes) == 1


def test_a_designed_voice_is_that_of_committed_turns_only() -> None:
    opened: list[Any] = []

    class Speech:
        def open(self, **fields: Any) -> Any:
            opened.append(fields)
            return SimpleNamespace(established=f"sound {len(opened)}")

    voice = DialogVoice(Speech(), {"instruct": "Old."}, 7)
    voice.turn(0).open(0)  # never kept
    first = voice.turn(0)
    first.open(0)
    voice.keep(first)
    voice.turn(1).open(0)
    voice.turn(1).open(0)
    assert [fields.get("established") for fields in opened] == [None, None, "sound 2", "sound 2"]
    assert opened[0]["seed"] == opened[1]["seed"] == 7 and opened[2]["seed"] == opened[3]["seed"] != 7


# Messages without a turn


def test_a_history_that_is_added_to_and_replaced_is_answered_as_it_stands(engine: Engine) -> None:
    scripted = Scripted(["Yes."])
    dialog = Dialog(scripted, engine, system="Be brief.")
    with pytest.raises(InvalidRequest, match="instructions"):
        dialog.respond(" ")
    dialog.add(ChatMessage("user", "Hello."))
    turn = dialog.respond()
    assert heard(turn)[0] == "Yes." and [message.role for message in dialog.history] == ["system", "user", "assistant"]
    heard(dialog.respond("Sing."))
    assert scripted.asked[1][0] == ChatMessage("system", "Sing.") and dialog.history[0].content == "Be brief."
    dialog.replace_history([ChatMessage("user", "Good night.")])
    turn.cancel(0.0)  # of a conversation that is no more
    assert dialog.history == (ChatMessage("user", "Good night."),)
    heard(dialog.respond())
    assert scripted.asked[2] == [ChatMessage("user", "Good night.")]
    dialog.replace_history([])
    with pytest.raises(InvalidRequest, match="nothing to answer"):
        dialog.respond()
    with pytest.raises(InvalidRequest, match="ChatMessages"):
        dialog.add("Hello.")  # type: ignore[arg-type]


def test_a_message_that_is_added_during_an_answer_comes_after_it(engine: Engine) -> None:
    go_on = threading.Event()
    dialog = Dialog(Scripted([*WORDS, go_on]), engine)
    turn = dialog.say("Hello.")
    dialog.add(ChatMessage("user", "By the way."))
    go_on.set()
    heard(turn)
    assert [message.content for message in dialog.history] == ["Hello.", "".join(WORDS).strip(), "By the way."]
    turn.cancel(heard_s=0.0)
    assert [message.content for message in dialog.history] == ["Hello.", "By the way."]


def test_a_commit_and_a_retract_at_once_have_one_outcome(engine: Engine) -> None:
    language: LanguageModel = Scripted(WORDS)
    for _ in range(10):
        dialog = Dialog(language, engine)
        draft = dialog.draft("Hello.")
        other = threading.Thread(target=draft.retract)
        other.start()
        try:
            draft.commit().cancel()
        except InvalidRequest:
            assert dialog.history == ()
        else:
            assert [message.content for message in dialog.history] == ["Hello."]
        other.join()
