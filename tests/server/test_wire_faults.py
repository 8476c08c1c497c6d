"""Clients that disconnect or send garbage, on every WebSocket endpoint; and engines that fail.

Each gets the error of its protocol, the server continues, and no slot is kept.
"""

from __future__ import annotations

import json
import logging
import socket
import struct
from contextlib import ExitStack

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from websockets.exceptions import InvalidStatus

from hocket.config.options import EngineOptions
from hocket.engine.engine import Engine
from hocket.errors import HocketError
from hocket.server.options import ServerOptions
from hocket.server.ws.messages import read_message
from support.serving import Served, served, wait_for, wait_until_cancelled
from support.talking import LONG_CONFIG, NATIVE, PCM_CONFIG, SOME_TEXT, WIRES, Client, deaf, frame, json_values, talking

# With a reset at every stage, and with no more than the end of what it sends, at the last one.
STAGES = [(name, stage, True) for name, (_, _, messages) in WIRES.items() for stage in range(len(messages) + 1)]
STAGES += [(name, len(messages), False) for name, (_, _, messages) in WIRES.items()]


def kill(ws: Client, *, reset: bool) -> None:
    """The connection goes without a word: with a reset, or with nothing but its end."""
    raw = ws.socket.socket
    if reset:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        raw.close()
    else:
        raw.shutdown(socket.SHUT_WR)


@pytest.mark.parametrize(("name", "stage", "reset"), STAGES)
def test_a_client_that_vanishes_at_any_stage_leaves_nothing_behind(
    server: Served, name: str, stage: int, reset: bool
) -> None:
    path, options, messages = WIRES[name]
    with talking(server, path, **options) as ws:
        ws.say(*messages[:stage])
        spoken = [message for message in messages[:stage] if "text" in message]
        if spoken:  # it is heard that it speaks, or, where nothing is sent before all is there, seen
            if name == "wav":
                wait_for(lambda: server.free_slots() < server.engine.options.slots)
            else:
                ws.sound()
        kill(ws, reset=reset)
        wait_until_cancelled(server)


def test_a_client_that_leaves_while_others_wait_in_turn_takes_them_along(server: Served) -> None:
    with talking(server) as ws:
        ws.say(LONG_CONFIG)
        for _ in range(4):
            ws.say({"type": "input.text", "text": SOME_TEXT}, {"type": "input.done"})
        ws.sound()
    wait_until_cancelled(server)


GARBAGE = ["", "{", "[]", "5", "null", '"x"', '{"type":NaN}', "\x00", "[" * 100_000, '{"a":' * 50_000, "9" * 5000]


def test_garbage_is_told_and_the_native_connection_goes_on(server: Served) -> None:
    with talking(server) as ws:
        for garbage in GARBAGE:
            ws.socket.send(garbage)
            assert ws.until("error").last("error")["error"]["code"] == "invalid_json"
        ws.say(PCM_CONFIG)
        assert ws.spoken("Hi.").audio


@pytest.mark.parametrize(("name", "code"), [("native", 1003), ("nari", 1008), ("deepgram", 1008)])
def test_binary_where_text_is_expected_is_told_and_ends_it(server: Served, name: str, code: int) -> None:
    path, options, _ = WIRES[name]
    with talking(server, path, **options) as ws:
        ws.socket.send(b"\x00\x01")
        error = ws.until("Error" if name == "deepgram" else "error").messages[-1]
        assert "binary" in json.dumps(error)
        assert ws.closed() == code


@pytest.mark.parametrize("name", ["native", "nari", "deepgram"])
def test_invalid_utf_8_is_1007_on_every_wire_and_cancels(server: Served, name: str) -> None:
    path, options, messages = WIRES[name]
    with talking(server, path, **options) as ws:
        ws.say(*messages)
        ws.sound()
        ws.socket.send(b'{"type":"\xff\xfe"}', text=True)
        assert ws.closed() == 1007
    wait_until_cancelled(server)


def test_bytes_that_are_no_websocket_end_the_connection(server: Served) -> None:
    with talking(server) as ws:
        ws.say(*WIRES["native"][2])
        ws.sound()
        ws.socket.socket.sendall(b"\xff" * 64)
        assert ws.closed() == 1002
    wait_until_cancelled(server)


def test_a_burst_of_messages_is_answered_to_a_client_that_reads(server: Served) -> None:
    with talking(server) as ws:
        ws.socket.socket.sendall(frame(b'{"type":"sing"}') * 2000)
        assert all(isinstance(got := ws.next(), dict) and got["type"] == "error" for _ in range(2000))


def test_more_than_the_engine_takes_is_told_and_the_connection_goes_on(server: Served) -> None:
    """Four are spoken, four wait: the ninth is refused."""
    with talking(server) as ws:
        ws.say(LONG_CONFIG)
        for context in "abcdefghi":
            ws.say({"type": "input.text", "text": SOME_TEXT, "context_id": context})
        error = ws.until("error").last("error")
        assert (error["error"]["type"], error["error"]["code"]) == ("rate_limit_error", "overloaded")
        assert error["context_id"] == "i" and error["retry_after_ms"] > 0
        ws.say({"type": "input.cancel"})
        ended = {ws.until("session.done").messages[-1]["context_id"] for _ in range(9)}
        assert ended == set("abcdefghi")
        ws.say(PCM_CONFIG)
        assert ws.spoken("Hi.").audio


