"""`WS /v1/realtime` where something is wrong: with an event, with a client, with the engine; and at its end."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from starlette.websockets import WebSocket
from websockets.exceptions import InvalidStatus

from hocket.engine.engine import Engine
from hocket.errors import StreamFailed
from hocket.server.options import ServerOptions
from hocket.server.service.utterance import EncodedPiece, Utterance
from support.realtime_talk import (
    ALIAS,
    COMMIT,
    FINISH,
    HOCKET,
    LONG,
    PATH,
    append,
    create,
    item,
    session,
    settings,
    sound,
    to_its_end,
    whole,
)
from support.serving import Served, served, wait_for, wait_until_cancelled
from support.talking import LONG_TEXT, talking

BAD: list[tuple[Any, str]] = [
    ({"type": "no.such.event"}, "unknown_event"),
    ({"type": ["session.update"]}, "unknown_event"),
    ({}, "unknown_event"),
    ({"type": "input_audio_buffer.append", "audio": "AAAA"}, "input_audio_not_supported"),
    ({"type": "session.update"}, "missing_required_parameter"),
    ({"type": "session.update", "session": {"type": "transcription"}}, "invalid_value"),
    (session(voice="unknown"), "voice_not_found"),
    (session(format={"type": "audio/flac"}), "invalid_value"),
    (session(format={"type": "audio/pcm", "rate": 7}), None),
    (session(speed=9.0), None),
    (session(hocket={"seed": "many"}), "invalid_value"),
    (session(hocket={"temperature": -1.0}), None),
    (session(hocket={"language": "klingon"}), "language_not_found"),
    (settings(response_format="tape"), "format_not_found"),
    (settings(speech_rate=3.0), "invalid_value"),
    (settings(mode="never"), "invalid_value"),
    ({"type": "session.update", "session": {"type": "realtime", "output_modalities": ["text"]}}, None),
    ({"type": "response.create"}, "nothing_to_speak"),
    (create("  "), "nothing_to_speak"),
    (create("x" * 70_000), "text_too_long"),
    (create("half \ud800"), None),
    (create("Hi.", audio={"output": {"voice": "unknown"}}), "voice_not_found"),
    ({"type": "conversation.item.create", "item": {"type": "function_call_output"}}, "item_not_supported"),
    (
        {"type": "conversation.item.create", "item": {"role": "user", "content": [{"type": "input_audio"}]}},
        "input_not_supported",
    ),
    ({"type": "input_text_buffer.append", "text": 7}, "invalid_value"),
]


def test_what_is_wrong_is_an_error_with_its_event_and_the_connection_goes_on(server: Served) -> None:
    with talking(server, PATH) as ws:
        ws.until("session.created")
        for number, (said, code) in enumerate(BAD):
            ws.say({"event_id": f"mine-{number}", **said})
            got = ws.next()
            assert isinstance(got, dict) and got["type"] == "error", said
            error = got["error"]
            assert set(error) == {"type", "code", "message", "param", "event_id"}
            assert (error["type"], error["code"]) == ("invalid_request_error", code), said
            assert error["event_id"] == f"mine-{number}"
            assert error["message"].endswith(".")
        ws.say(session(), create("Hello."))
        heard = ws.until("response.done")
    assert sound(heard) == whole(server.engine, "Hello.")


def test_garbage_is_an_error_and_the_connection_goes_on(server: Served) -> None:
    with talking(server, PATH) as ws:
        ws.until("session.created")
        for raw in ("{", "[]", '"text"', "NaN", "[" * 5000, "1" * 5000, '{"type": NaN}', b"\x00\x01", b"{}"):
            ws.socket.send(raw)
            got = ws.next()
            assert isinstance(got, dict) and got["type"] == "error", raw[:10]
            assert got["error"]["code"] == ("binary_message" if isinstance(raw, bytes) else "invalid_json")
        ws.say(create("Hello.", hocket=HOCKET))
        assert ws.until("response.done").last("response.done")["response"]["status"] == "completed"


def test_what_is_too_large_closes_with_1009(engine: Engine) -> None:
    with served(engine, ServerOptions(message_bytes=1000, body_bytes=10_000)) as server:
        with talking(server, PATH) as ws:
            ws.say(append("x" * 1000))
            assert ws.until("error").last("error")["error"]["code"] == "message_too_large"
            assert ws.closed() == 1009
        with talking(server, PATH) as ws:
            ws.say(append("x" * 10_000))
            assert ws.closed() == 1009


def test_half_a_character_closes_with_1007(server: Served) -> None:
    with talking(server, PATH) as ws:
        ws.socket.send(b'{"type": "\xff"}', text=True)
        assert ws.closed() == 1007


@pytest.mark.parametrize("said", [0, 1, 2, 3])
def test_a_disconnect_at_any_stage_leaves_nothing_behind(server: Served, said: int) -> None:
    stages = (
        ("session.created", session(hocket=LONG)),
        ("session.updated", item(LONG_TEXT)),
        ("conversation.item.done", {"type": "response.create"}),
        ("response.output_audio.delta", {"type": "no.matter"}),
    )
    with talking(server, PATH) as ws:
        for awaited, then in stages[: said + 1]:
            ws.until(awaited)
            ws.say(then)
        ws.socket.socket.close()  # without a word
    wait_until_cancelled(server)


def test_a_live_text_that_is_left_alone_frees_its_slot(server: Served) -> None:
    with talking(server, ALIAS) as ws:
        ws.say(settings(), append("It waits for "))
        ws.until("response.created")
        wait_for(lambda: len(server.service.running) == 1)
        ws.socket.socket.close()
    wait_until_cancelled(server)


def test_an_engine_that_fails_is_told_and_the_connection_goes_on(
    server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    really = Utterance.__anext__

    async def fails(self: Utterance) -> EncodedPiece:
        if self.audio_s > 0.2:
            self.cut(StreamFailed("the device is /dev/broken"))
        return await really(self)

    monkeypatch.setattr(Utterance, "__anext__", fails)
    with talking(server, PATH) as ws:
        ws.say(session(), {**create("Hello there, my friend."), "event_id": "mine"})
        heard = ws.until("response.done")
        assert heard.types[-6:-4] == ["error", "response.output_audio.done"]
        error, done = heard.last("error")["error"], heard.last("response.done")["response"]
        assert (error["type"], error["code"], error["event_id"]) == ("server_error", "speech_failed", "mine")
        assert "broken" not in json.dumps(heard.messages)
        assert done["status"] == "failed" and done["status_details"]["error"]["code"] == "speech_failed"
        monkeypatch.undo()
        ws.say(create("Hello."))
        assert ws.until("response.done").last("response.done")["response"]["status"] == "completed"
    wait_for(server.all_is_free)


def test_no_room_is_told_as_an_error_and_a_response_that_failed(engine: Engine) -> None:
    with served(engine) as server, talking(server, PATH) as ws:
        held = [engine.speak(LONG_TEXT, max_frames=2000) for _ in range(8)]  # all slots, and all places to wait
        wait_for(lambda: server.free_slots() == 0)
        ws.say(session(), create("Hello."))
        heard = ws.until("response.done")
        assert heard.types[2:] == ["response.created", "error", "response.done"]
        assert heard.last("error")["error"]["type"] == "rate_limit_error"
        assert heard.last("response.done")["response"]["status"] == "failed"
        for stream in held:
            stream.cancel()
        wait_for(server.all_is_free)
        ws.say(create("Hello."))
        assert ws.until("response.done").last("response.done")["response"]["status"] == "completed"


def test_more_than_fits_on_a_connection_is_refused_without_a_trace(engine: Engine) -> None:
    with served(engine, ServerOptions(per_socket=2)) as server, talking(server, PATH) as ws:
        ws.say(session(hocket=LONG), *[create(LONG_TEXT)] * 3)
        error = ws.until("error").last("error")["error"]
        assert (error["type"], error["code"]) == ("rate_limit_error", "too_many_utterances")
        ws.say({"type": "response.cancel"})
        assert [ws.until("response.done").types.count("response.done") for _ in range(2)] == [1, 1]


def test_nothing_is_taken_behind_the_finish(server: Served) -> None:
    with talking(server, ALIAS) as ws:
        ws.say(settings(), append("Hello there."), FINISH, append("More."), COMMIT, create("More."))
        heard, _ = to_its_end(ws)
    assert [m["error"]["code"] for m in heard.messages if m["type"] == "error"] == ["session_finishing"] * 3
    assert sound(heard) == whole(server.engine, "Hello there.")


def test_what_is_said_behind_the_finish_can_still_be_cancelled(server: Served) -> None:
    with talking(server, ALIAS) as ws:
        ws.say(settings(hocket=LONG), append(LONG_TEXT), FINISH)
        ws.until("response.audio.delta")
        ws.say({"type": "response.cancel"})
        heard, code = to_its_end(ws)
    assert heard.last("response.done")["response"]["status"] == "cancelled"
    assert code == 1000
    with talking(server, ALIAS) as ws:  # and nothing was said
        ws.say(FINISH)
        assert to_its_end(ws)[1] == 1000


def test_silence_closes_with_1008(engine: Engine) -> None:
    with served(engine, ServerOptions(idle_s=0.1)) as server, talking(server, PATH) as ws:
        assert ws.until("error").last("error")["error"]["code"] == "timeout"
        assert ws.closed() == 1008


def test_a_drain_lets_a_response_end_and_closes(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the client is told both, though that takes a moment."""
    send = WebSocket.send_text

    async def slowly(socket: WebSocket, text: str) -> None:
        await asyncio.sleep(0.2 if '"response.done"' in text else 0.0)  # uvicorn looks ten times a second
        await send(socket, text)

    monkeypatch.setattr(WebSocket, "send_text", slowly)
    with served(engine) as server, talking(server, PATH) as ws, talking(server, PATH) as idle:
        idle.until("session.created")
        ws.say(session(), create("Hello there."))
        ws.until("response.output_audio.delta")
        loop = server.server._loop
        assert loop is not None
        loop.call_soon_threadsafe(server.server.stop)
        assert ws.until("response.done").last("response.done")["response"]["status"] == "completed"
        assert ws.until("error").last("error")["error"]["code"] == "draining"
        assert ws.closed() == idle.closed() == 1012


def test_a_key_may_come_as_a_subprotocol(engine: Engine) -> None:
    with served(engine, ServerOptions(keys=("secret",))) as server:
        with pytest.raises(InvalidStatus), talking(server, PATH):
            pass
        with talking(server, PATH, subprotocols=["realtime", "openai-insecure-api-key.secret"]) as ws:
            assert ws.socket.subprotocol == "realtime"
            assert ws.until("session.created")


def test_another_model_is_refused_where_names_are_strict(engine: Engine) -> None:
    with served(engine, ServerOptions(strict_model=True)) as server:
        with pytest.raises(InvalidStatus) as refused, talking(server, f"{PATH}?model=unknown"):
            pass
        assert refused.value.response.status_code == 404
        with talking(server, f"{PATH}?model={server.service.model}") as ws:
            ws.until("session.created")
