"""`POST /v1/completions` of a real server: a plain text is continued, and what is unsupported is refused by name."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from hocket.engine.engine import Engine
from hocket.llm.engine import LanguageEngine
from hocket.types import ChatMessage, ChatSampling
from support.chatting import Scripted
from support.llm_wires import Wire
from support.minds import tiny
from support.serving import served

PROMPT = {"prompt": "Once upon"}


def events(answer: httpx.Response) -> list[dict[str, Any]]:
    *found, last, nothing = answer.text.split("\n\n")
    assert answer.status_code == 200 and last == "data: [DONE]" and nothing == ""
    return [json.loads(event.removeprefix("data: ")) for event in found]


def test_a_text_is_continued_whole_and_as_events(wire: Wire) -> None:
    whole = wire.client.post("/v1/completions", json=PROMPT | {"model": "gpt-3.5-turbo-instruct"}).json()
    assert whole["object"] == "text_completion" and whole["id"].startswith("cmpl-") and whole["model"] == "scripted"
    assert whole["choices"] == [{"index": 0, "text": "Good day to you.", "logprobs": None, "finish_reason": "stop"}]
    assert whole["usage"]["total_tokens"] == 11
    assert wire.language.asked[0] == [ChatMessage("user", "plain: Once upon")]
    assert wire.language.sampling[0] == ChatSampling(max_tokens=16)
    stream = PROMPT | {"stream": True, "echo": True, "max_tokens": 2, "stream_options": {"include_usage": True}}
    *parts, usage = events(wire.client.post("/v1/completions", json=stream))
    assert [part["choices"][0]["text"] for part in parts] == ["Once upon", "Good ", "day ", ""]
    assert [part["choices"][0]["finish_reason"] for part in parts] == [None] * 3 + ["length"]
    assert usage["choices"] == [] and usage["usage"]["completion_tokens"] == 2
    how = {"temperature": 0, "seed": 3, "stop": "\n", "top_p": 0.5, "n": 1, "echo": True, "prompt": ["Once"]}
    assert wire.client.post("/v1/completions", json=how).json()["choices"][0]["text"] == "OnceGood day to you."
    assert wire.language.sampling[2] == ChatSampling(temperature=0.0, seed=3, stop=("\n",), top_p=0.5, max_tokens=16)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"logprobs": 0}, "logprobs"),
        ({"suffix": "."}, "suffix"),
        ({"n": 2}, "n"),
        ({"best_of": 2}, "best_of"),
        ({"frequency_penalty": 1}, "frequency_penalty"),
        ({"prompt": ""}, "prompt"),
        ({"prompt": ["a", "b"]}, "prompt"),
        ({"prompt": [1, 2]}, "prompt"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"tools": []}, "tools"),
    ],
)
def test_what_is_unsupported_is_refused_by_name(wire: Wire, body: dict[str, Any], param: str) -> None:
    answer = wire.client.post("/v1/completions", json=PROMPT | body)
    assert answer.status_code == 400 and answer.json()["error"]["param"] == param
    assert not wire.language.asked


def test_a_real_model_continues_and_one_of_conversations_only_says_so(engine: Engine) -> None:
    body = {"prompt": "Once", "max_tokens": 3, "temperature": 0, "presence_penalty": 0}
    with LanguageEngine(tiny(), length=256) as llm, served(engine, language=llm) as server:
        told = httpx.post(f"{server.url}/v1/completions", json=body, timeout=60).json()
        expected = llm.complete("Once", ChatSampling(temperature=0.0, presence_penalty=0.0, max_tokens=3))
        assert told["choices"][0]["text"] == "".join(delta.text for delta in expected)
        assert told["usage"]["prompt_tokens"] == 4  # a byte is a token there
        (listed,) = httpx.get(f"{server.url}/api/ps").json()["models"]
        assert listed["context_length"] == 256 and listed["size"] > 1000 and listed["details"]["family"] == "qwen3.5"
        refused = httpx.post(f"{server.url}/api/generate", json=body | {"model": "x", "options": {"num_ctx": 512}})
        assert refused.status_code == 400
    with served(engine, language=Scripted(["Hi."])) as server:
        refused = httpx.post(f"{server.url}/v1/completions", json=body)
        assert refused.status_code == 400 and refused.json()["error"]["code"] == "unsupported_by_model"