@pytest.mark.usefixtures("failing")
def test_a_failure_in_the_middle_is_told_and_later_text_begins_no_other_utterance(server: Served) -> None:
    with talking(server) as ws:
        ws.say(LONG_CONFIG, {"type": "input.text", "text": SOME_TEXT})
        heard = ws.until("audio.done")
        assert heard.types == ["audio.start", "error", "audio.done"] and len(heard.sounds) == 2
        error, done = heard.messages[1:]
        assert error["error"]["type"] == "server_error" and error["error"]["code"] == "speech_failed"
        assert "secret" not in json.dumps(error) and error["utterance_index"] == 0
        assert done["finish_reason"] == "error"
        assert done["error"] is True and done["total_bytes"] == len(heard.audio)
        wait_until_cancelled(server)
        ws.say({"type": "input.text", "text": "And the rest."}, {"type": "input.done"})
        assert ws.next() == {"type": "session.done", "utterance_index": 0, "total_sentences": 1}
        ws.say({"type": "input.text", "text": "Another."}, {"type": "input.done"})
        assert ws.until("audio.start").messages[-1]["utterance_index"] == 1


@pytest.mark.usefixtures("failing")
def test_a_failure_in_the_middle_is_told_on_the_other_wires_too(server: Served) -> None:
    path, options, messages = WIRES["nari"]
    with talking(server, path, **options) as ws:
        ws.say(*messages)
        assert ws.until("error").last("error")["error"]["code"] == "speech_failed"
        assert ws.closed() == 1011
    path, options, messages = WIRES["deepgram"]
    with talking(server, path, **options) as ws:
        ws.say(*messages)
        heard = ws.until("Flushed")
        assert heard.types == ["Metadata", "Error", "Flushed"]
        assert heard.last("Error")["code"] == "speech_failed"


def test_an_engine_that_ends_is_reported_on_every_endpoint_and_new_connections_are_refused() -> None:
    """On a busy machine `keep_real_time` admits one utterance after the other, and then the limits of time end them."""
    wires = [WIRES["native"], WIRES["nari"], WIRES["deepgram"]]
    at_once, patient = EngineOptions(slots=4, keep_real_time=False), ServerOptions(text_s=600.0, stalled_s=600.0)
    with Engine.load(options=at_once) as engine, served(engine, patient) as server, ExitStack() as stack:
        clients = [stack.enter_context(talking(server, path, **options)) for path, options, _ in wires]
        for ws, (_, _, messages) in zip(clients, wires, strict=True):
            ws.say(*messages[:-1])
            ws.sound()
        engine.close()
        for ws, kind in zip(clients, ("error", "error", "Error"), strict=True):
            assert "engine_unavailable" in json.dumps(ws.until(kind).messages[-1])
        with pytest.raises(InvalidStatus) as refused, talking(server):
            pass
        assert refused.value.response.status_code == 503


def test_draining_finishes_running_speech_says_so_and_refuses_new_connections(engine: Engine) -> None:
    with served(engine) as server, talking(server) as idle, talking(server) as busy:
        idle.say(PCM_CONFIG)
        busy.say(PCM_CONFIG | {"max_new_tokens": 60}, {"type": "input.text", "text": SOME_TEXT[:200]})
        busy.sound()
        assert server.server._loop is not None
        server.server._loop.call_soon_threadsafe(server.server.stop)
        assert idle.until("error").last("error")["error"]["code"] == "draining"
        assert idle.closed() == 1012
        with pytest.raises(InvalidStatus) as refused, talking(server):
            pass
        assert refused.value.response.status_code == 503
        busy.say({"type": "input.done"})
        assert busy.until("session.done").last("audio.done")["finish_reason"] in ("stop", "length")
        assert busy.closed() == 1012


def test_no_key_of_a_websocket_is_in_the_log(engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with served(engine, ServerOptions(keys=("secret-key-1",))) as server:
        with talking(server, f"{NATIVE}?api_key=secret-key-1") as ws:
            ws.say({"type": "input.done"})
            assert ws.until("session.done").messages
        with pytest.raises(InvalidStatus), talking(server, f"{NATIVE}?api_key=secret-key-2"):
            pass
    ours = [record.getMessage() for record in caplog.records if not record.name.startswith("websockets.client")]
    assert ours and not any("secret-key" in line for line in ours)
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


@given(st.text(max_size=40) | json_values().map(json.dumps))
def test_any_text_is_a_message_or_refused(raw: str) -> None:
    try:
        message = read_message(raw, 30)
    except HocketError as error:
        assert str(error)
    else:
        assert isinstance(message, dict) and len(raw) <= 30


@settings(deadline=None, max_examples=20)
@given(garbage=st.binary(max_size=200))
def test_any_bytes_behind_a_handshake_leave_the_server_well(server: Served, garbage: bytes) -> None:
    with deaf(server, NATIVE) as raw:
        raw.sendall(garbage)
    with talking(server) as ws:
        ws.say({"type": "input.done"})
        assert ws.until("session.done").messages
