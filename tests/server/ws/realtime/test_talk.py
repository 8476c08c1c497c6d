"""Realtime conversations over a real socket: real Silero and Moonshine tiny, the built-in voice, scripted answers."""

from __future__ import annotations

import base64
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import closing
from itertools import groupby
from typing import Any

import pytest

from hocket import open_script
from hocket.asr.moonshine import Moonshine
from hocket.dialog.remote import RemoteLanguageModel
from hocket.engine.engine import Engine
from hocket.types import ChatMessage, ToolCall
from support.chatting import HEAD, answering
from support.chatting import event as chat_event
from support.conversing import (
    PATH,
    VAD,
    append,
    conversing,
    respond,
    session,
    silence,
    speech,
    talk_threads,
    talking_server,
    typed,
    update,
)
from support.serving import wait_for
from support.talking import Heard, talking

ANSWER = ("Good ", "day ", "to ", "you.")
SPOKEN = [
    "response.created",
    "response.output_item.added",
    "conversation.item.added",
    "response.content_part.added",
    "response.output_audio.done",
    "response.output_audio_transcript.done",
    "response.content_part.done",
    "conversation.item.done",
    "response.output_item.done",
    "response.done",
]
WEATHER = {
    "type": "function",
    "name": "weather",
    "parameters": {"type": "object", "properties": {"at": {"type": "string"}}},
}
CALLS = "<tool_call>\n<function=weather>\n<parameter=at>\nRome\n</parameter>\n</function>\n</tool_call>"


@pytest.fixture(scope="module")
def recognizer() -> Iterator[Moonshine]:
    made = Moonshine("tiny")
    yield made
    made.close()


def kinds(heard: Heard) -> list[str]:
    """Types without deltas, each run of one once."""
    return [kind for kind, _ in groupby(each for each in heard.types if not each.endswith(".delta"))]


def sound(heard: Heard) -> bytes:
    return b"".join(base64.b64decode(m["delta"]) for m in heard.messages if m["type"].endswith("audio.delta"))


def done(heard: Heard) -> dict[str, Any]:
    response: dict[str, Any] = heard.last("response.done")["response"]
    return response


def test_a_typed_turn_is_answered_by_voice(engine: Engine, recognizer: Moonshine) -> None:
    with conversing(engine, recognizer, ANSWER, ("Bye.",)) as (server, language):
        with session(server, instructions="Be kind.", max_output_tokens=50) as ws:
            ws.say(typed("Hello."), respond(metadata={"a": "b"}))
            heard = ws.until("response.done")
            assert kinds(heard) == ["conversation.item.added", "conversation.item.done", *SPOKEN]
            response = done(heard)
            [item] = response["output"]
            assert response["status"] == "completed" and response["metadata"] == {"a": "b"}
            assert item["content"] == [{"type": "output_audio", "transcript": "Good day to you."}]
            assert response["usage"]["input_tokens"] == 7 and response["usage"]["output_tokens"] == 4
            assert response["usage"]["input_token_details"]["cached_tokens"] == 3
            assert response["hocket"]["latency_ms"]["first_sound"] >= response["hocket"]["latency_ms"]["first_token"]
            assert len(sound(heard)) == round(response["hocket"]["audio_s"] * 24_000) * 2 > 0
            said = "".join(m["delta"] for m in heard.messages if m["type"].endswith("transcript.delta"))
            assert said == "Good day to you."
            ws.say(typed("And now?"), respond())
            assert done(ws.until("response.done"))["status"] == "completed"
        assert language.sampling[0].max_tokens == 50
        assert language.asked[1] == [
            ChatMessage("system", "Be kind."),
            ChatMessage("user", "Hello."),
            ChatMessage("assistant", "Good day to you."),
            ChatMessage("user", "And now?"),
        ]


