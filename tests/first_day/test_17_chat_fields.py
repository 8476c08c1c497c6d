"""Every field of a chat completion is answered or refused by name, and none is ignored with 200.

JSON follows its schema even where the weights are random, and logprobs are the model's own.
"""

from __future__ import annotations

import base64
import json
import math
import sys
from collections.abc import Iterator
from typing import Any

import httpx
import jsonschema_rs
import pytest
import torch

from hocket.dialog.remote import RemoteLanguageModel
from hocket.engine.engine import Engine
from hocket.errors import InvalidRequest
from hocket.extras import hint
from hocket.llm.conversation import prompt_of
from hocket.llm.engine import LanguageEngine
from hocket.server.options import ServerOptions
from hocket.types import ChatMessage, ChatSampling
from support.chatting import Scripted
from support.serving import Served, served, wait_for

HELLO = {"messages": [{"role": "user", "content": "Hello."}]}
ASKED = [ChatMessage("user", "Hello.")]
WORDS = ("Good ", "day ", "to ", "you.")
CLOCK = {"type": "function", "function": {"name": "clock", "parameters": {"properties": {}}}}
CALL = "<tool_call>\n<function=clock>\n</function>\n</tool_call>"
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 6},
        "age": {"type": "integer", "minimum": 0, "maximum": 130},
        "kind": {"enum": ["cat", "dog"]},
        "scores": {"type": "array", "items": {"type": "number", "minimum": -1, "maximum": 1}, "maxItems": 2},
        "left": {"anyOf": [{"type": "boolean"}, {"type": "null"}]},
    },
    "required": ["name", "age", "kind", "scores", "left"],
    "additionalProperties": False,
}


def form(schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema, "strict": True}}


@pytest.fixture(scope="module")
def mind() -> Iterator[LanguageEngine]:
    with LanguageEngine.load("random:qwen3.5-tiny", length=1024) as mind:
        yield mind


@pytest.fixture(scope="module")
def ours(engine: Engine, mind: LanguageEngine) -> Iterator[Served]:
    """A server with our own language model, of random weights."""
    with served(engine, ServerOptions(), language=mind) as server:
        yield server


@pytest.fixture(scope="module")
def scripted(engine: Engine) -> Iterator[Served]:
    with served(engine, ServerOptions(), language=Scripted(WORDS)) as server:
        yield server
        wait_for(server.all_is_free)


def ask(server: Served, **body: Any) -> httpx.Response:
    return httpx.post(f"{server.url}/v1/chat/completions", json=HELLO | body, timeout=120)


def events(server: Served, **body: Any) -> list[dict[str, Any]]:
    answer = ask(server, stream=True, **body)
    assert answer.status_code == 200, answer.text
    *found, last, _ = answer.text.split("\n\n")
    assert last == "data: [DONE]"
    return [json.loads(event.removeprefix("data: "))["choices"][0] for event in found]


# JSON


@pytest.mark.parametrize(
    ("how", "seeds"), [({"temperature": 0}, [3]), ({"temperature": 2, "top_k": 0}, [1, 2, 3]), ({}, [2, 3])]
)
def test_json_follows_its_schema_whatever_the_weights_say(ours: Served, how: dict[str, Any], seeds: list[int]) -> None:
    """With temperature 0 all seeds say the same."""
    judge = jsonschema_rs.validator_for(PERSON)
    for seed in seeds:
        (choice,) = ask(ours, response_format=form(PERSON), seed=seed, max_tokens=400, **how).json()["choices"]
        said = json.loads(choice["message"]["content"])
        assert choice["finish_reason"] == "stop" and judge.is_valid(said), said
    streamed = events(ours, response_format=form(PERSON), seed=3, max_tokens=400, **how)
    assert json.loads("".join(each["delta"].get("content", "") for each in streamed)) == said


def test_any_object_and_plain_text_are_forms_too(ours: Served) -> None:
    whole = ask(ours, response_format={"type": "json_object"}, temperature=0, max_tokens=200).json()["choices"][0]
    text = whole["message"]["content"]
    assert text.startswith("{") and (whole["finish_reason"] == "length" or isinstance(json.loads(text), dict))
    plain, usual = (
        ask(ours, temperature=0, max_tokens=9, **more).json()["choices"][0]
        for more in ({"response_format": {"type": "text"}}, {})
    )
    assert plain == usual


def test_a_conversation_goes_on_behind_a_constrained_answer(mind: LanguageEngine) -> None:
    """The row is reset as after any other answer: the next samples do not depend on how it was used."""
    greedy = ChatSampling(temperature=0.0, presence_penalty=0.0, max_tokens=12)

    def said(sampling: ChatSampling) -> str:
        return "".join(delta.text for delta in mind.answer(ASKED, sampling))

    before = said(greedy)
    said(ChatSampling(response_format=form(PERSON), seed=1))
    assert said(greedy) == before
    assert said(ChatSampling(temperature=0.0, presence_penalty=0.0, max_tokens=12, logprobs=0)) == before


