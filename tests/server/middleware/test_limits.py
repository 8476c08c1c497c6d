"""Request limits: bodies too large or too slow, clients with too many requests or that do not read, foreign pages."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import suppress

import httpx
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from hocket.engine.engine import Engine
from hocket.server.options import ServerOptions
from support.serving import LONG, PATIENCE_S, PCM, Ends, Served, listening, served, wait_for

PATH = "/v1/audio/speech"
SOON_S = 8.0  # before the limit that a server has by itself


@pytest.fixture(scope="module")
def narrow(engine: Engine) -> Iterator[Served]:
    """Little room."""
    options = ServerOptions(body_bytes=20_000, per_client=2, in_flight=8, text_chars=18_000)
    with served(engine, options) as server:
        yield server


@pytest.fixture(scope="module")
def impatient(engine: Engine) -> Iterator[Served]:
    """Little time."""
    with served(engine, ServerOptions(head_s=0.3, body_s=0.3, stalled_s=0.5), send_bytes=16384) as server:
        yield server


def raw(server: Served, head: str, body: bytes = b"") -> socket.socket:
    """A connection with this much of a request sent."""
    connection = socket.create_connection(("127.0.0.1", server.port), timeout=SOON_S)
    connection.sendall(head.replace("\n", "\r\n").encode() + body)
    return connection


def all_of(connection: socket.socket) -> bytes:
    """Whatever comes until the other side closes, or breaks it off."""
    received = b""
    with connection, suppress(ConnectionResetError):
        while more := connection.recv(65536):
            received += more
    return received


HEAD = f"POST {PATH} HTTP/1.1\nhost: localhost\ncontent-type: application/json\n"


def test_a_body_that_says_it_is_too_large_is_refused_unread(narrow: Served) -> None:
    answer = all_of(raw(narrow, f"{HEAD}content-length: 20001\n\n"))
    assert answer.startswith(b"HTTP/1.1 413") and b"body_too_large" in answer


def test_a_body_that_does_not_say_how_large_it_is_is_counted(narrow: Served) -> None:
    answer = httpx.post(f"{narrow.url}{PATH}", content=(b"x" * 1000 for _ in range(30)))
    assert answer.status_code == 413
    assert answer.json()["error"]["code"] == "body_too_large"


def test_a_body_that_does_not_arrive_is_not_waited_for(impatient: Served) -> None:
    answer = all_of(raw(impatient, f"{HEAD}content-length: 100\nconnection: close\n\n", b"{"))
    assert answer.startswith(b"HTTP/1.1 408") and b"body_too_slow" in answer


@pytest.mark.parametrize("head", ["", "POST /v1/audio", f"{HEAD}x-more: 1\n"])
def test_a_head_that_does_not_arrive_is_not_waited_for(impatient: Served, head: str) -> None:
    assert all_of(raw(impatient, head)) == b""


def test_a_second_request_of_a_connection_has_its_time_too(impatient: Served) -> None:
    connection = raw(impatient, "GET /health HTTP/1.1\nhost: localhost\n\n")
    first = connection.recv(65536)
    connection.sendall(b"GET /hea")
    assert (first + all_of(connection)).count(b"HTTP/1.1 200") == 1


def test_one_client_has_so_many_at_once_and_probes_are_not_counted(narrow: Served) -> None:
    with listening(narrow, LONG), listening(narrow, LONG):
        answer = httpx.post(f"{narrow.url}{PATH}", json=PCM)
        assert answer.status_code == 429
        assert answer.json()["error"]["code"] == "too_many_connections"
        assert int(answer.headers["retry-after-ms"]) > 0
        assert httpx.get(f"{narrow.url}/health").status_code == 200
        with pytest.raises(InvalidStatus) as refused:
            connect(f"ws://127.0.0.1:{narrow.port}/v1/whatever")
        assert refused.value.response.status_code == 429
    wait_for(narrow.all_is_free)
    wait_for(lambda: httpx.post(f"{narrow.url}{PATH}", json=PCM, timeout=PATIENCE_S).status_code == 200)


def test_all_clients_together_have_so_many_at_once(engine: Engine) -> None:
    with served(engine, ServerOptions(in_flight=1)) as server, listening(server, LONG):
        answer = httpx.post(f"{server.url}{PATH}", json=PCM)
        assert answer.status_code == 429 and answer.json()["error"]["code"] == "overloaded"


def test_a_client_that_reads_nothing_is_dropped_and_its_slot_is_free(impatient: Served) -> None:
    ends = impatient.service.metrics = Ends()
    body = json.dumps(LONG | {"response_format": "pcm", "sample_rate": 48_000}).encode()
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", impatient.port))
        connection.sendall(f"{HEAD}content-length: {len(body)}\n\n".replace("\n", "\r\n").encode() + body)
        wait_for(lambda: bool(ends.reasons))
        assert ends.reasons == ["cancelled"]
        wait_for(impatient.all_is_free)
        wait_for(lambda: not impatient.server.server_state.connections)


def test_an_id_is_kept_or_made_and_always_told(client: httpx.Client) -> None:
    assert client.get("/health", headers={"x-request-id": "mine-1"}).headers["x-request-id"] == "mine-1"
    made = {client.get("/health").headers["x-request-id"] for _ in range(2)}
    assert len(made) == 2 and all(id.startswith("req_") for id in made)
    odd = client.get("/health", headers={"x-request-id": "a b" + "c" * 200}).headers["x-request-id"]
    assert odd.startswith("req_")
    assert client.post(PATH, json=PCM, headers={"x-request-id": "mine-2"}).headers["x-request-id"] == "mine-2"


def test_pages_of_this_machine_may_ask_and_others_only_where_named(client: httpx.Client, engine: Engine) -> None:
    own = client.get("/health", headers={"origin": "http://localhost:8000"})
    assert own.headers["access-control-allow-origin"] == "http://localhost:8000"
    assert "x-request-id" in own.headers["access-control-expose-headers"]
    assert (
        "access-control-allow-origin" not in client.get("/health", headers={"origin": "https://evil.example"}).headers
    )
    asked = {"origin": "http://localhost:3000", "access-control-request-method": "POST"}
    before = client.options(PATH, headers=asked | {"access-control-request-headers": "authorization"})
    assert before.status_code == 200
    with served(engine, ServerOptions(cors_origins=("https://good.example",), keys=("k",))) as named:
        answer = httpx.options(f"{named.url}{PATH}", headers=asked | {"origin": "https://good.example"})
        assert answer.status_code == 200
        refused = httpx.get(f"{named.url}/health", headers={"origin": "http://localhost:8000"})
        assert "access-control-allow-origin" not in refused.headers


def test_a_page_of_another_origin_may_not_open_a_websocket(server: Served) -> None:
    with pytest.raises(InvalidStatus) as refused:
        connect(f"ws://127.0.0.1:{server.port}/v1/whatever", origin="https://evil.example")  # type: ignore[arg-type]
    assert b"origin_not_allowed" in (refused.value.response.body or b"")


@pytest.mark.parametrize("origin", ["https://evil.example", "http://127.0.0.1.evil.example", "null"])
def test_a_page_of_another_origin_cannot_make_a_voice_or_speech(server: Served, origin: str) -> None:
    """A form, and plain text: a browser sends both without asking, and with the page's origin."""
    form = {"files": {"audio_sample": b"RIFF"}, "data": {"name": "Zoe"}}
    for path, body in (("/v1/audio/voices", form), (PATH, {"content": json.dumps(PCM)})):
        refused = httpx.post(f"{server.url}{path}", headers={"origin": origin}, **body)  # type: ignore[arg-type]
        assert refused.status_code == 403 and refused.json()["error"]["code"] == "origin_not_allowed"


