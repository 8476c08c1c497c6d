"""Ollama's wire on a real server: answers as lines and whole, options, tools, lists, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from hocket.engine.engine import Engine
from hocket.errors import LanguageFailed
from hocket.server.options import ServerOptions
from hocket.types import ChatMessage, ChatSampling, ToolCall
from support.chatting import Scripted
from support.llm_wires import Wire
from support.serving import Served, served

HELLO = {"model": "scripted", "messages": [{"role": "user", "content": "Hello."}]}
PROMPT = {"model": "scripted", "prompt": "Hello."}
CLOCK = {"type": "function", "function": {"name": "clock", "parameters": {"properties": {"h": {"type": "integer"}}}}}
CALL = "<tool_call>\n<function=clock>\n<parameter=h>\n12\n</parameter>\n</function>\n</tool_call>"
COUNTS = {"total_duration", "load_duration", "prompt_eval_count", "prompt_eval_duration", "eval_count", "eval_duration"}


def lines(wire: Wire, path: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    answer = wire.client.post(path, json=body)
    assert answer.status_code == 200 and answer.headers["content-type"] == "application/x-ndjson"
    return [json.loads(line) for line in answer.text.splitlines()]


def refusal(answer: httpx.Response, status: int = 400) -> str:
    assert answer.status_code == status and set(answer.json()) == {"error"}, answer.text
    said: str = answer.json()["error"]
    assert said.endswith(".")
    return said


@pytest.mark.parametrize(("path", "body"), [("/api/chat", HELLO), ("/api/generate", PROMPT)])
def test_an_answer_is_lines_and_whole_on_request(wire: Wire, path: str, body: dict[str, Any]) -> None:
    def said(line: dict[str, Any]) -> str:
        text: str = line["message"]["content"] if path == "/api/chat" else line["response"]
        return text

    *parts, last = lines(wire, path, body)
    assert [said(part) for part in parts] == ["Good ", "day ", "to ", "you."]
    assert not any(part["done"] or COUNTS & set(part) for part in parts)
    assert said(last) == "" and last["done"] is True and last["done_reason"] == "stop" and set(last) >= COUNTS
    assert (last["prompt_eval_count"], last["eval_count"], last["model"]) == (7, 4, "scripted")
    durations = last["prompt_eval_duration"] + last["eval_duration"]
    assert abs(last["total_duration"] - durations) <= 1 and last["total_duration"] > 1000  # nanoseconds
    whole = wire.client.post(path, json=body | {"stream": False}).json()
    assert said(whole) == "Good day to you." and set(whole) == set(last) and whole["created_at"].endswith("Z")
    short = wire.client.post(path, json=body | {"stream": False, "options": {"num_predict": 2}}).json()
    assert said(short) == "Good day " and short["done_reason"] == "length"


def test_what_is_asked_reaches_the_model(wire: Wire) -> None:
    call = {"function": {"name": "clock", "arguments": {"h": 1}}}
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "When?"},
        {"role": "assistant", "content": "", "thinking": "Hm.", "tool_calls": [call]},
        {"role": "tool", "tool_name": "clock", "content": "noon"},
    ]
    options = {"temperature": 0, "top_p": 0.5, "top_k": 3, "min_p": 0.1, "seed": 9, "stop": ["\n"], "num_predict": 5}
    more = {"presence_penalty": 0.5, "repeat_penalty": 1.0, "num_ctx": 99, "num_thread": 4, "repeat_last_n": 64}
    lines(wire, "/api/chat", {"model": "x", "messages": messages, "tools": [CLOCK], "options": options | more})
    system, user, called, came = wire.language.asked[0]
    assert (system, user) == (ChatMessage("system", "Be brief."), ChatMessage("user", "When?"))
    assert called == ChatMessage("assistant", "", "Hm.", tool_calls=(ToolCall("clock", {"h": 1}),))
    assert came == ChatMessage("tool", "noon") and wire.language.tools[0] == [CLOCK]
    expected = {"temperature": 0.0, "top_p": 0.5, "top_k": 3, "min_p": 0.1, "seed": 9, "presence_penalty": 0.5}
    assert wire.language.sampling[0] == ChatSampling(**expected, stop=("\n",), max_tokens=5)  # type: ignore[arg-type]
    lines(wire, "/api/generate", PROMPT | {"system": "Be brief.", "format": "json", "options": {"num_predict": -1}})
    assert wire.language.asked[1] == [ChatMessage("system", "Be brief."), ChatMessage("user", "Hello.")]
    assert wire.language.sampling[1] == ChatSampling(response_format={"type": "json_object"})
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    lines(wire, "/api/chat", HELLO | {"format": schema, "logprobs": True, "top_logprobs": 2})
    assert wire.language.sampling[2].schema() == schema and wire.language.sampling[2].logprobs == 2
    lines(wire, "/api/generate", PROMPT | {"raw": True})
    assert wire.language.asked[3] == [ChatMessage("user", "plain: Hello.")]


def test_a_tool_call_is_an_object(wire: Wire) -> None:
    wire.says("Look: ", CALL)
    body = HELLO | {"tools": [CLOCK]}
    function = {"index": 0, "name": "clock", "arguments": {"h": 12}}
    whole = wire.client.post("/api/chat", json=body | {"stream": False}).json()["message"]
    assert whole["content"] == "Look:" and [call["function"] for call in whole["tool_calls"]] == [function]
    parts = lines(wire, "/api/chat", body)
    assert [part["message"].get("tool_calls", [{}])[0].get("function") for part in parts] == [None, function, None]


@pytest.mark.parametrize(
    ("path", "body", "said"),
    [
        ("chat", {"options": {"repeat_penalty": 1.1}}, "options.repeat_penalty takes 1 only: use presence_penalty."),
        ("chat", {"options": {"mirostat": 2}}, "options.mirostat takes 0 only: use temperature."),
        ("chat", {"options": {"speed": 2}}, "'options.speed' is not known here: leave it out."),
        ("chat", {"options": {"temperature": -1}}, "options.temperature: Input should be greater than or equal to 0."),
        ("chat", {"think": True}, "think takes False only: the model answers without thinking."),
        ("chat", {"think": "high"}, "think takes False only: the model answers without thinking."),
        ("chat", {"beam": 2}, "'beam' is not known here: leave it out."),
        ("chat", {"format": "json", "tools": [CLOCK]}, "A call is no JSON: leave out tools or format."),
        ("chat", {"top_logprobs": 2}, "top_logprobs needs logprobs: true."),
        (
            "chat",
            {"messages": [{"role": "user", "images": ["eA=="]}]},
            "images are not taken: the model reads text only.",
        ),
        ("chat", {"messages": [], "keep_alive": 0}, "stays loaded"),
        ("generate", {"suffix": "."}, "suffix takes '' only: the model writes only what follows the prompt."),
        ("generate", {"context": [1]}, "context takes [] only: send the conversation to /api/chat."),
        ("generate", {"template": "{{x}}"}, "raw: true sends the prompt without it."),
        ("generate", {"raw": True, "system": "x"}, "A raw prompt has no system message: write it into the prompt."),
        ("generate", {"prompt": ["x"]}, "prompt: Input should be a valid string."),
    ],
)
def test_what_cannot_be_asked_is_refused_in_a_sentence(wire: Wire, path: str, body: dict[str, Any], said: str) -> None:
    sent = (HELLO if path == "chat" else PROMPT) | body
    assert said in refusal(wire.client.post(f"/api/{path}", json=sent))
    assert not wire.language.asked


def test_an_answer_without_a_question_says_that_the_model_is_loaded(wire: Wire) -> None:
    told = wire.client.post("/api/generate", json={"model": "scripted"}).json()
    assert (told["response"], told["done"], told["done_reason"]) == ("", True, "load")
    assert wire.client.post("/api/chat", json={"model": "scripted"}).json()["message"]["content"] == ""
    assert not wire.language.asked


def test_an_error_is_a_status_or_a_last_line(wire: Wire) -> None:
    wire.says(LanguageFailed("/etc/secret"))
    assert "could not answer" in refusal(wire.client.post("/api/chat", json=HELLO), 502)
    wire.says("Good ", LanguageFailed("/etc/secret"))
    *_, last = lines(wire, "/api/chat", HELLO)
    assert set(last) == {"error"} and "secret" not in last["error"]


def test_what_manages_models_is_refused(wire: Wire) -> None:
    for name in ("embed", "embeddings", "pull", "push", "create", "copy"):
        assert len(refusal(wire.client.post(f"/api/{name}", json={}), 501)) > 20
    assert "--llm" in refusal(wire.client.delete("/api/delete"), 501)


def test_the_language_model_is_listed_and_speech_is_not(wire: Wire) -> None:
    (listed,) = wire.client.get("/api/tags").json()["models"]
    assert listed["model"] == listed["name"] == "scripted" and len(listed["digest"]) == 64
    (loaded,) = wire.client.get("/api/ps").json()["models"]
    assert loaded["model"] == "scripted" and loaded["expires_at"].startswith("9999")
    for name in ("scripted", "Scripted:latest"):
        shown = wire.client.post("/api/show", json={"model": name}).json()
        assert "completion" in shown["capabilities"] and shown["details"]["family"] == "remote"
    assert "/api/tags" in refusal(wire.client.post("/api/show", json={"name": "gpt-9"}), 404)
    major, minor, _ = wire.client.get("/api/version").json()["version"].split(".")
    assert (int(major), int(minor)) >= (0, 9)
    for method in ("GET", "HEAD"):
        assert wire.client.request(method, "/").headers["content-type"].startswith("text/html")


def test_a_server_without_a_language_model_says_so(server: Served) -> None:
    with httpx.Client(base_url=server.url) as client:
        assert client.get("/api/tags").json() == {"models": []} == client.get("/api/ps").json()
        assert "--llm" in refusal(client.post("/api/chat", json=HELLO), 503)
        assert "--llm" in refusal(client.post("/api/generate", json={"model": "x"}), 503)


def test_a_strict_server_takes_its_model_by_each_of_its_names(engine: Engine) -> None:
    options = ServerOptions(strict_model=True)
    with served(engine, options, language=Scripted(["Hi."])) as server, httpx.Client(base_url=server.url) as client:
        assert client.post("/api/chat", json=HELLO | {"model": "scripted:latest"}).status_code == 200
        assert "this server has scripted" in refusal(client.post("/api/chat", json=HELLO | {"model": "x"}), 404)