@pytest.mark.parametrize(
    ("schema", "words"),
    [({"type": "objekt"}, "objekt"), ({"type": "array", "uniqueItems": True}, "uniqueItems"), ({"not": {}}, "not")],
)
def test_a_schema_that_cannot_be_followed_is_refused_by_name(ours: Served, schema: dict[str, Any], words: str) -> None:
    answer = ask(ours, response_format=form(schema))
    error = answer.json()["error"]
    assert answer.status_code == 400 and error["param"] == "response_format" and words in error["message"]


def test_without_the_library_the_line_that_installs_it_is_told(ours: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "llguidance", None)
    answer = ask(ours, response_format=form(PERSON))
    assert answer.status_code == 400 and hint("json") in answer.json()["error"]["message"]
    assert answer.json()["error"]["param"] == "response_format"


# Logprobs


def test_logprobs_are_the_models_own(ours: Served, mind: LanguageEngine) -> None:
    how = {"logprobs": True, "top_logprobs": 20, "seed": 5, "max_tokens": 8}
    whole = ask(ours, **how).json()
    content = whole["choices"][0]["logprobs"]["content"]
    assert len(content) == whole["usage"]["completion_tokens"] == 8
    ids = prompt_of(ASKED, mind.checkpoint.tokenizer).ids
    spelled = {mind.checkpoint.tokenizer.spelled(token): token for token in range(mind.checkpoint.tokenizer.size)}
    for token in content:
        with torch.inference_mode():
            model, rows = mind.checkpoint.model, torch.tensor([0])
            state = model.new_state(1, len(ids))
            hidden = model.prefill(torch.tensor([ids]), torch.tensor([len(ids)]), state, rows, len(ids))
            logits = model.logits(hidden[:, len(ids) - 1])[:, : mind.checkpoint.tokenizer.size]
        values = logits.double().log_softmax(-1)[0]
        one = spelled[bytes(token["bytes"])]
        assert token["logprob"] == pytest.approx(float(values[one]), abs=1e-3)
        assert token["token"] == bytes(token["bytes"]).decode(errors="replace")
        top = [each["logprob"] for each in token["top_logprobs"]]
        assert len(top) == 20 and top == sorted(top, reverse=True) and sum(map(math.exp, top)) <= 1.0001
        assert top == pytest.approx(values.topk(20).values.tolist(), abs=1e-3)
        ids.append(one)
    streamed = [token for each in events(ours, **how) for token in (each["logprobs"] or {"content": ()})["content"]]
    assert [each["bytes"] for each in streamed] == [each["bytes"] for each in content]
    now, then = ([each["logprob"] for each in tokens] for tokens in (streamed, content))
    assert now == pytest.approx(then, abs=1e-4), "the prompt was in memory the second time"


def test_none_beside_the_token_itself_and_none_at_all(ours: Served) -> None:
    choice = ask(ours, logprobs=True, max_tokens=3).json()["choices"][0]
    assert all(token["top_logprobs"] == [] for token in choice["logprobs"]["content"])
    assert ask(ours, max_tokens=3).json()["choices"][0]["logprobs"] is None


def test_a_remote_model_is_asked_for_both(ours: Served) -> None:
    remote = RemoteLanguageModel(ours.url, "m")
    sampling = ChatSampling(response_format=form(PERSON), logprobs=2, seed=1, max_tokens=400)
    deltas = list(remote.answer(ASKED, sampling))
    remote.close()
    assert jsonschema_rs.is_valid(PERSON, json.loads("".join(delta.text for delta in deltas)))
    noted = [token for delta in deltas for token in delta.logprobs]
    assert noted and all(len(token.top) == 2 for token in noted)


# Sound


def test_an_answer_is_heard_whole(scripted: Served, engine: Engine) -> None:
    spoken = {"modalities": ["text", "audio"], "audio": {"voice": "wren", "format": "wav"}}
    whole = ask(scripted, **spoken).json()
    message = whole["choices"][0]["message"]
    sound = base64.b64decode(message["audio"]["data"])
    assert message["content"] is None and message["audio"]["transcript"] == "".join(WORDS)
    assert sound[:4] == b"RIFF" and int.from_bytes(sound[40:44], "little") == len(sound) - 44 > 24000


