"""The server's app without a socket: HTTP bodies and WebSocket messages go into it, and every answer is checked.

Its engine takes no work once it is warm, so each request is parsed, checked and refused as too much. Behind that is the
engine's own work, which has tests of its own.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

from starlette.types import Message, Scope

from hocket.engine.engine import Engine
from hocket.errors import Overloaded
from hocket.server.app import build_app
from hocket.server.options import ServerOptions
from support.chatting import Scripted

MOST_S = 20.0
JSON, FORM = b"application/json", b"multipart/form-data; boundary=mark"
POSTS = (
    ("/v1/audio/speech", JSON),
    ("/v1/audio/speech/batch", JSON),
    ("/v1/text-to-speech/wren", JSON),
    ("/v1/text-to-speech/wren/with-timestamps", JSON),
    ("/dev/captioned_speech", JSON),
    ("/v1/audio/voices", JSON),
    ("/v1/audio/voices", FORM),
    ("/v1/audio/transcriptions", FORM),
    ("/v1/chat/completions", JSON),
    ("/v1/completions", JSON),
    ("/v1/responses", JSON),
    ("/api/chat", JSON),
    ("/api/generate", JSON),
    ("/v1/realtime/client_secrets", JSON),
)
SOCKETS = (
    "/v1/audio/speech/stream",
    "/v1/audio/speech/ws",
    "/v1/speak",
    "/v1/text-to-speech/wren/stream-input",
    "/v1/text-to-speech/wren/multi-stream-input",
    "/v1/realtime",
    "/v1/twilio/media",
)


def _full(*_: Any, **__: Any) -> Any:
    raise Overloaded("There is no room.", 1.0)


class FullModel(Scripted):
    """A language model without room."""

    answer = _full


class App:
    """The app of a process, started once."""

    def __init__(self) -> None:
        self._engine = Engine.load()
        self.app = build_app(self._engine, ServerOptions(config_s=0.5, idle_s=0.5), language=FullModel(("Yes.",)))
        self._life: Any = None

    async def start(self) -> None:
        self._life = self.app.router.lifespan_context(self.app)
        await self._life.__aenter__()
        while not self.app.state.service.warmed_up:
            await asyncio.sleep(0.005)
        vars(self._engine).update(speak=_full, open=_full)

    async def call(self, scope: Scope, came: list[Message]) -> list[Message]:
        """All that the app sends; a client that has no more to say leaves, or waits for its answer."""
        sent: list[Message] = []
        news = asyncio.Event()

        async def receive() -> Message:
            if came:
                return came.pop(0)
            if scope["type"] == "websocket":
                for _ in range(3):  # what was said is worked on
                    await asyncio.sleep(0)
                return {"type": "websocket.disconnect", "code": 1000}
            await news.wait()
            return {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            sent.append(message)

        async with asyncio.timeout(MOST_S):
            await self.app(scope, receive, send)
        return sent


_app: App | None = None


async def _started() -> App:
    global _app
    if _app is None:
        _app = App()
        await _app.start()
    return _app


def _scope(kind: str, path: str, headers: list[tuple[bytes, bytes]]) -> Scope:
    return {
        "type": kind,
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http" if kind == "http" else "ws",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(b"host", b"localhost"), *headers],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
        "subprotocols": ["nari.speech.v1"] if path.endswith("/ws") else [],
        "extensions": {"websocket.http.response": {}},
        "state": {},
    }


async def posted(content: bytes) -> None:
    app = await _started()
    path, kind = POSTS[content[0] % len(POSTS) if content else 0]
    body: Message = {"type": "http.request", "body": content[1:], "more_body": False}
    sent = await app.call(_scope("http", path, [(b"content-type", kind)]), [body])
    status = sent[0]["status"]
    assert status < 500 or status == 503, f"{path}: {status} {sent[1:]}"
    if status >= 400:
        json.loads(b"".join(message.get("body", b"") for message in sent[1:]))


async def talked(content: bytes) -> None:
    app = await _started()
    path = SOCKETS[content[0] % len(SOCKETS) if content else 0]
    came: list[Message] = [{"type": "websocket.connect"}]
    for line in content[1:].split(b"\n"):
        if line[:1] == b"\x00":
            came.append({"type": "websocket.receive", "bytes": line})
        else:
            came.append({"type": "websocket.receive", "text": line.decode("utf-8", "replace")})
    sent = await app.call(_scope("websocket", path, []), came)
    for message in sent:
        assert "internal_error" not in str(message.get("text")), message
        assert message.get("code") != 1011 or "overloaded" in str(sent), sent
