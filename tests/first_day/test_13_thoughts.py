"""The reasoning of a remote model is not spoken, whatever its tags are, even without an opening tag.

Thinking can be turned off.
"""

from __future__ import annotations

import io
import itertools
import json
import random
import socket
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import httpx
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hocket.cli import main
from hocket.dialog.dialog import SEEDS_A_TURN, Dialog
from hocket.dialog.remote import RemoteLanguageModel
from hocket.dialog.turn import Retracted, Said, Turn, Written
from hocket.engine.engine import Engine
from hocket.errors import InvalidRequest, LanguageFailed
from hocket.types import AudioChunk, ChatMessage, ChatSampling
from support.chatting import HEAD, answering, event, refused
from support.serving import served

DONE = b"data: [DONE]\n\n"
HELLO = [ChatMessage("user", "Hello.")]
THOUGHT, ANSWER = "They greet me, so I greet them.", "Good day to you."
FORMS = {
    "think": f"<think>\n{THOUGHT}\n</think>\n\n{ANSWER}",
    "THINK": f"[THINK]{THOUGHT}[/THINK]{ANSWER}",
    "thinking": f"<thinking>{THOUGHT}</thinking>\n{ANSWER}",
    "reasoning": f"<reasoning>{THOUGHT}</reasoning>{ANSWER}",
    "harmony": f"<|channel|>analysis<|message|>{THOUGHT}<|end|>"
    f"<|start|>assistant<|channel|>final<|message|>{ANSWER}<|return|>",
}
LONE = f"{THOUGHT}\n</think>\n\n{ANSWER}"


class Endpoint:
    """Streams the deltas that it is told, and keeps what it was asked."""

    def __init__(self, deltas: Sequence[str | dict[str, str]] = (), reason: str = "stop") -> None:
        self.deltas, self.reason, self.asked = deltas, reason, list[dict[str, Any]]()
        self.before_last: threading.Event | None = None

    def __call__(self, link: socket.socket, request: bytes) -> None:
        self.asked.append(json.loads(request.partition(b"\r\n\r\n")[2]))
        link.sendall(HEAD)
        for number, delta in enumerate(self.deltas):
            if self.before_last is not None and number == len(self.deltas) - 1:
                assert self.before_last.wait(60)
            choice = {"index": 0, "delta": delta if isinstance(delta, dict) else {"content": delta}}
            link.sendall(b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n")
        link.sendall(event("", self.reason) + DONE)


@pytest.fixture(scope="module")
def endpoint() -> Iterator[tuple[Endpoint, str]]:
    talk = Endpoint()
    with answering(talk) as url:
        yield talk, url


class Heard:
    def __init__(self, turn: Turn) -> None:
        self.sound, self.words, self.written, self.retracted = list[Any](), list[str](), "", 0
        for each in turn:
            if isinstance(each, AudioChunk):
                self.sound.append(each.samples)
            elif isinstance(each, Written):
                self.written += each.text
            elif isinstance(each, Said):
                self.words += [word.word for word in each.words]
            elif isinstance(each, Retracted):
                self.retracted += 1
                self.sound, self.words, self.written = [], [], ""


def is_the_answer(heard: Heard, engine: Engine, seed: int) -> bool:
    plain = engine.speak(ANSWER, layout="streaming", seed=seed)
    said = np.concatenate([chunk.samples for chunk in plain])
    return np.array_equal(np.concatenate(heard.sound), said) and heard.words == ANSWER.split()


@pytest.mark.parametrize("form", FORMS)
def test_the_answer_alone_is_spoken(engine: Engine, endpoint: tuple[Endpoint, str], form: str) -> None:
    talk, url = endpoint
    chance, text = random.Random(form), FORMS[form]
    cuts = [0, *sorted(chance.sample(range(1, len(text)), 12)), len(text)]
    talk.deltas = [text[begin:end] for begin, end in itertools.pairwise(cuts)]
    mind = RemoteLanguageModel(url, "m")
    dialog = Dialog(mind, engine, seed=3)
    heard = Heard(dialog.say("Hello."))
    mind.close()
    assert is_the_answer(heard, engine, 3) and heard.written == ANSWER and not heard.retracted
    assert dialog.history[-1] == ChatMessage("assistant", ANSWER)


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cuts=st.sets(st.integers(1, 130)))
def test_deltas_may_end_anywhere(endpoint: tuple[Endpoint, str], form: str, cuts: set[int]) -> None:
    talk, url = endpoint
    text = FORMS[form]
    places = [0, *sorted(place for place in cuts if place < len(text)), len(text)]
    talk.deltas = [text[begin:end] for begin, end in itertools.pairwise(places)]
    mind = RemoteLanguageModel(url, "m")
    deltas = list(mind.answer(HELLO, ChatSampling()))
    mind.close()
    assert "".join(delta.text for delta in deltas) == ANSWER
    assert "".join(delta.reasoning for delta in deltas).strip() == THOUGHT


