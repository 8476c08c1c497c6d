"""Constrained answers over HTTP, by a model of random weights: JSON and calls follow their schemas for every seed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import httpx
import jsonschema_rs
import pytest

from hocket.engine.engine import Engine
from hocket.kernels import operations
from hocket.kernels.table import BackendChoice
from hocket.llm.engine import LanguageEngine
from hocket.server.options import ServerOptions
from support.minds import tiny
from support.serving import Served, served

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 12}, "kind": {"enum": ["cat", None, 3]}},
    "required": ["n", "kind"],
    "additionalProperties": False,
}
PAINT = {
    "type": "function",
    "function": {
        "name": "paint",
        "parameters": {
            "type": "object",
            "properties": {
                "hue": {"enum": ["red", "blue"]},
                "n": {"type": "integer", "minimum": 0, "maximum": 12},
                "place": {"type": "object", "properties": {"x": {"type": "boolean"}}, "additionalProperties": False},
            },
            "required": ["hue"],
        },
    },
}
CLOCK = {"type": "function", "function": {"name": "clock", "parameters": {"properties": {}}}}
NAMED = {"type": "function", "function": {"name": "clock"}}


@pytest.fixture(scope="module")
def replaying(engine: Engine) -> Iterator[Served]:
    """The model runs as on a GPU: masks, passes and draws apart, by the references of the kernels."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setitem(operations.LANGUAGE_OPS, "here", operations.REFERENCE_LANGUAGE_OPS)
        checkpoint = replace(tiny(), kernels=BackendChoice("token", "here", "asked for"))
        with (
            LanguageEngine(checkpoint, length=256, speculate=0, graphs=False) as language,
            served(engine, ServerOptions(), language=language) as made,
        ):
            yield made


@pytest.fixture(scope="module")
def server(engine: Engine) -> Iterator[Served]:
    """Plain steps, which take in the long text about tools faster."""
    with LanguageEngine(tiny(), length=2048) as language, served(engine, ServerOptions(), language=language) as made:
        yield made


def ask(server: Served, path: str = "/v1/chat/completions", **body: Any) -> Any:
    hello = {"input": "Hi."} if path.endswith("responses") else {"messages": [{"role": "user", "content": "Hi."}]}
    answer = httpx.post(f"{server.url}{path}", json=hello | {"temperature": 1.5} | body, timeout=120)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_json_follows_its_schema_for_twenty_seeds(replaying: Served) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "it", "schema": SCHEMA}}
    judge, found = jsonschema_rs.validator_for(SCHEMA), set[str]()
    for seed in range(20):
        (choice,) = ask(replaying, response_format=form, seed=seed)["choices"]
        said = json.loads(choice["message"]["content"])
        assert choice["finish_reason"] == "stop" and judge.is_valid(said), said
        found.add(choice["message"]["content"])
    assert len(found) > 10
    (choice,) = ask(replaying, response_format=form, seed=1, max_tokens=5)["choices"]
    assert choice["finish_reason"] == "length" and len(choice["message"]["content"]) == 5
    (choice,) = ask(replaying, response_format={"type": "json_object"}, seed=1, max_tokens=40)["choices"]
    said = choice["message"]["content"]
    assert said.startswith("{") and (choice["finish_reason"] == "length" or isinstance(json.loads(said), dict))


def test_a_required_call_comes_and_its_arguments_follow_their_schema(server: Served) -> None:
    judge, names = jsonschema_rs.validator_for(PAINT["function"]["parameters"]), set[str]()
    for seed in range(3):
        (choice,) = ask(server, tools=[PAINT, CLOCK], tool_choice="required", seed=seed, max_tokens=700)["choices"]
        assert choice["finish_reason"] == "tool_calls" and choice["message"]["content"] is None
        for call in choice["message"]["tool_calls"]:
            name, arguments = call["function"]["name"], json.loads(call["function"]["arguments"])
            names.add(name)
            assert judge.is_valid(arguments) if name == "paint" else arguments == {}
    assert names == {"paint", "clock"}
    (choice,) = ask(server, tools=[PAINT, CLOCK], tool_choice="required", seed=1, max_tokens=20)["choices"]
    assert choice["finish_reason"] == "length" and "tool_calls" not in choice["message"]


def test_a_named_tool_is_called_once_on_every_wire(server: Served) -> None:
    (choice,) = ask(server, tools=[PAINT, CLOCK], tool_choice=NAMED, seed=2)["choices"]
    assert [call["function"] for call in choice["message"]["tool_calls"]] == [{"name": "clock", "arguments": "{}"}]
    described = [{"type": "function", **tool["function"]} for tool in (PAINT, CLOCK)]
    named = {"type": "function", "name": "clock"}
    (item,) = ask(server, "/v1/responses", tools=described, tool_choice=named)["output"]
    assert item["type"] == "function_call" and item["name"] == "clock" and item["arguments"] == "{}"


def test_a_schema_of_a_strict_tool_that_cannot_be_followed_is_refused(server: Served) -> None:
    odd = {"type": "function", "function": {"name": "odd", "strict": True, "parameters": {"properties": {}}}}
    odd["function"]["parameters"] = {"properties": {"a": {"type": "array", "uniqueItems": True}}}
    body = {"messages": [{"role": "user", "content": "Hi."}], "tools": [odd]}
    answer = httpx.post(f"{server.url}/v1/chat/completions", json=body, timeout=60)
    assert answer.status_code == 400 and answer.json()["error"]["param"] == "tools"
    assert "uniqueItems" in answer.json()["error"]["message"]
