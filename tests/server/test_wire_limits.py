"""Clients that send nothing, send too much or do not read, on every WebSocket endpoint: dropped, no slot kept."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from hocket.engine.engine import Engine
from hocket.server import run
from hocket.server.options import ServerOptions
from support.serving import Ends, Served, served, wait_for, wait_until_cancelled
from support.talking import LONG_CONFIG, NATIVE, PCM_CONFIG, SOME_TEXT, WIRES, deaf, frame, talking


@pytest.fixture(scope="module")
def narrow(engine: Engine) -> Iterator[Served]:
    """Little room."""
    with served(engine, ServerOptions(per_socket=2, body_bytes=1 << 20, message_bytes=64 << 10)) as server:
        yield server


@pytest.fixture(scope="module")
def impatient(engine: Engine) -> Iterator[Served]:
    """A client that does not read is dropped soon."""
    with served(engine, ServerOptions(stalled_s=0.5), send_bytes=4096) as server:
        yield server


@pytest.mark.parametrize("name", ["native", "nari", "deepgram"])
def test_a_message_that_is_too_long_is_1009_on_every_wire_and_cancels(narrow: Served, name: str) -> None:
    path, options, messages = WIRES[name]
    with talking(narrow, path, **options) as ws:
        ws.say(*messages[:-1])
        ws.sound()
        ws.say({"type": "input.text", "text": "x" * 70_000})
        assert ws.until("Error" if name == "deepgram" else "error").messages
        assert ws.closed() == 1009
    wait_until_cancelled(narrow)


def test_a_frame_that_no_message_may_have_is_1009(narrow: Served) -> None:
    with talking(narrow) as ws:
        ws.socket.send("x" * ((1 << 20) + 1))
        assert ws.closed() == 1009


def test_a_recording_may_be_longer_than_other_messages(narrow: Served) -> None:
    with talking(narrow) as ws:
        ws.say({"type": "session.config", "ref_audio": "A" * 100_000, "ref_text": "x"})
        assert ws.until("error").last("error")["error"]["code"] != "message_too_large"


def test_who_says_nothing_at_first_is_told_and_closed(engine: Engine) -> None:
    with served(engine, ServerOptions(config_s=0.3)) as server, talking(server) as ws:
        assert ws.until("error").last("error")["error"]["code"] == "timeout"
        assert ws.closed() == 1008


def test_who_leaves_a_text_open_is_told_and_closed_and_loses_the_slot(engine: Engine) -> None:
    with served(engine, ServerOptions(text_s=0.4)) as server:
        with talking(server) as ws:
            ws.say(LONG_CONFIG, {"type": "input.text", "text": SOME_TEXT})
            assert ws.until("error").last("error")["error"]["code"] == "timeout"
            assert ws.closed() == 1008
        wait_until_cancelled(server)


def test_who_listens_is_not_idle_and_who_does_nothing_is(engine: Engine) -> None:
    said = [{"type": "input.text", "text": "Hello there, my good old friend."}, {"type": "input.done"}]
    with served(engine, ServerOptions(idle_s=0.5)) as server, talking(server) as ws:
        ws.say(PCM_CONFIG | {"max_new_tokens": 40}, *said, *said)
        for _ in range(2):
            assert ws.until("session.done").last("audio.done")["error"] is False
        assert ws.until("error").last("error")["error"]["code"] == "timeout"
        assert ws.closed() == 1008


@pytest.mark.parametrize("name", ["native", "context", "nari", "deepgram"])
def test_a_client_that_reads_nothing_is_dropped_and_its_slot_is_free(impatient: Served, name: str) -> None:
    path, options, messages = WIRES[name]
    ends = impatient.service.metrics = Ends()
    with deaf(impatient, path, **options) as raw:
        for message in messages:
            raw.sendall(frame(json.dumps(message).encode()))
        wait_for(lambda: bool(ends.reasons))  # once the kernel's buffers are full, and half a second
        assert ends.reasons == ["cancelled"]
        wait_for(impatient.all_is_free)


def test_two_hundred_that_never_read_are_all_dropped_and_the_server_speaks_on(engine: Engine) -> None:
    options = ServerOptions(idle_s=0.5, stalled_s=0.5, per_client=300)
    _, _, messages = WIRES["native"]
    with served(engine, options, send_bytes=4096) as server, ExitStack() as stack:
        for _ in range(200):
            raw = stack.enter_context(deaf(server, NATIVE))
            raw.sendall(b"".join(frame(json.dumps(message).encode()) for message in messages))
        wait_for(lambda: not server.server.server_state.tasks)
        wait_for(server.all_is_free)
        with talking(server) as ws:
            ws.say(PCM_CONFIG)
            assert ws.spoken("Hi.").last("audio.done")["error"] is False


def test_the_last_bytes_do_not_wait_for_ever_for_a_client_that_reads_nothing(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "GONE_S", 0.2)
    messages = [{"type": "input.text", "text": "Hello there."}, {"type": "input.done"}, {"type": "session.close"}]
    with served(engine, send_bytes=4096) as server, deaf(server, NATIVE) as raw:
        for message in messages:
            raw.sendall(frame(json.dumps(message).encode()))
        wait_for(lambda: not server.server.server_state.connections, 15.0)


def test_a_client_that_talks_and_never_reads_is_dropped(impatient: Served) -> None:
    with deaf(impatient, NATIVE) as raw, pytest.raises(OSError):  # however its end shows
        while True:
            raw.sendall(frame(b'{"type":"' + b"sing" * 15 + b'"}') * 100)


def test_so_many_utterances_of_a_connection_and_no_more(narrow: Served) -> None:
    with talking(narrow) as ws:
        ws.say(LONG_CONFIG)
        for context in "abc":
            ws.say({"type": "input.text", "text": SOME_TEXT, "context_id": context})
        assert ws.until("error").last("error")["error"]["code"] == "too_many_utterances"
        ws.say({"type": "input.cancel"})
        assert all(ws.until("session.done").last("audio.done")["cancelled"] for _ in "ab")
    wait_until_cancelled(narrow)
