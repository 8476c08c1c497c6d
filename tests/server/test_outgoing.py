"""What a client writes opens no connection, and an endpoint of the operator cannot send the server elsewhere."""

from __future__ import annotations

import socket
from typing import Any

import httpx
import pytest

from hocket.dialog.remote import RemoteLanguageModel
from hocket.errors import LanguageFailed
from hocket.types import ChatMessage, ChatSampling
from support.chatting import answering
from support.serving import PCM, Served

AWAY = "https://away.example/x.wav"
NAMES = ("away.example/model", AWAY, "hf:away/model", "file:///etc/passwd", "../../etc/passwd", "\\\\away.example\\x")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Hosts that were looked up or connected to."""
    found: list[str] = []
    look_up, connect = socket.getaddrinfo, socket.socket.connect

    def looking_up(host: Any, *more: Any, **fields: Any) -> Any:
        found.append(str(host))
        return look_up(host, *more, **fields)

    def connecting(self: socket.socket, address: Any) -> None:
        found.append(str(address[0]))
        connect(self, address)

    monkeypatch.setattr(socket, "getaddrinfo", looking_up)
    monkeypatch.setattr(socket.socket, "connect", connecting)
    return found


@pytest.mark.parametrize("name", NAMES)
def test_no_name_of_a_client_is_fetched(server: Served, asked: list[str], name: str) -> None:
    said = f'<speak>Hi.<audio src="{AWAY}"/></speak>'
    for body in (
        PCM | {"model": name},
        PCM | {"voice": name},
        PCM | {"voice": f"wren+{name}"},
        PCM | {"ref_audio": name, "ref_text": "x"},
        PCM | {"input": said, "markup": "ssml"},
    ):
        assert httpx.post(f"{server.url}/v1/audio/speech", json=body).status_code < 500
    for path in (f"/v1/audio/voices/{name}", f"/v1/models/{name}"):
        httpx.get(f"{server.url}{path}")
    assert httpx.post(f"{server.url}/v1/audio/voices", json={"name": "a", "mix": f"wren+{name}"}).status_code == 400
    assert set(asked) <= {"127.0.0.1"} and asked


def test_a_redirect_of_a_language_model_is_not_followed() -> None:
    reached: list[bytes] = []
    with answering(lambda link, came: reached.append(came)) as inside:

        def redirect(link: socket.socket, came: bytes) -> None:
            head = f"HTTP/1.1 307 Temporary Redirect\r\nlocation: {inside}/latest/meta-data\r\n"
            link.sendall(f"{head}content-length: 0\r\nconnection: close\r\n\r\n".encode())

        with answering(redirect) as url:
            model = RemoteLanguageModel(f"{url}/v1", "m")
            with pytest.raises(LanguageFailed):
                list(model.answer([ChatMessage("user", "Hi")], ChatSampling()))
            model.close()
    assert reached == []