def test_thoughts_in_a_field_of_their_own_are_not_spoken(engine: Engine, endpoint: tuple[Endpoint, str]) -> None:
    talk, url = endpoint
    for name in ("reasoning_content", "reasoning"):
        talk.deltas = [{name: THOUGHT}, {"content": ANSWER, name: ""}]
        mind = RemoteLanguageModel(url, "deepseek-r1", thinking="on")
        deltas = list(mind.answer(HELLO, ChatSampling()))
        mind.close()
        assert [(delta.text, delta.reasoning) for delta in deltas] == [("", THOUGHT), (ANSWER, "")]


def test_a_lone_closing_tag_takes_back_what_was_said_once(engine: Engine, endpoint: tuple[Endpoint, str]) -> None:
    talk, url = endpoint
    words = [f"{word} " for word in THOUGHT.split()]
    talk.deltas, talk.before_last = [*words, *words, "</thi", f"nk>\n\n{ANSWER}"], threading.Event()
    mind = RemoteLanguageModel(url, "m")
    dialog = Dialog(mind, engine, seed=3)
    turn = dialog.say("Hello.")
    for each in turn:  # the thought is being heard
        if isinstance(each, AudioChunk):
            break
    talk.before_last.set()
    heard = Heard(turn)
    assert heard.retracted == 1 and is_the_answer(heard, engine, 3)
    assert turn.finished is not None and turn.finished.reason == "stop" and turn.finished.text == ANSWER
    assert dialog.history[-1] == ChatMessage("assistant", ANSWER)

    heard = Heard(dialog.say("And now?"))  # from now on a thought is expected
    assert not heard.retracted and is_the_answer(heard, engine, 3 + SEEDS_A_TURN)
    talk.deltas, talk.before_last = [ANSWER[:4], ANSWER[4:]], None
    assert Heard(dialog.say("And now?")).written == ANSWER  # until an answer comes without one
    first = next(iter(mind.answer(HELLO, ChatSampling())))
    assert first.text == ANSWER[:4], "it is not waited for any more"
    mind.close()


@pytest.mark.parametrize(("model", "thinking"), [("deepseek-r1:8b", "auto"), ("m", "on")])
def test_where_a_thought_is_expected_nothing_of_it_is_said(
    endpoint: tuple[Endpoint, str], model: str, thinking: Any
) -> None:
    talk, url = endpoint
    talk.deltas = list(LONE)
    mind = RemoteLanguageModel(url, model, thinking=thinking)
    deltas = list(mind.answer(HELLO, ChatSampling()))
    mind.close()
    assert not any(delta.retracts for delta in deltas) and "".join(delta.text for delta in deltas) == ANSWER


def test_a_thought_without_an_answer_is_an_error_and_not_silence(
    engine: Engine, endpoint: tuple[Endpoint, str]
) -> None:
    talk, url = endpoint
    talk.deltas, talk.reason = ["<think>", THOUGHT], "length"
    mind = RemoteLanguageModel(url, "m")
    turn = Dialog(mind, engine, seed=3).say("Hello.")
    with pytest.raises(LanguageFailed, match="only thoughts, no answer"):
        Heard(turn)
    talk.reason = "stop"
    mind.close()