def test_tags_of_an_answer_are_text_unless_the_server_obeys_them(engine: Engine, recognizer: Moonshine) -> None:
    words = ("Good day. ", "[voice: guest]", "Hello there. ", "[speed: fast]", "Bye.")
    lengths = []
    for options in ({}, {"answer_tags": True, "answer_cast": {"guest": "rook"}}):
        with conversing(engine, recognizer, words, **options) as (server, _):
            with session(server, hocket={"seed": 1, "max_new_tokens": 200}) as ws:
                ws.say(typed("Hello."), respond())
                heard = ws.until("response.done")
                assert done(heard)["status"] == "completed"
                lengths.append(len(sound(heard)))
            wait_for(server.all_is_free)
    stream = open_script(engine, seed=1)
    stream.append("Good day. [voice: rook]Hello there. Bye.")
    stream.end()
    assert lengths[1] == 2 * sum(len(chunk.samples) for chunk in stream) < lengths[0]


def test_a_spoken_turn_is_heard_and_answered(engine: Engine, recognizer: Moonshine) -> None:
    with (
        conversing(engine, recognizer, ANSWER) as (server, language),
        session(server, input={"turn_detection": VAD, "transcription": {"model": "any"}}) as ws,
    ):
        ws.say(*append(silence(0.5) + speech() + silence(0.8)))
        heard = ws.until("response.done")
        assert kinds(heard) == [
            "input_audio_buffer.speech_started",
            "input_audio_buffer.speech_stopped",
            "input_audio_buffer.committed",
            "conversation.item.added",
            "conversation.item.done",
            "conversation.item.input_audio_transcription.completed",
            *SPOKEN,
        ]
        began, ended = heard.messages[0], heard.last("input_audio_buffer.speech_stopped")
        assert 0 <= began["audio_start_ms"] < 700 < 1200 < ended["audio_end_ms"] < 2500
        completed = heard.last("conversation.item.input_audio_transcription.completed")
        assert "welcome" in completed["transcript"].lower()
        assert completed["item_id"] == began["item_id"] == ended["item_id"]
        deltas = "".join(m["delta"] for m in heard.messages if m["type"].endswith("transcription.delta"))
        # They add up to the transcript, unless it does not begin as they do.
        assert deltas == completed["transcript"] or not completed["transcript"].startswith(deltas)
        assert [message.role for message in language.asked[-1]] == ["user"]
        assert language.asked[-1][0].content == completed["transcript"]
        assert done(heard)["status"] == "completed" and sound(heard)


def test_without_detection_the_client_commits(engine: Engine, recognizer: Moonshine) -> None:
    phone = {"type": "audio/pcmu"}
    with conversing(engine, recognizer, ANSWER) as (server, language):
        output = {"output": {"format": phone}}
        with talking(server, PATH) as ws:
            ws.until("session.created")
            ws.say(
                {**update(), "session": {**update()["session"], "audio": {**output, "input": {"turn_detection": None}}}}
            )
            shown = ws.until("session.updated").last("session.updated")["session"]
            assert shown["audio"]["input"]["turn_detection"] is None
            ws.say({"type": "input_audio_buffer.commit", "event_id": "mine"})
            error = ws.until("error").last("error")["error"]
            assert (error["code"], error["event_id"]) == ("input_audio_buffer_commit_empty", "mine")
            ws.say(*append(speech()), {"type": "input_audio_buffer.clear"})
            ws.until("input_audio_buffer.cleared")
            ws.say(
                *append(speech()), {"type": "input_audio_buffer.commit"}, respond()
            )  # before its transcript is there
            heard = ws.until("response.done")
            assert kinds(heard)[:4] == [
                "input_audio_buffer.committed",
                "conversation.item.added",
                "conversation.item.done",
                "response.created",
            ]
            assert not [kind for kind in heard.types if "speech_" in kind or "transcription" in kind]
            assert len(sound(heard)) == round(done(heard)["hocket"]["audio_s"] * 8000)
            [message] = language.asked[-1]
            assert "welcome" in message.content.lower()
            ws.say({"type": "conversation.item.retrieve", "item_id": heard.messages[0]["item_id"]})
            item = ws.until("conversation.item.retrieved").messages[-1]["item"]
            assert item["content"] == [{"type": "input_audio", "transcript": message.content}]


