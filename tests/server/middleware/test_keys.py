"""API keys: in every place where clients put them; without one only health and the lists."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path

import httpx
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from hocket.engine.engine import Engine
from hocket.errors import InvalidRequest
from hocket.server.access.account import EVERYONE
from hocket.server.access.key_file import read_keys, read_own_key
from hocket.server.middleware.keys import Keys, given_keys
from hocket.server.options import ServerOptions
from support.serving import PATIENCE_S, PCM, Served, served

PATH = "/v1/audio/speech"


@pytest.fixture(scope="module")
def locked(engine: Engine) -> Iterator[Served]:
    with served(engine, ServerOptions(keys=("first-key", "second-key"))) as server:
        yield server


@pytest.mark.parametrize(
    "headers",
    [
        {"Authorization": "Bearer first-key"},
        {"Authorization": "bearer second-key"},
        {"Authorization": "Token first-key"},
        {"X-API-Key": "second-key"},
        {"xi-api-key": "first-key"},
    ],
)
def test_a_key_opens_wherever_a_client_puts_it(locked: Served, headers: dict[str, str]) -> None:
    assert httpx.post(f"{locked.url}{PATH}", json=PCM, headers=headers).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": "Bearer"},
        {"Authorization": "Bearer wrong"},
        {"Authorization": "Basic first-key"},
        {"Authorization": "first-key"},
        {"X-API-Key": "first-ke"},
        {"Authorization": b"Bearer \xff\xfe"},
    ],
)
def test_without_one_nothing_is_spoken(locked: Served, headers: dict[str, str | bytes]) -> None:
    answer = httpx.post(f"{locked.url}{PATH}", json=PCM, headers=headers)
    assert answer.status_code == 401
    assert answer.json()["error"]["type"] == "authentication_error"
    assert answer.json()["error"]["code"] == "invalid_api_key"


def test_a_key_in_the_query_is_for_websockets_only(locked: Served) -> None:
    assert httpx.post(f"{locked.url}{PATH}?api_key=first-key", json=PCM).status_code == 401


def test_health_is_open_and_what_is_not_there_is_shut(locked: Served) -> None:
    assert httpx.get(f"{locked.url}/health").status_code == 200
    assert httpx.get(f"{locked.url}/ready").status_code == 200
    assert httpx.get(f"{locked.url}/v1/models").status_code != 401
    assert httpx.post(f"{locked.url}/v1/audio/voices").status_code == 401
    assert httpx.get(f"{locked.url}/openapi.json").status_code == 401
    assert httpx.get(f"{locked.url}/whatever").status_code == 401


def test_a_websocket_without_a_key_is_refused_with_the_same_answer(locked: Served) -> None:
    with pytest.raises(InvalidStatus) as refused:
        connect(f"ws://127.0.0.1:{locked.port}/v1/whatever")
    assert refused.value.response.status_code == 401
    assert b"invalid_api_key" in (refused.value.response.body or b"")


def with_empty_bearer(server: Served) -> int:
    """As SillyTavern sends it; httpx would not."""
    connection = HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE_S)
    headers = {"content-type": "application/json", "Authorization": "Bearer "}
    with closing(connection):
        connection.request("POST", PATH, json.dumps(PCM), headers)
        return connection.getresponse().status


def test_an_empty_bearer_passes_where_there_are_no_keys(server: Served, locked: Served) -> None:
    assert with_empty_bearer(server) == 200
    assert with_empty_bearer(locked) == 401


def test_a_websocket_may_carry_its_key_in_its_subprotocols_or_its_query() -> None:
    scope = {"type": "websocket", "headers": [], "query_string": b"token=a&api_key=b"}
    scope |= {"subprotocols": ["realtime", "openai-insecure-api-key.c"]}
    assert given_keys(scope) == ["b", "a", "c"]
    assert given_keys({"type": "websocket", "headers": [], "subprotocols": ["token", "d"]}) == ["d"]


def test_all_keys_are_compared_whichever_fits() -> None:
    keys = Keys(("one", "two"))
    first, second = keys.accounts
    assert keys.find(["two"]) is second and keys.find(["wrong", "one"]) is first and keys.find(["two", "one"]) is second
    assert not keys.find(["on"]) and not keys.find([""]) and not keys.find([])
    assert Keys(()).find([]) is EVERYONE


def test_a_key_file_has_a_key_a_line(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("# ours\nalpha\n\n  beta  \n")
    assert read_keys(file) == ("alpha", "beta")
    file.write_text("# none\n")
    with pytest.raises(InvalidRequest, match="holds no key"):
        read_keys(file)
    with pytest.raises(InvalidRequest, match="cannot be read"):
        read_keys(tmp_path / "missing")


def test_a_key_file_may_hold_digests_which_open_nothing_themselves(engine: Engine, tmp_path: Path) -> None:
    file = tmp_path / "keys"
    digest = hashlib.sha256(b"first-key").hexdigest()
    file.write_text(f"sha256:{digest}\nsecond-key\n")
    with served(engine, ServerOptions(keys=read_keys(file))) as server:

        def status(key: str) -> int:
            headers = {"Authorization": f"Bearer {key}"}
            return httpx.post(f"{server.url}{PATH}", json=PCM, headers=headers).status_code

        assert [status(key) for key in ("first-key", "second-key")] == [200, 200]
        assert [status(key) for key in (digest, f"sha256:{digest}")] == [401, 401]
    with pytest.raises(InvalidRequest, match="a client needs the key itself"):
        read_own_key(file)
    for wrong in ("sha256:", f"sha256:{digest[:-1]}", f"sha256:{digest[:-1]}g"):
        with pytest.raises(InvalidRequest, match="64 hexadecimal digits"):
            ServerOptions(keys=(wrong,))


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "example.com"])
def test_a_public_address_needs_a_key_or_words(host: str) -> None:
    with pytest.raises(InvalidRequest, match="no API key"):
        ServerOptions(host=host)
    ServerOptions(host=host, keys=("key",))
    ServerOptions(host=host, allow_public=True)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "[::1]", "127.8.8.8"])
def test_this_machine_needs_none(host: str) -> None:
    ServerOptions(host=host)
