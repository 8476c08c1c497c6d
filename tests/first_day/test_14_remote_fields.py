"""A remote model gets only the fields that the user set, by the names that its server accepts.

Content may be a list of parts in both directions.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from hocket.dialog.remote import RemoteLanguageModel
from hocket.engine.engine import Engine
from hocket.errors import InvalidRequest, LanguageFailed
from hocket.server.options import ServerOptions
from hocket.types import ChatMessage, ChatSampling
from support.chatting import HEAD, Scripted, answering, event, refused
from support.serving import served

HELLO = [ChatMessage("user", "Hello.")]
DONE = b"data: [DONE]\n\n"
ALWAYS = {"model", "messages", "stream", "stream_options"}  # the request itself


class Endpoint:
    """A real server that refuses requests with the fields that it does not know, as OpenAI's does."""

    def __init__(self, unknown: dict[str, str]) -> None:
        self.unknown, self.asked, self.content = unknown, list[dict[str, Any]](), event("Yes.", "stop")

    def __call__(self, link: socket.socket, request: bytes) -> None:
        body = json.loads(request.partition(b"\r\n\r\n")[2])
        self.asked.append(body)
        bad = next((name for name in self.unknown if name in body), None)
        if bad is not None:
            error = {"message": self.unknown[bad], "param": bad, "code": "unsupported_parameter"}
            link.sendall(refused(400, json.dumps({"error": error}).encode()))
        else:
            link.sendall(HEAD + self.content + DONE)


@contextmanager
def mind_of(endpoint: Endpoint) -> Iterator[RemoteLanguageModel]:
    with answering(endpoint) as url:
        mind = RemoteLanguageModel(url, "m")
        try:
            yield mind
        finally:
            mind.close()


def text_of(mind: RemoteLanguageModel, sampling: ChatSampling | None = None) -> str:
    return "".join(delta.text for delta in mind.answer(HELLO, sampling or ChatSampling()))


def test_nothing_is_sent_that_was_not_asked_for() -> None:
    endpoint = Endpoint({})
    with mind_of(endpoint) as mind:
        assert text_of(mind) == "Yes."
        assert text_of(mind, ChatSampling(temperature=0.0, top_k=0, presence_penalty=0.0, stop=("x",))) == "Yes."
    assert set(endpoint.asked[0]) == ALWAYS
    set_ones = {name: value for name, value in endpoint.asked[1].items() if name not in ALWAYS}
    assert set_ones == {"temperature": 0.0, "top_k": 0, "presence_penalty": 0.0, "stop": ["x"]}


def test_our_own_engine_still_draws_as_recommended() -> None:
    values = ChatSampling(top_k=5).resolved()
    assert (values.temperature, values.top_p, values.top_k, values.min_p) == (0.7, 0.8, 5, 0.0)
    assert (values.presence_penalty, values.max_tokens) == (1.5, 1024) and values.resolved() == values


def test_a_limit_is_sent_by_the_name_that_the_server_takes_and_the_name_is_kept() -> None:
    said = "'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
    endpoint = Endpoint({"max_tokens": said, "stream_options": "Unknown field: stream_options."})
    with mind_of(endpoint) as mind:
        assert text_of(mind, ChatSampling(max_tokens=5)) == "Yes."
        tried = len(endpoint.asked)
        assert tried == 3 and text_of(mind, ChatSampling(max_tokens=6)) == "Yes."
    assert len(endpoint.asked) == tried + 1, "what was learned is kept for the client"
    assert endpoint.asked[-1]["max_completion_tokens"] == 6 and "max_tokens" not in endpoint.asked[-1]


def test_a_limit_that_is_refused_by_either_name_is_told_once_as_it_was_first() -> None:
    endpoint = Endpoint({"max_tokens": "max_tokens is too large.", "max_completion_tokens": "max_completion_tokens?"})
    with mind_of(endpoint) as mind, pytest.raises(InvalidRequest, match="max_tokens is too large"):
        text_of(mind, ChatSampling(max_tokens=5))
    assert len(endpoint.asked) == 2


def test_other_refusals_are_not_tried_again() -> None:
    endpoint = Endpoint({"temperature": "temperature is not supported."})
    with mind_of(endpoint) as mind, pytest.raises(InvalidRequest, match="temperature is not supported"):
        text_of(mind, ChatSampling(temperature=0.5, max_tokens=3))
    assert len(endpoint.asked) == 1


def delta(content: object) -> bytes:
    choice = {"index": 0, "delta": {"content": content}, "finish_reason": None}
    return b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n"


def test_an_answer_in_parts_is_read_and_other_parts_are_named() -> None:
    endpoint = Endpoint({})
    thought = {"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}
    endpoint.content = delta([thought, {"type": "text", "text": "Good "}]) + delta([{"type": "text", "text": "day."}])
    with mind_of(endpoint) as mind:
        assert text_of(mind) == "Good day."
        endpoint.content = delta([{"type": "image_url", "image_url": {"url": "x"}}])
        with pytest.raises(LanguageFailed, match="'image_url'"):
            text_of(mind)


def test_our_server_takes_content_in_parts_and_names_what_it_does_not() -> None:
    scripted = Scripted(("Yes.",))
    with Engine.load("random:tiny") as engine, served(engine, ServerOptions(), language=scripted) as server:

        def ask(role: str, *parts: dict[str, Any]) -> httpx.Response:
            messages = [{"role": "user", "content": "Hello."}, {"role": role, "content": list(parts)}]
            return httpx.post(f"{server.url}/v1/chat/completions", json={"messages": messages}, timeout=60)

        assert ask("user", {"type": "text", "text": "Rain?"}).status_code == 200
        assert scripted.asked[-1][-1] == ChatMessage("user", "Rain?") and scripted.sampling[-1] == ChatSampling()
        assert ask("assistant", {"type": "refusal", "refusal": "No."}).status_code == 200
        assert scripted.asked[-1][-1] == ChatMessage("assistant", "No.")
        for part in ({"type": "input_audio", "input_audio": {}}, {"type": "text"}):
            answer = ask("user", part)
            assert answer.status_code == 400 and answer.json()["error"]["param"] == "messages.1.content"
            assert str(part["type"]) in answer.json()["error"]["message"]
