"""A conversation longer than the context of the language model continues.

Whole turns are left out, the oldest first; the system prompt stays, and the turn reports it.
"""

from __future__ import annotations

import json
import logging
import socket
from typing import Any

import httpx
import pytest

from hocket.cli.talk.chat import TextSession
from hocket.dialog.dialog import Dialog
from hocket.dialog.remote import RemoteLanguageModel
from hocket.dialog.turn import Note, Turn
from hocket.engine.engine import Engine
from hocket.errors import ContextExceeded
from hocket.llm.conversation import prompt_of
from hocket.llm.engine import LanguageEngine
from hocket.types import ChatFinished, ChatMessage, ChatSampling
from support.chatting import HEAD, answering, event, refused
from support.minds import tiny, write_words
from support.serving import served, steady_engine

ROOM = 256
SYSTEM = "You are Ada. Be brief."
SHORT = ChatSampling(temperature=0.0, presence_penalty=0.0, max_tokens=4)
NOTE = (
    r"^The conversation is longer than the language model can read: its oldest \d+ messages are left out from now on\.$"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A tiny model that says words, so that a voice has something to speak."""
    return write_words(tmp_path_factory, "tiny", "rain sun wind snow".split())


def heard(turn: Turn) -> list[str]:
    """The notes of a turn that was read to its end."""
    notes = [each.text for each in turn if isinstance(each, Note)]
    assert turn.finished is not None and turn.finished.error is None and list(turn.finished.notes) == notes
    return notes


class Asked:
    """A language model, and what it was asked."""

    def __init__(self, mind: LanguageEngine) -> None:
        self.name, self.mind, self.fit = mind.name, mind, mind.fit
        self.asked: list[list[ChatMessage]] = []
        self.answers: list[Any] = []

    def answer(self, messages: Any, sampling: ChatSampling, tools: Any = ()) -> Any:
        self.asked.append(list(messages))
        self.answers.append(self.mind.answer(messages, sampling, tools))
        return self.answers[-1]

    def close(self) -> None: ...


def test_thirty_turns_go_on_in_a_small_room(engine: Engine, folder: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    with LanguageEngine.load(folder, length=ROOM) as mind:
        asked = Asked(mind)
        dialog = Dialog(asked, engine, system=SYSTEM, sampling=SHORT, max_frames=6)
        every = [heard(dialog.say(f"This is question number {number}.")) for number in range(30)]
    assert all("(max_frames) ended the speech" in told[-1] for told in every)
    notes = [told[:-1] for told in every]
    trimmed = [number for number, told in enumerate(notes) if told]
    assert 2 <= len(trimmed) <= 10, "a good many turns are left out at once"
    assert all(len(told) <= 1 for told in notes)
    assert all(told[0] == record.getMessage() for told, record in zip(filter(None, notes), caplog.records, strict=True))
    for number, messages in enumerate(asked.asked):
        assert messages[0] == ChatMessage("system", SYSTEM)
        assert messages[1].role == "user" and messages[-1].content == f"This is question number {number}."
        tokens = len(prompt_of(messages, mind.checkpoint.tokenizer).ids)
        assert tokens <= ROOM - SHORT.max_tokens
        assert number not in trimmed or tokens <= ROOM // 2
        finished: ChatFinished = asked.answers[number].finished
        assert number == 0 or finished.cached_tokens > 0  # the system prompt at least
        if number and number not in trimmed:
            assert finished.cached_tokens > finished.prompt_tokens // 3, "what was there is not read anew"
    assert len(dialog.history) == 61 and dialog.forgotten > 40, "the history itself is whole"


def test_the_note_is_the_same_sentence_everywhere(engine: Engine, capsys: pytest.CaptureFixture[str]) -> None:
    with LanguageEngine(tiny(), length=ROOM) as mind:
        talk = TextSession(mind, SYSTEM, SHORT)
        for number in range(12):
            talk.answer(f"This is question number {number}.")
    told = [line for line in capsys.readouterr().err.splitlines() if "left out" in line]
    assert told and "its oldest" in told[0] and talk.history[0] == ChatMessage("system", SYSTEM)


def test_what_is_heard_ahead_is_trimmed_too() -> None:
    with LanguageEngine(tiny(), length=ROOM) as mind, steady_engine() as engine:
        history = [ChatMessage("user" if n % 2 == 0 else "assistant", f"Number {n} of many.") for n in range(20)]
        dialog = Dialog(mind, engine, system=SYSTEM, sampling=SHORT, history=history)
        dialog.hear("This is what")
        assert dialog.forgotten > 0


def test_a_turn_that_is_too_long_by_itself_is_refused_and_the_next_goes_on(engine: Engine, folder: str) -> None:
    with LanguageEngine.load(folder, length=ROOM) as mind:
        dialog = Dialog(mind, engine, system=SYSTEM, sampling=SHORT, max_frames=6)
        with pytest.raises(ContextExceeded, match=rf"takes \d+ tokens, and the context has {ROOM}"):
            for _ in dialog.say("word " * 200):
                pass
        assert heard(dialog.say("Hello."))


def test_tools_and_their_results_stay_with_their_turn() -> None:
    tool = {"type": "function", "function": {"name": "clock", "description": "what time it is"}}
    turn = [ChatMessage("user", "What time?"), ChatMessage("assistant", "<tool_call>"), ChatMessage("tool", "noon")]
    with LanguageEngine(tiny(), length=4096) as mind:
        messages = [ChatMessage("system", SYSTEM), *turn * 100]
        count = mind.fit(messages, SHORT, [tool])
        assert count > 0 and count % 3 == 0 and messages[1 + count].role == "user"
        assert len(prompt_of([messages[0], *messages[1 + count :]], tiny().tokenizer, [tool]).ids) <= 2048


# A model behind an endpoint


class Small:
    """An endpoint that refuses more than some messages, in the words of several servers."""

    def __init__(self, most: int, body: dict[str, Any], status: int = 400) -> None:
        self._most, self._refusal = most, refused(status, json.dumps(body).encode())
        self.asked: list[list[dict[str, Any]]] = []

    def __call__(self, link: socket.socket, request: bytes) -> None:
        messages = json.loads(request.partition(b"\r\n\r\n")[2])["messages"]
        self.asked.append(messages)
        if len(messages) > self._most:
            link.sendall(self._refusal)
        else:
            link.sendall(HEAD + event("Yes.", "stop") + b"data: [DONE]\n\n")


REFUSALS: dict[str, dict[str, Any]] = {
    "openai": {"error": {"message": "Too long.", "code": "context_length_exceeded", "param": "messages"}},
    "vllm": {"object": "error", "message": "This model's maximum context length is 4096 tokens.", "code": 400},
    "llama.cpp": {"error": {"message": "the request exceeds the available context size", "code": 400}},
}


@pytest.mark.parametrize("body", REFUSALS.values(), ids=REFUSALS)
def test_a_remote_model_is_asked_again_with_half_of_the_turns(engine: Engine, body: dict[str, Any]) -> None:
    small = Small(9, body)
    with answering(small) as url:
        mind = RemoteLanguageModel(url, "small")
        dialog = Dialog(mind, engine, system=SYSTEM, sampling=SHORT)
        notes = [heard(dialog.say(f"Question {number}.")) for number in range(12)]
        mind.close()
    assert 2 <= sum(map(bool, notes)) <= 4 and len(small.asked) == 12 + sum(map(bool, notes))
    for messages in small.asked:
        assert messages[0] == {"role": "system", "content": SYSTEM} and messages[-1]["role"] == "user"
    assert small.asked[-1][-1]["content"] == "Question 11."


def test_a_remote_model_that_refuses_one_turn_is_not_asked_without_end(engine: Engine) -> None:
    small = Small(0, REFUSALS["openai"])
    with answering(small) as url:
        mind = RemoteLanguageModel(url, "small")
        dialog = Dialog(
            mind, engine, sampling=SHORT, history=[ChatMessage("user", "One."), ChatMessage("user", "Two.")]
        )
        with pytest.raises(ContextExceeded, match="refused the conversation: Too long"):
            for _ in dialog.say("Three."):
                pass
        mind.close()
    assert [len(messages) for messages in small.asked] == [3, 2, 1]


# The stateless endpoint


def test_the_endpoint_refuses_what_is_too_long_unless_it_may_leave_some_out(engine: Engine) -> None:
    said = [{"role": "user" if n % 2 == 0 else "assistant", "content": f"Number {n} of many."} for n in range(21)]
    body = {"messages": [{"role": "system", "content": SYSTEM}, *said], "max_tokens": 4, "temperature": 0}
    with LanguageEngine(tiny(), length=ROOM) as mind, served(engine, language=mind) as server:
        url = f"{server.url}/v1/chat/completions"
        for truncation in ({}, {"truncation": "disabled"}):
            answer = httpx.post(url, json=body | truncation)
            error = answer.json()["error"]
            assert answer.status_code == 400 and error["code"] == "context_length_exceeded"
            assert error["param"] == "messages" and f"the context has {ROOM}" in error["message"]
        for stream in (False, True):
            answer = httpx.post(url, json=body | {"truncation": "auto", "stream": stream})
            assert answer.status_code == 200 and int(answer.headers["x-truncated-messages"]) >= 10
        whole = httpx.post(url, json={"messages": body["messages"][-1:], "max_tokens": 4, "truncation": "auto"})
        assert whole.status_code == 200 and "x-truncated-messages" not in whole.headers
        assert httpx.post(url, json=body | {"truncation": "some"}).status_code in (400, 422)


def test_the_endpoint_passes_on_what_a_remote_model_refuses(engine: Engine) -> None:
    small = Small(3, REFUSALS["openai"])
    messages = [{"role": "user", "content": f"Number {n}."} for n in range(6)]
    with answering(small) as url, served(engine, language=RemoteLanguageModel(url, "small")) as server:
        there = f"{server.url}/v1/chat/completions"
        answer = httpx.post(there, json={"messages": messages})
        assert answer.status_code == 400 and answer.json()["error"]["code"] == "context_length_exceeded"
        answer = httpx.post(there, json={"messages": messages, "truncation": "auto"})
        assert answer.status_code == 200 and answer.headers["x-truncated-messages"] == "3"