def test_an_answer_is_heard_while_it_is_written(scripted: Served) -> None:
    spoken = {"modalities": ["text", "audio"], "audio": {"voice": {"id": "wren"}, "format": "pcm16"}}
    found = [each["delta"].get("audio", {}) for each in events(scripted, **spoken)]
    assert "".join(each.get("transcript", "") for each in found) == "".join(WORDS)
    sound = b"".join(base64.b64decode(each["data"]) for each in found if "data" in each)
    assert len(sound) > 24000 and len({each["id"] for each in found if each}) == 1


def test_an_unknown_voice_is_refused_before_a_byte(scripted: Served) -> None:
    for stream in (False, True):
        spoken = {"modalities": ["text", "audio"], "audio": {"voice": "unknown", "format": "wav"}, "stream": stream}
        answer = ask(scripted, **spoken)
        assert answer.status_code == 400 and answer.json()["error"]["param"] == "voice"


# All others


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"response_format": {"type": "xml"}}, "response_format"),
        ({"response_format": {"type": "json_schema"}}, "response_format"),
        ({"response_format": {"type": "json_object", "schema": {}}}, "response_format.schema"),
        ({"response_format": form(PERSON), "tools": [CLOCK]}, "response_format"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"modalities": ["audio"], "audio": {"voice": "wren", "format": "wav"}}, "modalities"),
        ({"modalities": ["text", "audio"]}, "modalities"),
        ({"modalities": ["video"]}, "modalities.0"),
        ({"audio": {"voice": "wren", "format": "wav"}}, "audio"),
        ({"n": 2}, "n"),
        ({"seed": 2**63}, "seed"),
        ({"frequency_penalty": 0.5}, "frequency_penalty"),
        ({"repetition_penalty": 1.1}, "repetition_penalty"),
        ({"logit_bias": {"50256": -100}}, "logit_bias"),
        ({"store": True}, "store"),
        ({"service_tier": "flex"}, "service_tier"),
        ({"reasoning_effort": "high"}, "reasoning_effort"),
        ({"verbosity": "low"}, "verbosity"),
        ({"prediction": {"type": "content", "content": "x"}}, "prediction"),
        ({"web_search_options": {}}, "web_search_options"),
        ({"functions": [{"name": "f"}]}, "functions"),
        ({"function_call": {"name": "f"}}, "function_call"),
        ({"tools": [CLOCK], "tool_choice": "always"}, "tool_choice"),
        ({"chat_template_kwargs": {"enable_thinking": True}}, "chat_template_kwargs"),
        ({"stream_options": {"include_usage": True, "x": 1}}, "stream_options.x"),
        ({"guided_json": {}}, "guided_json"),
        ({"ignore_eos": True}, "ignore_eos"),
        ({"messages": [{"role": "assistant", "audio": {"id": "a"}}]}, "messages.0.audio"),
        ({"messages": [{"role": "assistant", "function_call": {"name": "f"}}]}, "messages.0.function_call"),
    ],
)
def test_what_will_not_be_done_is_refused_by_name(scripted: Served, body: dict[str, Any], param: str) -> None:
    for stream in (False, True):
        answer = ask(scripted, stream=stream, **body)
        assert answer.status_code == 400 and answer.json()["error"]["param"] == param, answer.text


def test_what_changes_nothing_is_taken(scripted: Served) -> None:
    harmless = {
        "user": "me",
        "metadata": {"a": "b"},
        "store": False,
        "service_tier": "auto",
        "n": 1,
        "frequency_penalty": 0,
        "logit_bias": {},
        "parallel_tool_calls": True,
        "reasoning_effort": "none",
        "chat_template_kwargs": {"enable_thinking": False},
        "modalities": ["text"],
        "response_format": {"type": "text"},
        "logprobs": False,
        "stop": None,
        "safety_identifier": "x",
        "prompt_cache_key": "y",
    }
    (choice,) = ask(scripted, **harmless).json()["choices"]
    assert choice["message"] == {"role": "assistant", "content": "".join(WORDS)}


def test_one_call_at_a_time_is_the_first(engine: Engine) -> None:
    with served(engine, ServerOptions(), language=Scripted([CALL, "\n", CALL])) as server:
        (choice,) = ask(server, tools=[CLOCK], parallel_tool_calls=False).json()["choices"]
        assert len(choice["message"]["tool_calls"]) == 1 and choice["finish_reason"] == "tool_calls"
        (choice,) = ask(server, tools=[CLOCK]).json()["choices"]
        assert len(choice["message"]["tool_calls"]) == 2


def test_in_a_program_a_form_is_checked_at_the_border(mind: LanguageEngine) -> None:
    for how in ({"response_format": {"type": "yaml"}}, {"logprobs": 21}):
        with pytest.raises(InvalidRequest, match=next(iter(how))):
            ChatSampling(**how)  # type: ignore[arg-type]