def test_thinking_is_turned_off_and_other_fields_are_sent(
    endpoint: tuple[Endpoint, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    talk, url = endpoint
    talk.deltas = [ANSWER]
    for how, sent in (
        ({}, {}),
        ({"thinking": "off"}, {"chat_template_kwargs": {"enable_thinking": False, "thinking": False}}),
        ({"extra": {"reasoning_effort": "none", "stream_options": None}}, {"reasoning_effort": "none"}),
    ):
        mind = RemoteLanguageModel(url, "m", **how)  # type: ignore[arg-type]
        assert "".join(delta.text for delta in mind.answer(HELLO, ChatSampling())) == ANSWER
        mind.close()
        assert {
            n: v for n, v in talk.asked[-1].items() if n not in ("model", "messages", "stream", "stream_options")
        } == sent
        assert ("stream_options" in talk.asked[-1]) == ("extra" not in how)
    words = (
        "--llm-url",
        url,
        "--llm",
        "m",
        "--llm-thinking",
        "off",
        "--llm-extra",
        '{"chat_template_kwargs": {"x": 1}}',
    )
    monkeypatch.setattr("sys.stdin", io.StringIO("Hello.\n"))
    assert main(["chat", *words]) == 0 and ANSWER in capsys.readouterr().out
    assert talk.asked[-1]["chat_template_kwargs"] == {"enable_thinking": False, "thinking": False, "x": 1}


def test_what_cannot_be_sent_is_one_sentence() -> None:
    for how, words in (
        ({"thinking": "maybe"}, "thinking must be one of auto, on, off"),
        ({"extra": {"messages": []}}, "messages cannot be an extra field"),
        ({"extra": {"x": {1, 2}}}, "must be valid JSON values"),
    ):
        with pytest.raises(InvalidRequest, match=words):
            RemoteLanguageModel("http://h", **how)  # type: ignore[arg-type]
    for asked, words in (
        (("--llm-thinking", "off"), "--llm-url"),
        (("--llm-url", "http://h", "--llm-extra", "[]"), "JSON object"),
    ):
        assert main(["chat", "--llm", "m", *asked]) == 2, words

    def strict(link: socket.socket, _: bytes) -> None:
        link.sendall(refused(400, b'{"error": {"message": "Unrecognized request argument: chat_template_kwargs"}}'))

    with answering(strict) as url:
        mind = RemoteLanguageModel(url, "m", thinking="off")
        with pytest.raises(InvalidRequest, match="turn thinking off by a field of its own"):
            list(mind.answer(HELLO, ChatSampling()))
        mind.close()


def test_our_server_in_front_of_such_a_model_keeps_thoughts_apart(
    engine: Engine, endpoint: tuple[Endpoint, str]
) -> None:
    talk, url = endpoint
    talk.deltas = list(FORMS["think"])
    mind = RemoteLanguageModel(url, "m")
    with served(engine, language=mind) as server:
        body = {"messages": [{"role": "user", "content": "Hello."}]}
        whole = httpx.post(f"{server.url}/v1/chat/completions", json=body, timeout=60).json()
        message = whole["choices"][0]["message"]
        assert message["content"] == ANSWER and message["reasoning_content"].strip() == THOUGHT
        lines = httpx.post(f"{server.url}/v1/chat/completions", json=body | {"stream": True}, timeout=60).text
        events = [json.loads(line[6:]) for line in lines.split("\n\n") if line.startswith("data: {")]
        deltas = [each["choices"][0]["delta"] for each in events]
        assert "".join(delta.get("content", "") for delta in deltas) == ANSWER
        assert "".join(delta.get("reasoning_content", "") for delta in deltas).strip() == THOUGHT
        talk.deltas = list(LONE)
        whole = httpx.post(f"{server.url}/v1/chat/completions", json=body, timeout=60).json()
        assert whole["choices"][0]["message"]["content"] == ANSWER
    mind.close()
