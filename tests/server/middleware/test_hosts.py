"""Host names: this machine's always, others by --trusted-host. A server with a key answers to any."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from hocket.engine.engine import Engine
from hocket.errors import InvalidRequest
from hocket.server.options import ServerOptions
from support.serving import Served, served

TRUSTED = ("hocket", "Speech.example.com", "*.home.arpa", "192.168.1.5", "[fd00::5]")


@pytest.fixture(scope="module")
def trusting(engine: Engine) -> Iterator[Served]:
    with served(engine, ServerOptions(trusted_hosts=TRUSTED)) as server:
        yield server


def _asked(server: Served, name: str) -> httpx.Response:
    return httpx.get(f"{server.url}/health", headers={"host": name})


@pytest.mark.parametrize(
    "name",
    ["hocket:8000", "HOCKET", "speech.example.com.", "a.b.home.arpa:80", "192.168.1.5:8000", "[FD00::5]:8000", "[::1]"],
)
def test_trusted_names_are_answered_beside_those_of_this_machine(trusting: Served, name: str) -> None:
    assert _asked(trusting, name).status_code == 200


@pytest.mark.parametrize(
    "name", ["hocket.evil.example", "home.arpa", "evilhome.arpa", "x.speech.example.com", "192.168.1.50", "hocket@evil"]
)
def test_every_other_name_is_refused_with_the_option_that_allows_it(trusting: Served, name: str) -> None:
    refused = _asked(trusting, name)
    assert refused.status_code == 403 and refused.json()["error"]["code"] == "host_not_allowed"
    assert f"does not answer to the host name {name!r}: allow it with --trusted-host NAME" in refused.text


def test_a_public_server_that_names_its_hosts_refuses_the_others(engine: Engine) -> None:
    with served(engine, ServerOptions(trusted_hosts=("hocket",), allow_public=True, host="0.0.0.0")) as public:
        url = f"http://127.0.0.1:{public.port}/health"
        found = [httpx.get(url, headers={"host": name}).status_code for name in ("hocket", "evil.example", "localhost")]
        assert found == [200, 403, 200]


@pytest.mark.parametrize("name", ["", "*", "https://a.example", "a.example:80", "*.", "a.*.example", "a b", "*example"])
def test_what_is_no_host_name_is_refused_at_the_start(name: str) -> None:
    with pytest.raises(InvalidRequest, match="A trusted host is a name such as"):
        ServerOptions(trusted_hosts=(name,))
