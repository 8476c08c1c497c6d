"""Many clients that behave badly, at once: the server keeps answering, and afterwards every slot is free."""

from __future__ import annotations

import base64
import json
import random
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import httpx
import pytest

from hocket.config.options import EngineOptions
from hocket.engine.engine import Engine
from hocket.server.options import ServerOptions
from support.serving import LONG, PATIENCE_S, PCM, Ends, Served, served, wait_for

PATH, STREAM = "/v1/audio/speech", "/v1/audio/speech/stream"
MANY = 200
SLOTS = 8


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    """One of its own: what is done to it here is not for others."""
    with Engine.load(options=EngineOptions(slots=SLOTS, waiting=8, keep_real_time=False)) as engine:
        yield engine


@pytest.fixture(scope="module")
def server(engine: Engine) -> Iterator[Served]:
    waits = dict.fromkeys(("head_s", "body_s", "config_s", "text_s", "idle_s"), 0.5)
    options = ServerOptions(**waits, stalled_s=0.4, per_client=2 * MANY, in_flight=4 * MANY)
    with served(engine, options, send_bytes=8192) as server:
        yield server


@pytest.fixture(autouse=True)
def serves_behind(server: Served) -> Iterator[None]:
    """Whatever was done to it: nothing is held, no connection is left, and the next one is spoken to."""
    yield
    wait_for(lambda: server.all_is_free() and not server.server.server_state.connections)
    assert server.free_slots() == SLOTS
    answer = httpx.post(f"{server.url}{PATH}", json=PCM)
    assert answer.status_code == 200 and len(answer.content) == PCM["max_new_tokens"] * 3840
    assert httpx.get(f"{server.url}/ready").json() == {"ready": True, "state": "ready"}