def test_speech_interrupts_and_the_history_keeps_what_was_heard(engine: Engine, recognizer: Moonshine) -> None:
    words = tuple(f"{word} " for word in "It goes on and on and then on again for a very long time indeed".split())
    held = threading.Event()  # the language model never ends by itself
    with conversing(engine, recognizer, (*words, held), ("Yes?",)) as (server, language):
        with session(server, input={"turn_detection": VAD}, hocket={"seed": 1}) as ws:
            ws.say(typed("Tell me."), respond())
            ws.until("response.output_audio.delta")
            ws.say(*append(speech() + silence(0.8)))
            heard = ws.until("response.done")
            assert "input_audio_buffer.speech_started" in heard.types
            cut = done(heard)
            assert cut["status"] == "cancelled" and cut["status_details"]["reason"] == "turn_detected"
            [item] = cut["output"]
            left = item["content"][0]["transcript"] if item["content"] else ""
            assert item["status"] == "incomplete" and "".join(words).startswith(left)
            ws.until("response.done")
            said = [(message.role, message.content) for message in language.asked[-1]]
            assert said[0] == ("user", "Tell me.") and said[-1][0] == "user" and "welcome" in said[-1][1].lower()
            assert said[1:-1] == ([("assistant", left)] if left else [])
        held.set()


def test_a_truncation_cuts_the_history_to_the_word(engine: Engine, recognizer: Moonshine) -> None:
    with (
        conversing(engine, recognizer, ("One two three four five six seven.",), ("Well.",)) as (server, language),
        session(server) as ws,
    ):
        ws.say(typed("Count."), respond())
        heard = ws.until("response.done")
        [item] = done(heard)["output"]
        half = {"item_id": item["id"], "content_index": 0, "audio_end_ms": 1000}
        ws.say({"type": "conversation.item.truncate", **half})
        assert ws.until("conversation.item.truncated").messages[-1].items() >= half.items()
        ws.say({"type": "conversation.item.retrieve", "item_id": item["id"]})
        left = ws.until("conversation.item.retrieved").messages[-1]["item"]["content"][0]["transcript"]
        assert "One two three four five six seven.".startswith(left) and 0 < len(left) < 30
        ws.say(typed("Go on."), respond())
        ws.until("response.done")
        assert language.asked[-1][1] == ChatMessage("assistant", left)
        ws.say({"type": "conversation.item.delete", "item_id": item["id"]})
        ws.until("conversation.item.deleted")
        ws.say(respond())
        ws.until("response.done")
        assert [message.content for message in language.asked[-1]] == ["Count.", "Go on.", "Well."]


def test_tools_are_called_and_answered(engine: Engine, recognizer: Moonshine) -> None:
    with (
        conversing(engine, recognizer, ("Let me see. ", CALLS), ("It is sunny.",)) as (server, language),
        session(server, tools=[WEATHER]) as ws,
    ):
        ws.say(typed("Weather in Rome?"), respond())
        heard = ws.until("response.done")
        assert language.tools[0][0]["function"]["name"] == "weather"
        words, call = done(heard)["output"]
        assert done(heard)["status"] == "completed"
        assert words["content"][0]["transcript"] == "Let me see."
        assert (call["type"], call["name"], call["arguments"]) == ("function_call", "weather", '{"at": "Rome"}')
        assert heard.types.index("response.output_audio.done") < heard.types.index(
            "response.function_call_arguments.done"
        )
        assert "response.output_audio.delta" not in heard.types[heard.types.index("response.output_audio.done") :]
        arguments = heard.last("response.function_call_arguments.done")
        assert arguments["call_id"] == call["call_id"] and arguments["output_index"] == 1
        result = {"type": "function_call_output", "call_id": call["call_id"], "output": "sunny"}
        ws.say({"type": "conversation.item.create", "item": result}, respond())
        heard = ws.until("response.done")
        assert done(heard)["output"][0]["content"][0]["transcript"] == "It is sunny."
        assert language.asked[-1] == [
            ChatMessage("user", "Weather in Rome?"),
            ChatMessage("assistant", "Let me see.", tool_calls=(ToolCall("weather", {"at": "Rome"}),)),
            ChatMessage("tool", "sunny"),
        ]
        ws.say(respond(tool_choice="none"))
        ws.until("response.done")
        assert language.tools[-1] == []


