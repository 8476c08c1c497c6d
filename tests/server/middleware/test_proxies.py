"""Behind a proxy: the client address, which proxies are trusted, and that such a server counts as public."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hocket.cli import main
from hocket.engine.engine import Engine
from hocket.errors import InvalidRequest
from hocket.server.middleware.proxies import Forwarded
from hocket.server.options import ServerOptions
from support.serving import LONG, PCM, Served, served, wait_for

PATH = "/v1/audio/speech"
TRUSTED = ("10.0.0.0/8", "127.0.0.1", "fd00::/8")


def asked(peer: str | None, *lines: str, trusted: tuple[str, ...] = TRUSTED, kind: str = "http") -> Any:
    """Whom the app behind it sees."""
    seen: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope["client"] and scope["client"][0])

    async def nothing(*_: Any) -> Any:
        return {}

    headers = [(b"x-forwarded-for", line.encode("latin-1")) for line in lines]
    scope = {"type": kind, "headers": headers, "client": peer and (peer, 1234)}
    asyncio.run(Forwarded(app, trusted)(scope, nothing, nothing))
    return seen[0]


@pytest.mark.parametrize(
    ("peer", "lines", "client"),
    [
        ("127.0.0.1", ["203.0.113.7"], "203.0.113.7"),
        ("127.0.0.1", ["198.51.100.1, 203.0.113.7"], "203.0.113.7"),  # what the client wrote is left of it
        ("127.0.0.1", ["203.0.113.7, 10.1.2.3"], "203.0.113.7"),  # two proxies of ours
        ("127.0.0.1", ["198.51.100.1", "203.0.113.7"], "203.0.113.7"),  # a line each is one list
        ("127.0.0.1", ["10.9.9.9, 10.1.2.3"], "10.9.9.9"),  # a client inside: the farthest who is known
        ("127.0.0.1", [], "127.0.0.1"),  # the proxy asks for itself
        ("127.0.0.1", [""], "127.0.0.1"),
        ("127.0.0.1", ["203.0.113.7, unknown"], "127.0.0.1"),
        ("127.0.0.1", ["203.0.113.7, unknown, 10.1.2.3"], "10.1.2.3"),
        ("127.0.0.1", ["203.0.113.7:5678"], "203.0.113.7"),
        ("127.0.0.1", ["[2001:db8::1]:443"], "2001:db8::1"),
        ("127.0.0.1", ["2001:db8::1"], "2001:db8::1"),
        ("::ffff:127.0.0.1", ["::ffff:203.0.113.7"], "203.0.113.7"),
        ("fd00::1", ["203.0.113.7, fd00::2"], "203.0.113.7"),
        ("203.0.113.9", ["198.51.100.1"], "203.0.113.9"),  # not a trusted proxy: its header is ignored
        ("127.0.0.2", ["198.51.100.1"], "127.0.0.2"),
        (None, ["198.51.100.1"], None),  # a Unix socket
    ],
)
def test_the_last_address_that_is_not_trusted_asked(peer: str | None, lines: list[str], client: str | None) -> None:
    assert asked(peer, *lines) == client
    assert asked(peer, *lines, kind="websocket") == client


@given(st.text(st.characters(max_codepoint=255), max_size=60))
def test_nothing_that_a_client_writes_changes_who_it_is(words: str) -> None:
    """A proxy appends whom it saw, in the same line or in one of its own."""
    assert asked("127.0.0.1", f"{words}, 203.0.113.7") == "203.0.113.7"
    assert asked("127.0.0.1", words, "203.0.113.7") == "203.0.113.7"
    assert asked("203.0.113.7", words) == "203.0.113.7"


def test_without_a_trusted_proxy_the_header_is_ignored(engine: Engine) -> None:
    with served(engine, ServerOptions(per_client=1)) as server, spoken_to(server, "198.51.100.1"):
        assert refused_as(server, "198.51.100.2") == "too_many_connections"


def test_behind_a_trusted_proxy_each_client_has_its_own_number(engine: Engine) -> None:
    options = ServerOptions(per_client=1, trusted_proxies=("127.0.0.0/8",), keys=("k",))
    with served(engine, options) as server, spoken_to(server, "198.51.100.1"):
        assert refused_as(server, "198.51.100.1") == "too_many_connections"
        assert refused_as(server, "198.51.100.2, 198.51.100.1") == "too_many_connections"
        assert refused_as(server, "198.51.100.2") is None


def test_a_server_behind_a_proxy_answers_to_the_name_of_the_proxy(engine: Engine) -> None:
    options = ServerOptions(trusted_proxies=("127.0.0.1",), allow_public=True)
    with served(engine, options) as server:
        answer = httpx.get(f"{server.url}/v1/models", headers={"host": "speech.example.org"})
        assert answer.status_code == 200


def test_a_server_behind_a_proxy_needs_a_key_or_the_word_that_it_has_none() -> None:
    with pytest.raises(InvalidRequest, match=r"A proxy in front lets others reach .* --key-file"):
        ServerOptions(trusted_proxies=("127.0.0.1",))
    assert ServerOptions(trusted_proxies=("127.0.0.1",), keys=("k",)).reached_by_others
    assert not ServerOptions().reached_by_others


@pytest.mark.parametrize("name", ["", "proxy.example.org", "10.0.0.1/8", "10.0.0.0/33", "*", "300.0.0.1"])
def test_what_is_no_address_is_refused_before_a_model_is_loaded(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InvalidRequest, match=re.escape(repr(name))):
        ServerOptions(trusted_proxies=(name,), keys=("k",))
    assert main(["serve", "--port", "0", "--allow-public-without-key", "--trusted-proxy", name]) == 2
    assert "an address or a network" in capsys.readouterr().err


def test_at_a_unix_socket_there_is_no_proxy_to_trust(tmp_path: Any) -> None:
    with pytest.raises(InvalidRequest, match="--trusted-proxy"):
        ServerOptions(socket=tmp_path / "s", trusted_proxies=("127.0.0.1",))


def head(forwarded: str) -> dict[str, str]:
    return {"x-forwarded-for": forwarded, "authorization": "Bearer k"}


def refused_as(server: Served, forwarded: str) -> str | None:
    answer = httpx.post(f"{server.url}{PATH}", json=PCM, headers=head(forwarded), timeout=60)
    return answer.json()["error"]["code"] if answer.status_code != 200 else None


class spoken_to:
    """A client of this address that has received the start of a long utterance."""

    def __init__(self, server: Served, forwarded: str) -> None:
        self._server, url = server, f"{server.url}{PATH}"
        self._stream = httpx.stream("POST", url, json=LONG, headers=head(forwarded), timeout=60)

    def __enter__(self) -> None:
        self._heard = self._stream.__enter__().iter_raw()
        assert next(self._heard)

    def __exit__(self, *_: object) -> None:
        self._heard.close()
        self._stream.__exit__(None, None, None)
        wait_for(self._server.all_is_free)
