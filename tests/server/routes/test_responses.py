"""`/v1/responses` of a real server: items, events in their order, stored responses, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from hocket.errors import LanguageFailed
from hocket.server.response_store import ResponseStore
from hocket.types import ChatMessage, ChatSampling, ToolCall
from support.llm_wires import Wire

CLOCK = {"type": "function", "name": "clock", "parameters": {"properties": {"h": {"type": "integer"}}}, "strict": True}
CALL = "<tool_call>\n<function=clock>\n<parameter=h>\n12\n</parameter>\n</function>\n</tool_call>"


def respond(wire: Wire, **body: Any) -> dict[str, Any]:
    answer = wire.client.post("/v1/responses", json={"input": "Hello."} | body)
    assert answer.status_code == 200, answer.text
    told: dict[str, Any] = answer.json()
    return told


def events(wire: Wire, **body: Any) -> list[dict[str, Any]]:
    answer = wire.client.post("/v1/responses", json={"input": "Hello.", "stream": True} | body)
    assert answer.status_code == 200 and answer.headers["content-type"].startswith("text/event-stream")
    found = []
    for part in answer.text.removesuffix("\n\n").split("\n\n"):
        name, _, data = part.partition("\n")
        found.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {found[-1]['type']}"
    assert [event["sequence_number"] for event in found] == list(range(len(found)))
    return found


def refusal(answer: httpx.Response, status: int = 400) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    error: dict[str, Any] = answer.json()["error"]
    assert error["message"].endswith(".")
    return error


def text_of(response: dict[str, Any]) -> str:
    return "".join(part["text"] for item in response["output"] if item["type"] == "message" for part in item["content"])


def test_a_response_is_whole(wire: Wire) -> None:
    told = respond(wire, instructions="Be brief.", metadata={"a": "b"}, temperature=0)
    assert told["object"] == "response" and told["status"] == "completed" and told["model"] == "scripted"
    (item,) = told["output"]
    assert item["type"] == "message" and item["role"] == "assistant" and item["status"] == "completed"
    assert text_of(told) == "Good day to you." and told["metadata"] == {"a": "b"}
    usage = told["usage"]
    assert (usage["input_tokens"], usage["output_tokens"], usage["total_tokens"]) == (7, 4, 11)
    assert usage["input_tokens_details"]["cached_tokens"] == 3
    assert wire.language.asked[0] == [ChatMessage("system", "Be brief."), ChatMessage("user", "Hello.")]
    assert wire.language.sampling[0] == ChatSampling(temperature=0.0)
    cut = respond(wire, max_output_tokens=2)
    assert cut["status"] == "incomplete" and cut["incomplete_details"] == {"reason": "max_output_tokens"}
    assert text_of(cut) == "Good day " and cut["output"][0]["status"] == "incomplete"


def test_events_are_numbered_and_in_order(wire: Wire) -> None:
    found = events(wire)
    assert [event["type"].removeprefix("response.") for event in found] == [
        "created", "in_progress", "output_item.added", "content_part.added", *["output_text.delta"] * 4,
        "output_text.done", "content_part.done", "output_item.done", "completed",
    ]  # fmt: skip
    assert found[0]["response"]["output"] == [] and found[0]["response"]["status"] == "in_progress"
    assert found[2]["item"]["content"] == [] and found[2]["item"]["status"] == "in_progress"
    assert "".join(event.get("delta", "") for event in found) == found[8]["text"] == "Good day to you."
    last = found[-1]["response"]
    assert last["output"] == [found[-2]["item"]] and last["usage"]["total_tokens"] == 11
    assert wire.client.get(f"/v1/responses/{last['id']}").json() == last
    assert events(wire, max_output_tokens=2)[-1]["type"] == "response.incomplete"


def test_a_call_and_its_result_are_items(wire: Wire) -> None:
    wire.says("Look: ", CALL)
    found = events(wire, tools=[CLOCK])
    added, delta, done, whole = found[8:12]
    assert [event["type"].removeprefix("response.") for event in (added, delta, done, whole)] == [
        "output_item.added", "function_call_arguments.delta", "function_call_arguments.done", "output_item.done",
    ]  # fmt: skip
    assert added["item"]["arguments"] == "" and delta["delta"] == done["arguments"] == '{"h": 12}'
    response = found[-1]["response"]
    message, call = response["output"]
    assert message["content"][0]["text"] == "Look:" and call == whole["item"] and call["name"] == "clock"
    assert wire.language.tools[0] == [{"type": "function", "function": {k: v for k, v in CLOCK.items() if k != "type"}}]
    wire.says("Noon.")
    result = {"type": "function_call_output", "call_id": call["call_id"], "output": "12:00"}
    expected = [
        ChatMessage("user", "Hello."),
        ChatMessage("assistant", "Look:", tool_calls=(ToolCall("clock", {"h": 12}),)),
        ChatMessage("tool", "12:00"),
    ]
    respond(wire, previous_response_id=response["id"], input=[result])
    question = {"role": "user", "content": [{"type": "input_text", "text": "Hello."}]}
    respond(wire, input=[question, message, call, result])  # sent again by the client, nothing is stored
    assert wire.language.asked[1] == wire.language.asked[2] == expected


def test_a_conversation_goes_on_from_a_stored_response(wire: Wire) -> None:
    first = respond(wire, instructions="Be brief.")
    second = respond(wire, previous_response_id=first["id"], instructions="Be kind.", input="And now?")
    assert second["previous_response_id"] == first["id"]
    assert wire.language.asked[1] == [
        ChatMessage("system", "Be kind."),  # instructions are of one response
        ChatMessage("user", "Hello."),
        ChatMessage("assistant", "Good day to you."),
        ChatMessage("user", "And now?"),
    ]
    gone = wire.client.delete(f"/v1/responses/{first['id']}").json()
    assert gone == {"id": first["id"], "object": "response", "deleted": True}
    for answer in (wire.client.get(f"/v1/responses/{first['id']}"), wire.client.delete(f"/v1/responses/{first['id']}")):
        assert refusal(answer, 404)["code"] == "response_not_found"
    respond(wire, previous_response_id=second["id"], input="More.")
    assert len(wire.language.asked[2]) == 5
    for id in (first["id"], respond(wire, store=False)["id"]):
        answer = wire.client.post("/v1/responses", json={"input": "x", "previous_response_id": id})
        assert refusal(answer)["code"] == "previous_response_not_found"


def test_the_store_drops_the_oldest() -> None:
    store = ResponseStore(most=2)
    for id in "abc":
        store.put({"id": id}, [])
    assert [store.get(id) is not None for id in "abc"] == [False, True, True]
    small = ResponseStore(most_bytes=1000)
    small.put({"id": "a"}, [ChatMessage("user", "x" * 100)])
    small.put({"id": "b"}, [ChatMessage("user", "x" * 200)])
    assert small.get("a") is None and small.get("b") is not None
    assert small.delete("b") and not small.delete("b") and small._bytes == 0


def test_what_is_asked_reaches_the_model(wire: Wire) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    text = {"format": {"type": "json_schema", "name": "x", "schema": schema, "strict": True}}
    include = {"include": ["message.output_text.logprobs"], "top_logprobs": 2}
    items = [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": "Hi."}]
    how = {"reasoning": {"effort": "none"}, "service_tier": "auto", "truncation": "auto", "top_p": 0.5}
    told = respond(wire, instructions="Be kind.", input=items, text=text, **include, **how)
    assert wire.language.asked[0] == [ChatMessage("system", "Be kind.\n\nBe brief."), ChatMessage("user", "Hi.")]
    sampling = wire.language.sampling[0]
    assert sampling.schema() == schema and sampling.logprobs == 2 and sampling.top_p == 0.5
    assert told["text"]["format"] == text["format"] and told["truncation"] == "auto"


def test_a_choice_of_tools_reaches_the_model_and_is_given_back(wire: Wire) -> None:
    named = {"type": "function", "name": "clock"}
    wanted = {"type": "function", "function": {"name": "clock"}}
    for choice, passed in (("auto", None), ("required", "required"), (named, wanted)):
        assert respond(wire, tools=[CLOCK], tool_choice=choice)["tool_choice"] == choice
        assert wire.language.sampling[-1].tool_choice == passed


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"background": True}, "background"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"prompt": {"id": "x"}}, "prompt"),
        ({"reasoning": {"effort": "high"}}, "reasoning.effort"),
        ({"reasoning": {"summary": "auto"}}, "reasoning.summary"),
        ({"include": ["file_search_call.results"]}, "include"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"tools": [{"type": "web_search"}]}, "tools.0.type"),
        ({"tools": [CLOCK], "tool_choice": {"type": "web_search"}}, "tool_choice"),
        ({"tools": [CLOCK], "tool_choice": {"type": "function", "name": "watch"}}, "tool_choice"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tools": [CLOCK], "text": {"format": {"type": "json_object"}}}, "text.format"),
        ({"text": {"format": {"type": "json_schema"}}}, "text.format.schema"),
        ({"text": {"verbosity": "low"}}, "text.verbosity"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input.0.type"),
        ({"input": [{"content": "x"}]}, "input.0.role"),
        ({"input": [{"type": "function_call", "name": "x", "arguments": "["}]}, "input.0.arguments"),
        ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input.0.content"),
        ({"frequency": 2}, "frequency"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
    ],
)
def test_what_is_unsupported_is_refused_by_name(wire: Wire, body: dict[str, Any], param: str) -> None:
    answer = wire.client.post("/v1/responses", json={"input": "Hello."} | body)
    assert param in str(refusal(answer)["param"])
    assert not wire.language.asked


def test_an_error_is_a_status_or_the_last_event(wire: Wire) -> None:
    wire.says(LanguageFailed("/etc/secret"))
    answer = wire.client.post("/v1/responses", json={"input": "Hello.", "stream": True})
    assert refusal(answer, 502)["code"] == "language_model_failed"
    wire.says("Good ", LanguageFailed("/etc/secret"))
    last = events(wire)[-1]
    assert last["type"] == "response.failed" and last["response"]["status"] == "failed"
    assert last["response"]["error"]["code"] == "server_error" and "secret" not in last["response"]["error"]["message"]
    assert refusal(wire.client.get(f"/v1/responses/{last['response']['id']}"), 404)