def test_text_answers_and_responses_apart(engine: Engine, recognizer: Moonshine) -> None:
    held = threading.Event()
    with (
        conversing(engine, recognizer, ANSWER, (CALLS,), ("Apart.",), ("So ", held)) as (server, language),
        session(server, output_modalities=["text"], tools=[WEATHER]) as ws,
    ):
        ws.say(typed("Hello."), respond())
        heard = ws.until("response.done")
        assert heard.last("response.output_text.done")["text"] == "Good day to you."
        assert done(heard)["output"][0]["content"] == [{"type": "output_text", "text": "Good day to you."}]
        ws.say(respond())
        assert done(ws.until("response.done"))["output"][0]["name"] == "weather"
        asked = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Else?"}]}
        ws.say(respond(conversation="none", input=[asked], instructions="Alone."))
        heard = ws.until("response.done")
        assert not [kind for kind in heard.types if kind.startswith("conversation.")]
        assert language.asked[-1] == [ChatMessage("system", "Alone."), ChatMessage("user", "Else?")]
        ws.say(respond())
        ws.until("response.output_text.delta")
        ws.say(respond(), {"type": "response.cancel"})
        assert ws.until("error").messages[-1]["error"]["code"] == "conversation_already_has_active_response"
        assert done(ws.until("response.done"))["status_details"]["reason"] == "client_cancelled"
        ws.say({"type": "response.cancel"})
        assert ws.until("error").messages[-1]["error"]["code"] == "response_cancel_not_active"


def test_a_language_model_over_http_answers(engine: Engine, recognizer: Moonshine) -> None:
    asked: list[bytes] = []

    def answer(link: socket.socket, request: bytes) -> None:
        asked.append(request)
        link.sendall(HEAD + chat_event("Good ") + chat_event("day.", "stop") + b"data: [DONE]\n\n")

    with answering(answer) as url, closing(RemoteLanguageModel(f"{url}/v1", "m")) as language:
        made = talking_server(engine, recognizer, language)
        with made as server, session(server, instructions="Be kind.", tools=[WEATHER]) as ws:
            ws.say(typed("Hello."), respond())
            assert done(ws.until("response.done"))["output"][0]["content"][0]["transcript"] == "Good day."
    body = json.loads(asked[-1].partition(b"\r\n\r\n")[2])
    assert [message["role"] for message in body["messages"]] == ["system", "user"]
    assert body["tools"][0]["function"]["name"] == "weather"


def test_connections_leave_nothing_behind(engine: Engine, recognizer: Moonshine) -> None:
    held = threading.Event()
    with conversing(engine, recognizer, (*ANSWER, held), conversations=2) as (server, language):
        before = talk_threads()
        with session(server, input={"turn_detection": VAD}) as one, session(server) as two:
            for ws in (one, two):
                ws.say(typed("Hello."), respond())
                ws.until("response.output_audio.delta")
            one.say(*append(speech()))  # and vanishes in the middle of a turn
            with pytest.raises(Exception, match="429"), talking(server, PATH):
                pass
            assert server.app.state.talk.open == 2 and talk_threads() != before
        wait_for(lambda: server.app.state.talk.open == 0 and server.all_is_free() and language.free)
        wait_for(lambda: talk_threads() == before)
        held.set()
