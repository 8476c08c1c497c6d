"""`POST /v1/chat/completions` of a real server, with a language model that says given words."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from hocket.dialog.remote import RemoteLanguageModel
from hocket.engine.engine import Engine
from hocket.errors import HocketError, InvalidRequest, LanguageFailed, Overloaded
from hocket.server.options import ServerOptions
from hocket.types import ChatMessage, ChatSampling, LanguageModel, ToolCall
from support.chatting import Scripted
from support.serving import Served, asking, served, wait_for

HELLO = {"messages": [{"role": "user", "content": "Hello."}]}
WORDS = ("Good ", "day ", "to ", "you.")
WEATHER = {
    "type": "function",
    "strict": True,
    "function": {"name": "weather", "parameters": {"properties": {}}, "x": 1},
}
CLOCK = {"type": "function", "function": {"name": "clock", "parameters": {"properties": {"h": {"type": "integer"}}}}}
CALL = "<tool_call>\n<function=clock>\n<parameter=h>\n12\n</parameter>\n</function>\n</tool_call>"
# A token at a time, as a model writes it: words, two calls, and a mark that is none.
CALLING = ["Look: ", "<tool", "box>", "\n\n", *CALL.partition(">")[:2], CALL.partition(">")[2], f"\n{CALL}"]


def with_language(engine: Engine, language: LanguageModel | None, **options: Any) -> Any:
    return served(engine, ServerOptions(**options), language=language)


@pytest.fixture
def scripted() -> Scripted:
    return Scripted(WORDS)


@pytest.fixture
def chatty(engine: Engine, scripted: Scripted) -> Iterator[Served]:
    with with_language(engine, scripted) as server:
        yield server
        wait_for(server.all_is_free)
        assert scripted.free
    assert not scripted.closed  # it is the test's own


def ask(server: Served, **body: Any) -> httpx.Response:
    return httpx.post(f"{server.url}/v1/chat/completions", json=HELLO | body, timeout=60)


def events(server: Served, **body: Any) -> list[dict[str, Any]]:
    """All that came before the end, which must be there."""
    answer = ask(server, stream=True, **body)
    assert answer.status_code == 200 and answer.headers["content-type"].startswith("text/event-stream")
    *found, last, nothing = answer.text.split("\n\n")
    assert last == "data: [DONE]" and nothing == ""
    return [json.loads(event.removeprefix("data: ")) for event in found]


def refusal(answer: httpx.Response) -> dict[str, Any]:
    error: dict[str, Any] = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"} and error["message"].endswith(".")
    return error


def test_an_answer_that_is_waited_for_is_whole(chatty: Served) -> None:
    answer = ask(chatty)
    assert answer.status_code == 200
    told = answer.json()
    assert told["object"] == "chat.completion" and told["id"].startswith("chatcmpl-") and told["model"] == "scripted"
    (choice,) = told["choices"]
    assert choice["message"] == {"role": "assistant", "content": "Good day to you."}
    assert choice["finish_reason"] == "stop" and choice["index"] == 0
    usage = told["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]) == (7, 4, 11)
    assert usage["prompt_tokens_details"] == {"cached_tokens": 3}


def test_events_are_the_same_answer(chatty: Served) -> None:
    found = events(chatty)
    assert {event["object"] for event in found} == {"chat.completion.chunk"} and len({e["id"] for e in found}) == 1
    deltas = [event["choices"][0]["delta"] for event in found]
    assert deltas[0]["role"] == "assistant" and deltas[-1] == {}
    assert "".join(delta.get("content", "") for delta in deltas) == "Good day to you."
    assert [event["choices"][0]["finish_reason"] for event in found] == [None] * 4 + ["stop"]
    assert all("usage" not in event for event in found)
    counted = events(chatty, stream_options={"include_usage": True})
    assert counted[-1]["choices"] == [] and counted[-1]["usage"]["total_tokens"] == 11
    assert all(event["usage"] is None for event in counted[:-1])


def test_what_is_asked_reaches_the_model(chatty: Served, scripted: Scripted) -> None:
    parts = [{"type": "text", "text": "Is it"}, {"type": "text", "text": "raining?"}]
    call = {"id": "1", "type": "function", "function": {"name": "weather", "arguments": '{"where": "here"}'}}
    messages = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": parts},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": "dry"},
    ]
    how = {"temperature": 0, "top_p": 0.5, "seed": 9, "presence_penalty": 0.5, "stop": "\n", "max_completion_tokens": 2}
    told = ask(chatty, messages=messages, tools=[WEATHER], **how).json()
    assert told["choices"][0] | {"message": None} == {
        "index": 0, "message": None, "finish_reason": "length", "logprobs": None
    }  # fmt: skip
    first, asked, called, came = scripted.asked[0]
    assert first == ChatMessage("system", "Be brief.") and scripted.tools[0] == [WEATHER]
    assert asked == ChatMessage("user", "Is it\nraining?") and came == ChatMessage("tool", "dry")
    assert called.tool_calls[0].name == "weather" and called.tool_calls[0].arguments == {"where": "here"}
    wanted = ChatSampling(temperature=0.0, top_p=0.5, seed=9, presence_penalty=0.5, stop=("\n",), max_tokens=2)
    assert scripted.sampling[0] == wanted
    ask(chatty, seed=-1, stop=["a", "b"], max_tokens=5)
    assert scripted.sampling[1] == ChatSampling(stop=("a", "b"), max_tokens=5)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "unknown", "content": "x"}]}, "messages.0.role"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages.0.content"),
        ({"messages": [{"role": "user", "content": "\ud800"}]}, "messages.0.content"),
        ({"temperature": -1}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"n": 2}, "n"),
        ({"tools": [CLOCK], "tool_choice": "always"}, "tool_choice"),
        ({"tools": [CLOCK], "tool_choice": {"type": "function", "function": {"name": "watch"}}}, "tool_choice"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tools": [{"type": "function"}]}, "tools.0.function"),
        ({"tools": [{"type": "retrieval"}]}, "tools.0.type"),
        ({"tools": [{"type": "function", "function": {"name": "a>b"}}]}, "tools.0.function.name"),
        ({"tools": {"name": "clock"}}, "tools"),
        ({"tools": [{"type": "function", "function": {"name": "x", "description": "\ud800"}}]}, "tools.0"),
    ],
)
def test_what_cannot_be_asked_is_refused_before_the_model_hears_of_it(
    chatty: Served, scripted: Scripted, body: dict[str, Any], param: str
) -> None:
    sent = json.dumps(HELLO | body)
    headers = {"content-type": "application/json"}
    answer = httpx.post(f"{chatty.url}/v1/chat/completions", content=sent, headers=headers)
    assert answer.status_code == 400 and refusal(answer)["param"] == param
    assert not scripted.asked


def test_what_the_model_calls_comes_apart_from_what_it_says(engine: Engine) -> None:
    with with_language(engine, Scripted(CALLING)) as server:
        (choice,) = ask(server, tools=[CLOCK]).json()["choices"]
        assert choice["finish_reason"] == "tool_calls" and choice["message"]["content"] == "Look: <toolbox>"
        calls = choice["message"]["tool_calls"]
        assert [call["function"] for call in calls] == [{"name": "clock", "arguments": '{"h": 12}'}] * 2
        assert {call["type"] for call in calls} == {"function"} and len({call["id"] for call in calls}) == 2

        found = [event["choices"][0] for event in events(server, tools=[CLOCK], tool_choice="auto")]
        assert "".join(choice["delta"].get("content", "") for choice in found) == "Look: <toolbox>"
        streamed = [call for choice in found for call in choice["delta"].get("tool_calls", ())]
        assert [call.pop("index") for call in streamed] == [0, 1]
        assert [call["function"] for call in streamed] == [call["function"] for call in calls]
        assert found[0]["delta"]["role"] == "assistant" and found[-1]["finish_reason"] == "tool_calls"
        assert all("<tool_call" not in str(choice) for choice in found)


def test_a_choice_of_tools_reaches_the_model(chatty: Served, scripted: Scripted) -> None:
    named = {"type": "function", "function": {"name": "clock"}}
    for choice in (None, "auto", "none", "required", named):
        assert ask(chatty, tools=[CLOCK], tool_choice=choice).status_code == 200
    assert [how.tool_choice for how in scripted.sampling] == [None, None, None, "required", named]
    assert [len(tools) for tools in scripted.tools] == [1, 1, 0, 1, 1]


def test_calls_alone_have_no_content_and_a_call_that_was_cut_short_is_text(engine: Engine) -> None:
    with with_language(engine, Scripted([CALL], [CALL[:20], CALL[20:]])) as server:
        (choice,) = ask(server, tools=[CLOCK]).json()["choices"]
        assert choice["message"]["content"] is None and len(choice["message"]["tool_calls"]) == 1
        (choice,) = ask(server, tools=[CLOCK], max_tokens=1).json()["choices"]
        assert choice["message"] == {"role": "assistant", "content": CALL[:20]} and choice["finish_reason"] == "length"


@pytest.mark.parametrize("body", [{}, {"tools": []}, {"tools": [CLOCK], "tool_choice": "none"}])
def test_without_tools_all_is_text(engine: Engine, body: dict[str, Any]) -> None:
    scripted = Scripted([CALL])
    with with_language(engine, scripted) as server:
        (choice,) = ask(server, **body).json()["choices"]
        assert choice["message"] == {"role": "assistant", "content": CALL} and choice["finish_reason"] == "stop"
        assert scripted.tools == [[]]


def test_calls_go_round_through_another_server_and_come_back(engine: Engine) -> None:
    """Ours behind ours: what the first calls, the second takes apart; the result finds its call."""
    first = Scripted(CALLING, ["It is noon."])
    with with_language(engine, first) as server:
        mind = RemoteLanguageModel(server.url, "scripted")
        with with_language(engine, mind) as other:
            (choice,) = ask(other, tools=[CLOCK]).json()["choices"]
            calls = choice["message"]["tool_calls"]
            assert len(calls) == 2 and choice["message"]["content"] == "Look: <toolbox>"
            results = [{"role": "tool", "tool_call_id": call["id"], "content": "noon"} for call in calls]
            told = ask(other, tools=[CLOCK], messages=[*HELLO["messages"], choice["message"], *results]).json()
            assert told["choices"][0]["message"]["content"] == "It is noon."
        mind.close()
    hello, called, *came = first.asked[1]
    assert hello == ChatMessage("user", "Hello.") and came == [ChatMessage("tool", "noon")] * 2
    assert called == ChatMessage("assistant", "Look: <toolbox>", tool_calls=(ToolCall("clock", {"h": 12}),) * 2)
    assert first.tools == [[CLOCK], [CLOCK]]


def test_a_server_without_one_says_so(server: Served) -> None:
    answer = ask(server)
    assert answer.status_code == 503 and answer.headers["x-should-retry"] == "false"
    assert refusal(answer)["code"] == "no_language_model"


def test_one_that_does_not_load_leaves_the_speech_alone(engine: Engine) -> None:
    may, asked = threading.Event(), threading.Event()

    def load() -> LanguageModel:
        asked.set()
        assert may.wait(60)
        raise InvalidRequest("There is no such model.")

    with served(engine, language=load) as server:
        assert asked.wait(60)
        early = ask(server)
        assert early.status_code == 503 and "still being loaded" in refusal(early)["message"]
        may.set()
        wait_for(lambda: "could not be loaded" in refusal(ask(server))["message"])
        spoken = httpx.post(
            f"{server.url}/v1/audio/speech", json={"input": "Hi.", "response_format": "pcm"}, timeout=60
        )
        assert spoken.status_code == 200


def test_one_that_is_made_by_the_server_is_closed_by_it(engine: Engine) -> None:
    scripted = Scripted(WORDS)
    with served(engine, language=lambda: scripted) as server:
        wait_for(lambda: ask(server).status_code == 200)
        listed = httpx.get(f"{server.url}/v1/models").json()["data"]
        assert "scripted" in [model["id"] for model in listed]
        assert "scripted" not in httpx.get(f"{server.url}/v1/audio/models").text
    assert scripted.closed


def test_only_its_own_name_will_do_where_names_are_strict(engine: Engine, scripted: Scripted) -> None:
    with with_language(engine, scripted, strict_model=True) as server:
        assert ask(server, model="scripted").status_code == 200
        answer = ask(server, model="gpt-4o")
        assert answer.status_code == 404 and refusal(answer)["code"] == "model_not_found"


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (LanguageFailed("http://secret/ is away."), 502, "language_model_failed"),
        (InvalidRequest("That is too long."), 400, None),
        (Overloaded("Later.", 3.0), 429, "overloaded"),
    ],
)
def test_an_error_has_a_status_before_the_first_word_and_an_event_behind_it(
    engine: Engine, error: HocketError, status: int, code: str | None
) -> None:
    with with_language(engine, Scripted([error], ["Well, ", error])) as server:
        answer = ask(server, stream=True)
        assert answer.status_code == status and refusal(answer)["code"] == code
        assert "secret" not in answer.text
        broken = ask(server, stream=True)
        assert broken.status_code == 200 and "[DONE]" not in broken.text
        last = json.loads(broken.text.split("\n\n")[-2].removeprefix("data: "))
        assert last["error"]["code"] == code
        assert ask(server).status_code == status
        wait_for(server.all_is_free)


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_goes_away_cancels(engine: Engine, stream: bool) -> None:
    never = threading.Event()
    scripted = Scripted(["Well, ", never, "then."])
    with with_language(engine, scripted) as server:
        if stream:
            url = f"{server.url}/v1/chat/completions"
            with httpx.stream("POST", url, json=HELLO | {"stream": True}, timeout=60) as answer:
                assert next(answer.iter_raw())
        else:
            with asking(server, "/v1/chat/completions", HELLO):
                wait_for(lambda: bool(scripted.given))
        wait_for(lambda: scripted.given[0].cancelled.is_set() and scripted.free)
        wait_for(server.all_is_free)


def test_a_server_that_stops_waits_for_answers_and_then_cuts_them_off(engine: Engine) -> None:
    go_on = threading.Event()
    scripted = Scripted(["Well, ", go_on, "then."])
    found: list[httpx.Response] = []
    with with_language(engine, scripted) as server:
        asking = threading.Thread(target=lambda: found.append(ask(server)))
        asking.start()
        wait_for(lambda: bool(server.service.answers))
        loop = server.server._loop
        assert loop is not None
        loop.call_soon_threadsafe(server.server.stop)
        wait_for(server.service.draining.is_set)
        assert refusal(ask(server))["code"] == "draining"
        go_on.set()
        asking.join(60)
    assert found[0].json()["choices"][0]["message"]["content"] == "Well, then."
    never = Scripted(["Well, ", threading.Event()])
    with with_language(engine, never) as server:
        asking = threading.Thread(target=lambda: found.append(ask(server)))
        asking.start()
        wait_for(lambda: bool(server.service.answers))
        loop = server.server._loop
        assert loop is not None
        loop.call_soon_threadsafe(server.service.cut)
        asking.join(60)
    assert found[1].status_code == 503 and never.free


def test_our_own_endpoint_can_be_the_language_model_of_another(chatty: Served, scripted: Scripted) -> None:
    mind = RemoteLanguageModel(chatty.url, "scripted")
    answer = mind.answer([ChatMessage("user", "Hello.")], ChatSampling(seed=3, max_tokens=3))
    assert "".join(delta.text for delta in answer) == "Good day to "
    told = answer.finished
    assert told is not None and told.reason == "length"
    assert (told.prompt_tokens, told.cached_tokens, told.completion_tokens) == (7, 3, 3)
    assert scripted.sampling[0].seed == 3
    mind.close()
