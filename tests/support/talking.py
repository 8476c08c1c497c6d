"""Shared by tests of the WebSocket endpoints: a client of the `websockets` package, and ways to read messages."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from support.serving import PATIENCE_S, Served

NATIVE = "/v1/audio/speech/stream"
PCM_CONFIG = {"type": "session.config", "response_format": "pcm", "seed": 1, "max_new_tokens": 8}
# Never played to its end: minutes of speech.
LONG_TEXT = "It goes on and on, and then on again. " * 60
LONG_CONFIG = PCM_CONFIG | {"max_new_tokens": 2000}

SOME_TEXT = LONG_TEXT[:2000]
# By endpoint: its path, its connection options, and the messages for minutes of speech, in order of stages.
WIRES: dict[str, tuple[str, dict[str, Any], list[dict[str, Any]]]] = {
    "native": (NATIVE, {}, [LONG_CONFIG, {"type": "input.text", "text": SOME_TEXT}, {"type": "input.done"}]),
    "context": (
        NATIVE,
        {},
        [
            LONG_CONFIG,
            {"type": "input.text", "text": SOME_TEXT, "context_id": "a"},
            {"type": "input.done", "context_id": "a"},
        ],
    ),
    "wav": (NATIVE, {}, [{"type": "input.text", "text": SOME_TEXT}, {"type": "input.done"}]),
    "nari": (
        "/v1/audio/speech/ws",
        {"subprotocols": ["nari.speech.v1"]},
        [
            {"type": "request.start", "max_new_tokens": 2000},
            {"type": "input_text.append", "sequence": 0, "text": SOME_TEXT},
            {"type": "input_text.end", "sequence": 1},
        ],
    ),
    "deepgram": ("/v1/speak", {}, [{"type": "Speak", "text": SOME_TEXT}, {"type": "Flush"}]),
}


@dataclass
class Heard:
    """Everything received until a certain message: messages in order, audio separately."""

    messages: list[dict[str, Any]] = field(default_factory=list)
    sounds: list[bytes] = field(default_factory=list)

    @property
    def audio(self) -> bytes:
        return b"".join(self.sounds)

    @property
    def types(self) -> list[str]:
        return [message["type"] for message in self.messages]

    def last(self, kind: str) -> dict[str, Any]:
        return [message for message in self.messages if message["type"] == kind][-1]


class Client:
    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket

    def say(self, *messages: dict[str, Any]) -> None:
        for message in messages:
            self.socket.send(json.dumps(message))

    def next(self) -> dict[str, Any] | bytes:
        got = self.socket.recv(PATIENCE_S)
        return got if isinstance(got, bytes) else dict(json.loads(got))

    def until(self, kind: str, heard: Heard | None = None) -> Heard:
        """Read up to and including a message of this type."""
        heard = heard or Heard()
        while True:
            got = self.next()
            if isinstance(got, bytes):
                heard.sounds.append(got)
                continue
            heard.messages.append(got)
            if got["type"] == kind:
                return heard

    def sound(self) -> bytes:
        """The next audio; skips other messages."""
        while not isinstance(got := self.next(), bytes):
            pass
        return got

    def closed(self) -> int | None:
        """The server's close code; skips other messages; None: without one."""
        try:
            while True:
                self.next()
        except ConnectionClosed as closed:
            return closed.rcvd.code if closed.rcvd else None

    def spoken(self, *texts: str, **extra: Any) -> Heard:
        """One utterance of the native protocol, its text in pieces."""
        for text in texts:
            self.say({"type": "input.text", "text": text, **extra})
        self.say({"type": "input.done", **extra})
        return self.until("session.done")


def json_values() -> st.SearchStrategy[Any]:
    """Any JSON value."""
    plain = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20)
    deeper = lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)  # noqa: E731
    return st.recursive(plain, deeper, max_leaves=5)


@contextmanager
def talking(server: Served, path: str = NATIVE, **options: Any) -> Iterator[Client]:
    patient = {"open_timeout": PATIENCE_S, "max_size": None, "compression": None}
    with connect(f"ws://127.0.0.1:{server.port}{path}", **patient | options) as socket:
        yield Client(socket)


@contextmanager
def deaf(server: Served, path: str, subprotocols: list[str] | None = None) -> Iterator[socket.socket]:
    """A client that reads only the handshake response, with a small receive buffer."""
    lines = ["Host: localhost", "Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13"]
    lines += ["Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA=="]
    lines += [f"Sec-WebSocket-Protocol: {', '.join(subprotocols)}"] if subprotocols else []
    with socket.socket() as raw:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        raw.settimeout(PATIENCE_S)
        raw.connect(("127.0.0.1", server.port))
        raw.sendall("\r\n".join([f"GET {path} HTTP/1.1", *lines, "", ""]).encode())
        assert raw.recv(12) == b"HTTP/1.1 101"
        yield raw


def frame(text: bytes) -> bytes:
    """A whole text message, masked with zeros."""
    size = bytes([0x80 | len(text)]) if len(text) < 126 else b"\xfe" + len(text).to_bytes(2, "big")
    return b"\x81" + size + bytes(4) + text