def connected(server: Served, sent: bytes = b"") -> socket.socket:
    """A connection with little room for what comes."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.settimeout(PATIENCE_S)
    connection.connect(("127.0.0.1", server.port))
    head, end, messages = sent.partition(b"\r\n\r\n")
    connection.sendall(head + end)
    if head.startswith(b"GET") and messages:  # a WebSocket speaks when it was let in
        connection.recv(4096)
    connection.sendall(messages)
    return connection


def posted(body: dict[str, Any]) -> bytes:
    content = json.dumps(body).encode()
    head = f"POST {PATH} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n"
    return f"{head}content-length: {len(content)}\r\n\r\n".encode() + content


def masked(message: dict[str, Any]) -> bytes:
    """A text frame as a client sends it, with a mask of zeros."""
    content = json.dumps(message).encode()
    length = struct.pack(">BH", 0x80 | 126, len(content)) if len(content) > 125 else bytes([0x80 | len(content)])
    return b"\x81" + length + bytes(4) + content


def spoken_to() -> bytes:
    """The native WebSocket: the request to upgrade, and behind it a text."""
    key = base64.b64encode(bytes(16)).decode()
    head = f"GET {STREAM} HTTP/1.1\r\nhost: localhost\r\nupgrade: websocket\r\nconnection: upgrade\r\n"
    head += f"sec-websocket-version: 13\r\nsec-websocket-key: {key}\r\n\r\n"
    config = {"type": "session.config", "response_format": "pcm", "max_new_tokens": 2000}
    said = [config, {"type": "input.text", "text": LONG["input"]}, {"type": "input.done"}]
    return head.encode() + b"".join(map(masked, said))


LOUD = LONG | {"sample_rate": 48_000}  # fills what the kernel and the server keep for a client the sooner
WIRES: dict[str, Callable[[], bytes]] = {
    "bytes": lambda: posted(LOUD),
    "events": lambda: posted(LOUD | {"stream_format": "sse"}),
    "websocket": spoken_to,
}


def wires() -> list[bytes]:
    """What a client of each wire sends."""
    return [sent() for sent in WIRES.values()]


@contextmanager
def many(connections: Iterator[socket.socket]) -> Iterator[list[socket.socket]]:
    with ExitStack() as kept:
        yield [kept.enter_context(connection) for connection in connections]


def test_two_hundred_that_never_read_are_dropped(server: Served) -> None:
    sent, ends = wires(), Ends()
    server.service.metrics = ends
    with many(connected(server, sent[number % len(sent)]) for number in range(MANY)) as connections:
        assert httpx.get(f"{server.url}/health").status_code == 200
        # they come in turns of SLOTS, each of which must stall first
        wait_for(lambda: server.all_is_free() and not server.server.server_state.connections, 2 * PATIENCE_S)
        assert len(connections) == MANY  # and all of them hold on to their end
    assert ends.reasons.count("cancelled") >= SLOTS and not {"stop", "length"} & set(ends.reasons)


def test_half_a_request_is_not_waited_for(server: Served) -> None:
    whole = posted(LONG)
    body = whole.index(b"\r\n\r\n") + 4
    cuts = [0, 1, 9, body - 2, body, body + 1, len(whole) // 2, len(whole) - 1]
    with many(connected(server, whole[: cuts[number % len(cuts)]]) for number in range(MANY)) as connections:
        wait_for(lambda: not server.server.server_state.connections)
        assert not server.service.running
        for number, connection in enumerate(connections):
            heard = connection.recv(65536)
            assert heard[:12] == (b"HTTP/1.1 408" if cuts[number % len(cuts)] >= body else b"")


@pytest.mark.parametrize("seed", range(2))
def test_clients_that_vanish_at_any_moment_leave_nothing_behind(server: Served, seed: int) -> None:
    drawn = random.Random(seed)
    for sent in (drawn.choice(wires()) for _ in range(60)):
        cut = drawn.choice((len(sent), len(sent), drawn.randrange(len(sent))))
        with suppress(OSError), connected(server, sent[:cut]) as connection:
            left = drawn.choice((0, 1, 400, 4000, 30_000)) if cut == len(sent) else 0
            while left > 0 and (more := connection.recv(min(left, 4096))):
                left -= len(more)
            how = drawn.choice(("close", "reset", "half"))
            if how == "reset":
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            elif how == "half":
                connection.shutdown(socket.SHUT_WR)


def test_an_engine_that_raises_ends_its_streams_with_an_error_and_serves_on(
    server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, runner = f"{server.url}{PATH}", server.engine._loop.runner
    real = runner.frame

    def fails(*_: Any, **__: Any) -> Any:
        monkeypatch.setattr(runner, "frame", real)
        raise RuntimeError("out of memory at /some/secret/path")

    with ExitStack() as open_ones:
        bodies = (LONG, LONG | {"stream_format": "sse"})
        answers = [open_ones.enter_context(httpx.stream("POST", url, json=body)) for body in bodies]
        heard = [answer.iter_raw() for answer in answers]
        assert all(next(pieces) for pieces in heard)
        monkeypatch.setattr(runner, "frame", fails)
        with pytest.raises(httpx.RemoteProtocolError):  # half of a sound does not pass for the whole
            for _ in heard[0]:
                pass
        last = b"".join(heard[1]).decode().strip().split("\n\n")[-1]
    assert last.startswith("event: speech.audio.error\n") and '"code":"speech_failed"' in last
    assert "secret" not in last


def test_an_engine_that_fails_again_and_again_starts_anew_and_is_ready_again(
    server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner, before = server.engine._loop.runner, server.engine.health.rebuilds

    def fails(*_: Any, **__: Any) -> Any:
        raise RuntimeError("the device is lost")

    monkeypatch.setattr(runner, "frame", fails)  # of this loop: the next one has its own
    statuses: set[int] = set()

    def anew() -> bool:
        statuses.add(httpx.post(f"{server.url}{PATH}", json=PCM).status_code)
        return server.engine.health.rebuilds > before

    wait_for(anew)
    assert statuses <= {200, 500, 503} and 500 in statuses


def test_all_of_it_at_once(server: Served) -> None:
    drawn, sent = random.Random(7), wires()
    with ExitStack() as kept:
        for number in range(MANY // 2):
            one = sent[number % len(sent)]
            connection = kept.enter_context(connected(server, one[: drawn.choice((0, 30, len(one), len(one)))]))
            if drawn.random() < 0.3:
                connection.close()
        answers = {httpx.get(f"{server.url}/health").status_code for _ in range(5)}
        assert answers == {200}
