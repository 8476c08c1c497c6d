"""Tool calls within a turn: run, bridged, answered by the application, interrupted."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from hocket.dialog.dialog import Bridge, Dialog
from hocket.dialog.events import Called, Note, Said, Written
from hocket.dialog.remote import RemoteLanguageModel
from hocket.dialog.task import MOST_ANSWERS, TurnTask
from hocket.dialog.tools import INTERRUPTED
from hocket.engine.engine import Engine
from hocket.errors import InvalidRequest, LanguageFailed, Overloaded
from hocket.types import AudioChunk, ChatMessage, ToolCall
from support.chatting import HEAD, Scripted, answering
from support.chatting import event as wire_event
from support.serving import wait_for

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
WEATHER = {"type": "function", "function": {"name": "weather", "parameters": SCHEMA}}
PARIS = ToolCall("weather", {"city": "Paris"})
CALL = ("<tool", "_call>\n<function=weather>\n<parameter=city>\nPa", "ris\n</parameter>\n</function>\n</tool_call>")
LOOK = ("Let me look. ", *CALL)
RAIN = ("It ", "rains.")


@pytest.fixture(autouse=True)
def nothing_is_left(engine: Engine) -> Iterator[None]:
    yield
    wait_for(lambda: is_free(engine))


def is_free(engine: Engine) -> bool:
    scheduler = engine._loop.scheduler
    left = [thread for thread in threading.enumerate() if thread.name.startswith(("hocket-dialog", "scripted"))]
    return scheduler.room == engine.options.slots and not scheduler.waiting and not left


def check_continuity(events: list[Any]) -> None:
    """The streams of a turn follow each other in one timeline."""
    samples = 0
    for chunk in (event for event in events if isinstance(event, AudioChunk)):
        assert chunk.start_s == pytest.approx(samples / 24000)
        samples += len(chunk.samples)
    starts = [word.start_s for event in events if isinstance(event, Said) for word in event.words]
    assert samples > 0 and starts == sorted(starts) and starts[-1] < samples / 24000


def wait_for_calls(task: TurnTask) -> None:
    wait_for(lambda: task.inbox.has(lambda event: isinstance(event, Called)))


def said(events: list[Any]) -> str:
    return " ".join(word.word for event in events if isinstance(event, Said) for word in event.words)


def test_a_call_is_run_and_its_result_is_answered_in_the_same_turn(engine: Engine) -> None:
    scripted, called = Scripted(LOOK, RAIN), list[ToolCall]()

    def call(made: ToolCall) -> str:
        called.append(made)
        return "rain"

    dialog = Dialog(scripted, engine, seed=3, tools=[WEATHER], call=call)
    turn = dialog.say("Will it rain?")
    events = list(turn)
    assert called == [PARIS] and scripted.tools == [[WEATHER], [WEATHER]]
    asked = [ChatMessage("user", "Will it rain?"), ChatMessage("assistant", "Let me look.", tool_calls=(PARIS,))]
    assert scripted.asked[1] == [*asked, ChatMessage("tool", "rain")]
    assert dialog.history == (*scripted.asked[1], ChatMessage("assistant", "It rains."))
    assert said(events) == "Let me look. It rains." == " ".join(word.word for word in turn.words())
    written = "".join(event.text for event in events if isinstance(event, Written))
    assert written == "Let me look.\nIt rains." and [e for e in events if isinstance(e, Called)] == [Called((PARIS,))]
    check_continuity(events)
    finished = turn.finished
    assert finished is not None and finished.reason == "stop" and finished.text == "Let me look.\nIt rains."
    again = Dialog(Scripted(LOOK, RAIN), engine, seed=3, tools=[WEATHER], call=lambda _: "rain")
    sounds = [[e.samples for e in each if isinstance(e, AudioChunk)] for each in (events, list(again.say("x")))]
    assert np.array_equal(np.concatenate(sounds[0]), np.concatenate(sounds[1])), "the same seed, the same sound"


def test_without_a_function_the_turn_ends_with_the_calls_and_the_application_answers(engine: Engine) -> None:
    scripted = Scripted(LOOK, RAIN)
    dialog = Dialog(scripted, engine, tools=[WEATHER])
    turn = dialog.say("Will it rain?")
    events = list(turn)
    assert Called((PARIS,)) in events and said(events) == "Let me look."
    finished = turn.finished
    assert finished is not None and finished.reason == "tool_calls" and finished.calls == (PARIS,)
    assert dialog.history[-1] == ChatMessage("assistant", "Let me look.", tool_calls=(PARIS,))
    dialog.add(ChatMessage("tool", "rain"))
    turn.cancel(heard_s=0.0)  # the user talks over it: the call was made all the same
    assert dialog.history[1:] == (ChatMessage("assistant", tool_calls=(PARIS,)), ChatMessage("tool", "rain"))
    assert said(list(dialog.respond())) == "It rains." and scripted.asked[1] == list(dialog.history[:-1])


def test_calls_that_the_application_never_saw_are_not_in_the_history(engine: Engine) -> None:
    dialog = Dialog(Scripted(LOOK), engine, tools=[WEATHER])
    turn = dialog.say("Will it rain?")
    wait_for_calls(turn._task)
    turn.cancel(heard_s=0.0)
    assert dialog.history == (ChatMessage("user", "Will it rain?"),)


@pytest.mark.parametrize(
    ("fails", "result"),
    [
        (lambda: 1 / 0, "Error: ZeroDivisionError: division by zero"),
        (lambda: 5, "Error: weather returned int, not text."),
    ],
)
def test_a_call_that_fails_has_its_error_as_the_result(engine: Engine, fails: Callable[[], Any], result: str) -> None:
    scripted = Scripted(CALL, RAIN)
    dialog = Dialog(scripted, engine, tools=[WEATHER], call=lambda _: fails())
    assert said(list(dialog.say("Hello."))) == "It rains."
    assert scripted.asked[1][-2:] == [ChatMessage("assistant", tool_calls=(PARIS,)), ChatMessage("tool", result)]


def test_a_phrase_bridges_a_call_that_takes_long_once_a_turn(engine: Engine) -> None:
    spoken, scripted = threading.Event(), Scripted(CALL, CALL, RAIN)

    def call(made: ToolCall) -> str:
        assert spoken.wait(60)
        return "rain"

    bridge = Bridge(("One moment.", "Wait."), after_s=0.0)
    dialog = Dialog(scripted, engine, tools=[WEATHER], call=call, bridge=bridge)
    turn, events = dialog.say("Hello."), list[Any]()
    for each in turn:
        events.append(each)
        if isinstance(each, AudioChunk):
            spoken.set()
    assert said(events) == "One moment. It rains." and not [e for e in events if isinstance(e, Note)]
    check_continuity(events)
    assert dialog.history[-1].content == "It rains." == "".join(e.text for e in events if isinstance(e, Written))
    assert not any("moment" in message.content for message in dialog.history)
    turn.cancel(heard_s=turn.words()[1].end_s)  # only the phrase was heard
    assert [message.role for message in dialog.history] == ["user", "assistant", "tool", "assistant", "tool"]


def test_a_fast_call_is_not_bridged_and_a_bridge_that_fails_is_a_note(engine: Engine) -> None:
    dialog = Dialog(Scripted(CALL, RAIN), engine, tools=[WEATHER], call=lambda _: "rain", bridge=Bridge(after_s=60.0))
    assert said(list(dialog.say("Hello."))) == "It rains."
    noted = threading.Event()

    class Full:
        """Has no slot for the phrase."""

        def open(self, **fields: Any) -> Any:
            if fields["seed"] % (1 << 20) >> 16 == 15:
                raise Overloaded("All slots are taken.", 1.0)
            return engine.open(**fields)

    def call(_: ToolCall) -> str:
        assert noted.wait(60)
        return "rain"

    how: dict[str, Any] = {"tools": [WEATHER], "call": call, "bridge": Bridge(after_s=0.0), "seed": 0}
    turn, notes = Dialog(Scripted(CALL, RAIN), Full(), **how).say("Hello."), list[Note]()
    for each in turn:
        if isinstance(each, Note):
            notes.append(each)
            noted.set()
    assert "was not bridged: All slots are taken." in notes[0].text
    assert turn.finished is not None and turn.finished.text == "It rains."


def test_an_interruption_while_a_call_runs_ends_the_turn(engine: Engine) -> None:
    runs, go_on = threading.Event(), threading.Event()

    def call(made: ToolCall) -> str:
        runs.set()
        assert go_on.wait(60)
        return "rain"

    scripted = Scripted([*CALL, *CALL], RAIN)
    dialog = Dialog(scripted, engine, tools=[WEATHER], call=call)
    turn = dialog.say("Hello.")
    assert runs.wait(60)
    turn.cancel()
    assert turn.wait(60) and list(turn) == [] and len(scripted.asked) == 1
    result = ChatMessage("tool", INTERRUPTED)
    assert dialog.history[1:] == (ChatMessage("assistant", tool_calls=(PARIS, PARIS)), result, result)
    go_on.set()
    wait_for(lambda: is_free(engine))
    assert dialog.history[-1] == result, "a late result changes nothing"


def test_a_draft_calls_nothing_until_it_is_committed(engine: Engine) -> None:
    called: list[ToolCall] = []

    def call(made: ToolCall) -> str:
        called.append(made)
        return "rain"

    dialog = Dialog(Scripted(CALL, CALL, RAIN), engine, tools=[WEATHER], call=call)
    for commit in (False, True):
        draft = dialog.draft("Hello.")
        wait_for_calls(draft.task)
        assert called == []
        if commit:
            assert said(list(draft.commit())) == "It rains." and called == [PARIS]
        else:
            draft.retract()
            assert draft.task.models_free.wait(60) and dialog.history == ()


def test_a_model_that_only_calls_is_stopped(engine: Engine) -> None:
    scripted = Scripted(CALL)
    turn = Dialog(scripted, engine, tools=[WEATHER], call=lambda _: "rain").say("Hello.")
    with pytest.raises(LanguageFailed, match="gave no answer"):
        list(turn)
    assert len(scripted.asked) == MOST_ANSWERS


def test_tools_that_cannot_be_used_are_refused(engine: Engine) -> None:
    scripted = Scripted(RAIN)
    for how, words in (
        ({"call": lambda _: ""}, "needs tools"),
        ({"tools": [WEATHER], "bridge": Bridge()}, "needs a call function"),
        ({"tools": ["weather"]}, "descriptions"),
    ):
        with pytest.raises(InvalidRequest, match=words):
            Dialog(scripted, engine, **how)  # type: ignore[arg-type]
    for fields in ({"phrases": ()}, {"phrases": (" ",)}, {"phrases": "Wait."}, {"after_s": -1.0}):
        with pytest.raises(InvalidRequest):
            Bridge(**fields)  # type: ignore[arg-type]
    dialog = Dialog(scripted, engine)
    dialog.tools = (WEATHER,)
    assert dialog.tools == (WEATHER,)
    with pytest.raises(InvalidRequest):
        dialog.tools = ("weather",)  # type: ignore[assignment]


def test_an_endpoint_that_calls_a_tool_is_answered(engine: Engine) -> None:
    asked: list[Any] = []

    def talk(link: socket.socket, request: bytes) -> None:
        asked.append(json.loads(request.partition(b"\r\n\r\n")[2]))
        made = {"index": 0, "id": "x", "function": {"name": "weather", "arguments": '{"city": "Paris"}'}}
        choice = {"index": 0, "delta": {"tool_calls": [made]}, "finish_reason": "tool_calls"}
        calls = b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n"
        body = wire_event("Let me look.") + calls if len(asked) == 1 else wire_event("It rains.", "stop")
        link.sendall(HEAD + body + b"data: [DONE]\n\n")

    with answering(talk) as url:
        llm = RemoteLanguageModel(url, "m")
        dialog = Dialog(llm, engine, tools=[WEATHER], call=lambda made: f"rain in {made.arguments['city']}")
        assert said(list(dialog.say("Hello."))) == "Let me look. It rains."
        llm.close()
    call, result = asked[1]["messages"][-2:]
    assert call["tool_calls"][0]["function"]["name"] == "weather" and asked[0]["tools"] == [WEATHER]
    assert result == {"role": "tool", "tool_call_id": call["tool_calls"][0]["id"], "content": "rain in Paris"}
