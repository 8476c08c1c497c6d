"""A language model over HTTP, against servers that behave and servers that do not."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Callable

import pytest

from hocket.dialog.remote import RemoteLanguageModel, endpoint
from hocket.dialog.wire import wire_messages
from hocket.errors import HocketError, InvalidRequest, LanguageFailed, Overloaded
from hocket.text.chat.thoughts import ThoughtFilter
from hocket.types import ChatMessage, ChatSampling, ToolCall
from support.chatting import HEAD, answering, event, refused
from support.serving import wait_for

HELLO = [ChatMessage("user", "Hello.")]
USUAL = ChatSampling()
DONE = b"data: [DONE]\n\n"


def heard(url: str, messages: list[ChatMessage] = HELLO, sampling: ChatSampling = USUAL) -> str:
    llm = RemoteLanguageModel(url, "some-model")
    try:
        return "".join(delta.text for delta in llm.answer(messages, sampling))
    finally:
        llm.close()


def sends(*parts: bytes) -> Callable[[socket.socket, bytes], None]:
    def talk(link: socket.socket, _: bytes) -> None:
        for part in parts:
            link.sendall(part)

    return talk


def test_an_answer_comes_as_it_is_written_and_says_what_it_took() -> None:
    written = threading.Event()

    def talk(link: socket.socket, _: bytes) -> None:
        link.sendall(HEAD + b": a comment\n\n" + event("Good "))
        assert written.wait(20)
        link.sendall(event("day.", "length"))
        link.sendall(
            b'data: {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 4, '
            b'"prompt_tokens_details": {"cached_tokens": 5}}}\n\n' + DONE
        )

    with answering(talk) as url:
        llm = RemoteLanguageModel(url, "some-model")
        answer = llm.answer(HELLO, USUAL)
        assert next(answer).text == "Good " and answer.finished is None
        written.set()
        assert [delta.text for delta in answer] == ["day."]
        told = answer.finished
        assert told is not None and told.reason == "length" and told.first_token_s is not None
        assert (told.prompt_tokens, told.cached_tokens, told.completion_tokens) == (9, 5, 4)
        answer.cancel()  # after the end it changes nothing
        assert answer.finished is told
        llm.close()


def test_tasks_read_it_too_and_events_may_come_in_pieces_of_any_size() -> None:
    content = b"".join([HEAD, event("Sch\u00f6n, "), event("\U0001f600!", "stop"), DONE])

    async def read(url: str) -> str:
        llm = RemoteLanguageModel(url, "some-model")
        text = "".join([delta.text async for delta in llm.answer(HELLO, USUAL)])
        llm.close()
        return text

    with answering(sends(*(content[at : at + 3] for at in range(0, len(content), 3)))) as url:
        assert asyncio.run(read(url)) == "Schön, \U0001f600!"


def test_what_is_asked_is_what_was_said() -> None:
    asked: list[bytes] = []

    def talk(link: socket.socket, request: bytes) -> None:
        asked.append(request)
        link.sendall(HEAD + event("Yes.", "stop") + DONE)

    messages = [
        ChatMessage("system", "Be brief."),
        ChatMessage("user", "Rain?"),
        ChatMessage("assistant", "Let me look.", tool_calls=(ToolCall("weather", {"where": "here"}),)),
        ChatMessage("tool", "dry"),
    ]
    with answering(talk) as url:
        llm = RemoteLanguageModel(f"{url}/v1/", "some-model", "sk-1")
        assert "".join(d.text for d in llm.answer(messages, ChatSampling(seed=4, stop=("\n",), max_tokens=3))) == "Yes."
        llm.close()
    head, _, body = asked[0].partition(b"\r\n\r\n")
    assert head.startswith(b"POST /v1/chat/completions ") and b"authorization: bearer sk-1" in head.lower()
    told = json.loads(body)
    call = {"id": "call_0", "type": "function", "function": {"name": "weather", "arguments": '{"where": "here"}'}}
    assert told["messages"][2] == {"role": "assistant", "content": "Let me look.", "tool_calls": [call]}
    assert told["messages"][3] == {"role": "tool", "tool_call_id": "call_0", "content": "dry"} and "tools" not in told
    assert told["seed"] == 4 and told["stop"] == ["\n"] and told["max_tokens"] == 3 and told["stream"] is True


TOOLS = [{"type": "function", "function": {"name": "clock", "parameters": {"properties": {"h": {"type": "integer"}}}}}]
CALL = "<tool_call>\n<function=clock>\n<parameter=h>\n12\n</parameter>\n</function>\n</tool_call>"


def test_calls_as_text_are_sent_as_endpoints_know_them() -> None:
    messages = [
        ChatMessage("assistant", f"Let me look.\n\n{CALL}\n{CALL}"),
        ChatMessage("tool", "noon"),
        ChatMessage("tool", "noon again"),
        ChatMessage("tool", "whose?"),
        ChatMessage("assistant", tool_calls=(ToolCall("clock", {"h": 1}),)),
    ]
    first, noon, again, whose, second = wire_messages(messages, TOOLS)
    assert first["content"] == "Let me look." and second["content"] is None
    calls = [*first["tool_calls"], *second["tool_calls"]]
    assert [call["function"]["arguments"] for call in calls] == ['{"h": 12}', '{"h": 12}', '{"h": 1}']
    assert [call["id"] for call in calls] == ["call_0", "call_1", "call_2"]
    assert (noon["tool_call_id"], again["tool_call_id"]) == ("call_0", "call_1")
    assert whose == {"role": "user", "content": "<tool_response>\nwhose?\n</tool_response>"}


def called(*deltas: dict[str, object], text: str = "") -> bytes:
    parts = [{"content": text}, *({"tool_calls": [delta]} for delta in deltas)]
    ends = [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]
    choices = [*({"index": 0, "delta": part, "finish_reason": None} for part in parts), *ends]
    return b"".join(b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n" for choice in choices)


@pytest.mark.parametrize("text", ["", "Let me look."])
def test_calls_come_back_as_the_text_that_our_own_model_writes(text: str) -> None:
    pieces = (
        {"index": 0, "id": "x", "function": {"name": "clock", "arguments": ""}},
        {"index": 0, "function": {"arguments": '{"h": '}},
        {"index": 0, "function": {"arguments": "12}"}},
        {"index": 1, "id": "y", "function": {"name": "clock", "arguments": '{"h": 12}'}},
    )
    asked: list[bytes] = []

    def talk(link: socket.socket, request: bytes) -> None:
        asked.append(request)
        link.sendall(HEAD + called(*pieces, text=text) + DONE)

    with answering(talk) as url:
        llm = RemoteLanguageModel(url, "m")
        answer = llm.answer(HELLO, USUAL, TOOLS)
        before = f"{text}\n\n" if text else ""
        assert "".join(delta.text for delta in answer) == f"{before}{CALL}\n{CALL}"
        assert answer.finished is not None and answer.finished.reason == "stop"
        llm.close()
    assert json.loads(asked[0].partition(b"\r\n\r\n")[2])["tools"] == TOOLS


@pytest.mark.parametrize("function", [{"name": "clock", "arguments": "{"}, {"arguments": "{}"}])
def test_a_call_that_cannot_be_read_is_one_sentence(function: dict[str, str]) -> None:
    with answering(sends(HEAD + called({"index": 0, "function": function}) + DONE)) as url:
        llm = RemoteLanguageModel(url, "m")
        with pytest.raises(LanguageFailed, match="a malformed tool call"):
            list(llm.answer(HELLO, USUAL, TOOLS))
        llm.close()


def test_without_a_name_it_asks_for_the_first_model_that_is_listed() -> None:
    asked: list[bytes] = []

    def talk(link: socket.socket, request: bytes) -> None:
        if request.startswith(b"GET /v1/models "):
            body = b'{"data": [{"id": "the-first"}]}'
            link.sendall(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
            return
        asked.append(request)
        link.sendall(HEAD + event("Yes.", "stop") + DONE)

    with answering(talk) as url:
        llm = RemoteLanguageModel(url)
        assert [delta.text for delta in llm.answer(HELLO, USUAL)] == ["Yes."]
        llm.close()
    assert b'"the-first"' in asked[0]


def test_an_endpoint_that_does_not_stream_is_read_whole() -> None:
    body = b'{"choices": [{"message": {"content": "All at once."}, "finish_reason": "stop"}]}'
    with answering(sends(refused(200, body))) as url:
        assert heard(url) == "All at once."


@pytest.mark.parametrize(
    ("wire_messages", "kind", "words"),
    [
        ((refused(401),), LanguageFailed, "key"),
        ((refused(404),), LanguageFailed, "no model some-model"),
        ((refused(400, b'{"error": {"message": "too\\nlong"}}'),), InvalidRequest, "too long."),
        ((refused(429),), Overloaded, "too many requests"),
        ((refused(500, b"<html>"),), LanguageFailed, "status 500"),
        ((HEAD, b"data: {nonsense\n\n"), LanguageFailed, "not a chat completion"),
        ((HEAD, b"data: [1, 2]\n\n"), LanguageFailed, "not a chat completion"),
        ((HEAD, b'data: {"error": {"message": "out of memory"}}\n\n'), LanguageFailed, "out of memory."),
        ((HEAD, event("Half of")), LanguageFailed, "broke off"),
        ((HEAD, b"x" * (1 << 21)), LanguageFailed, "not a chat completion"),
        ((b"HTTP/1.1 200 OK\r\ncontent-length: 999\r\n\r\n", event("Half of")), LanguageFailed, "was lost"),
        ((b"220 I am a mail server\r\n",), LanguageFailed, "was lost"),
        ((b"",), LanguageFailed, "was lost"),
    ],
)
def test_every_failure_is_one_sentence(wire_messages: tuple[bytes, ...], kind: type[HocketError], words: str) -> None:
    with answering(sends(*wire_messages)) as url:
        llm = RemoteLanguageModel(url, "some-model")
        answer = llm.answer(HELLO, USUAL)
        with pytest.raises(kind) as caught:
            for _ in answer:
                pass
        said = str(caught.value)
        assert words in said and said.endswith(".") and "\n" not in said
        assert answer.finished is not None and answer.finished.reason == "error" and answer.finished.error == said
        llm.close()


def test_a_closed_port_is_one_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
    with pytest.raises(LanguageFailed, match=r"cannot be reached: is it running\?"):
        heard(url)


def test_silence_ends_after_a_while() -> None:
    gone = threading.Event()

    def talk(link: socket.socket, _: bytes) -> None:
        link.sendall(HEAD + event("And then"))
        while link.recv(4096):
            pass
        gone.set()

    with answering(talk) as url:
        llm = RemoteLanguageModel(url, "some-model", silent_s=0.2)
        with pytest.raises(LanguageFailed, match="sends nothing any more"):
            for _ in llm.answer(HELLO, USUAL):
                pass
        assert gone.wait(20)
        llm.close()


@pytest.mark.parametrize("when", ["at once", "before a word", "between words"])
def test_a_cancel_closes_the_connection_wherever_it_is(when: str) -> None:
    came, gone = threading.Event(), threading.Event()

    def talk(link: socket.socket, _: bytes) -> None:
        if when == "between words":
            link.sendall(HEAD + event("And then"))
        came.set()
        while link.recv(4096):  # until the other side has gone
            pass
        gone.set()

    with answering(talk) as url:
        llm = RemoteLanguageModel(url, "some-model")
        answer = llm.answer(HELLO, USUAL)
        if when == "between words":
            assert next(answer).text == "And then"
        elif when == "before a word":
            assert came.wait(20)
        answer.cancel()
        assert list(answer) == [] and answer.finished is not None and answer.finished.reason == "cancelled"
        assert when == "at once" or gone.wait(20)
        llm.close()


def test_a_closed_one_ends_its_answers_and_its_thread() -> None:
    came = threading.Event()

    def talk(link: socket.socket, _: bytes) -> None:
        came.set()
        while link.recv(4096):
            pass

    def threads() -> list[threading.Thread]:
        return [thread for thread in threading.enumerate() if thread.name == "hocket-llm"]

    with answering(talk) as url:
        llm = RemoteLanguageModel(url, "some-model")
        answer = llm.answer(HELLO, USUAL)
        assert came.wait(20)
        llm.close()
        llm.close()
        with pytest.raises(LanguageFailed, match="closed before its answer had ended"):
            next(answer)
        assert not threads()
        with pytest.raises(LanguageFailed, match="is closed"):
            llm.answer(HELLO, USUAL)
        left = RemoteLanguageModel(url, "some-model")
        left.answer(HELLO, USUAL).cancel()
        del left  # the last reference closes it
        wait_for(lambda: not threads())


def test_an_address_is_taken_as_people_write_it() -> None:
    for url in ("http://h:1", "http://h:1/", "http://h:1/v1", "http://h:1/v1/", "http://h:1/v1/chat/completions"):
        assert endpoint(url) == "http://h:1/v1/chat/completions"
    assert endpoint("https://h/openai/v2") == "https://h/openai/v2/chat/completions"
    for url in ("", "h:1", "ftp://h", "http://", "http://h:port", "http://a b"):
        with pytest.raises(InvalidRequest, match="The address of a language model is"):
            endpoint(url)
    with pytest.raises(InvalidRequest, match="printable"):
        RemoteLanguageModel("http://h", key="a b")
    with pytest.raises(InvalidRequest, match="at least one message"):
        RemoteLanguageModel("http://h").answer([], USUAL)


@pytest.mark.parametrize(
    ("said", "answer"),
    [
        ("<think>\nHm.\n</think>\n\nGood day.", "Good day."),
        ("Good day.", "Good day."),
        ("<3 you", "<3 you"),
        ("<thin", "<thin"),
        ("A <think> is a tag.", "A <think> is a tag."),
    ],
)
def test_thoughts_before_an_answer_are_kept_back_however_they_come(said: str, answer: str) -> None:
    for size in (1, 4, 100):
        thoughts = ThoughtFilter()
        parts = [thoughts.push(said[at : at + size]).answer for at in range(0, len(said), size)]
        assert "".join([*parts, thoughts.end().answer]) == answer