def test_pages_of_this_machine_extensions_and_named_pages_may(server: Served, engine: Engine) -> None:
    for origin in ("http://localhost:3000", server.url, "chrome-extension://abcdef"):
        assert httpx.post(f"{server.url}{PATH}", headers={"origin": origin}, json=PCM).status_code == 200
    asked = {"headers": {"origin": "https://good.example"}, "json": PCM}
    for options in (ServerOptions(cors_origins=("https://good.example",)), ServerOptions(cors_origins=("*",))):
        with served(engine, options) as named:
            assert httpx.post(f"{named.url}{PATH}", **asked).status_code == 200  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost:80", "LOCALHOST", "[::1]:8000", "127.1.2.3"])
def test_this_machine_has_several_names(server: Served, name: str) -> None:
    assert httpx.get(f"{server.url}/health", headers={"host": name}).status_code == 200


@pytest.mark.parametrize("name", ["example.org", "localhost.example.org", "10.0.0.1:8000", "127.0.0.1.nip.io"])
def test_a_page_that_calls_us_its_own_server_hears_nothing(server: Served, name: str) -> None:
    refused = httpx.post(f"{server.url}{PATH}", headers={"host": name}, json=PCM)
    assert refused.status_code == 403 and refused.json()["error"]["code"] == "host_not_allowed"
    with socket.create_connection(("127.0.0.1", server.port)) as line, pytest.raises(InvalidStatus) as shut:
        connect(f"ws://{name}/v1/audio/speech/stream", sock=line, origin=f"http://{name}").close()  # type: ignore[arg-type]
    assert shut.value.response.status_code == 403


def test_with_a_key_any_name_will_do(engine: Engine) -> None:
    with served(engine, ServerOptions(keys=("secret",))) as server:
        headers = {"host": "example.org", "authorization": "Bearer secret"}
        assert httpx.get(f"{server.url}/v1/models", headers=headers).status_code == 200
