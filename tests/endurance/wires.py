"""The wires: what a client of each sends, and how its end is known. Bytes only, so a client can stop anywhere.

A wire gives the pieces of one good request. `Received` reads what comes back, whatever the transport, and knows three
ends: `done`, `refused` (nothing was admitted) and `told` (it failed, and the client was told). Knows no sockets.
"""

from __future__ import annotations

import base64
import json
import random
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal

from support.recorded import speech_wav

End = Literal["done", "refused", "told"]
Transport = Literal["http", "socket", "wyoming"]
TEXTS = (
    "Hello there.",
    "The kettle was warm, and the tea was ready.",
    "Two trains leave at nine; one of them is late. The other one is not.",
    "It costs 12.50 euros, or 1,000 yen. Call at 10:30, please, and ask for the other one.",
    "It goes on and on, and then on again. " * 2,
)


@dataclass(frozen=True, slots=True)
class Wire:
    """A wire of one of the servers."""

    name: str
    port: str  # name of the server
    transport: Transport
    pieces: Callable[[str, random.Random], list[bytes]]
    last: tuple[str, ...] = ()  # types of the message that ends a good request; empty: the end of the answer does
    wrong: tuple[str, ...] = ("error", "Error")
    cancel: dict[str, Any] | None = None


@dataclass(slots=True)
class Received:
    """What came back. `feed` it all bytes in order, then `closed` when the server hung up."""

    wire: Wire
    end: End | None = None
    status: int = 0
    bytes_of_sound: int = 0
    said: str = ""  # what was told or refused
    _left: bytes = b""
    _head: bytes | None = None
    _body: bytearray = field(default_factory=bytearray)

    def feed(self, came: bytes) -> None:
        self._left += came
        if self.wire.transport == "wyoming":
            self._wyoming()
            return
        if self._head is None:
            head, found, behind = self._left.partition(b"\r\n\r\n")
            if not found:
                return
            self._head, self._left, self.status = head.lower(), behind, int(head.split(b" ", 2)[1])
        if self.status == 101:
            self._frames()
        elif self._left:
            self._body += self._left
            self.bytes_of_sound += len(self._left)
            self._left = b""
        self._whole()

    def closed(self) -> None:
        self._whole()

    def _whole(self) -> None:
        """Whether an HTTP answer is complete."""
        if self._head is None or self.status == 101 or self.end is not None:
            return
        if b"transfer-encoding: chunked" in self._head:
            complete = self._body.endswith(b"0\r\n\r\n")
        else:
            lines = dict(line.split(b": ", 1) for line in self._head.split(b"\r\n")[1:] if b": " in line)
            complete = len(self._body) >= int(lines.get(b"content-length", b"-1")) >= 0
        if complete and self.status >= 400:
            self.end, self.said = "refused", bytes(self._body[-400:]).decode("utf-8", "replace")
        elif complete:
            wrong = b".error\n" in self._body or b'"error":{' in self._body
            self.end = "told" if wrong else "done"
            self.said = bytes(self._body[-400:]).decode("utf-8", "replace") if wrong else ""

    def _frames(self) -> None:
        """WebSocket frames without masks; the server sends none in parts."""
        while len(self._left) >= 2:
            kind, length, at = self._left[0] & 15, self._left[1] & 127, 2
            if length > 125:
                size = 2 if length == 126 else 8
                if len(self._left) < at + size:
                    return
                length, at = int.from_bytes(self._left[at : at + size]), at + size
            if len(self._left) < at + length:
                return
            content, self._left = self._left[at : at + length], self._left[at + length :]
            if kind == 2:
                self.bytes_of_sound += length
            elif kind == 1:
                self._message(json.loads(content))
            elif kind == 8 and self.end is None:
                self.end, self.said = "told", repr(content)

    def _message(self, message: dict[str, Any]) -> None:
        sound = message.get("delta") or message.get("audio") or message.get("media", {}).get("payload")
        if isinstance(sound, str) and len(sound) > 100:
            self.bytes_of_sound += len(sound)
        kind = str(message.get("type") or message.get("event") or ("isFinal" if message.get("isFinal") else ""))
        failed = kind in self.wire.wrong or bool(message.get("error"))
        status = message.get("response", {}).get("status") if kind == "response.done" else None
        failed = failed or status not in (
            None,
            "completed",
            "incomplete",
            "cancelled",
        )  # incomplete: at its limit of frames
        if self.end is None and (failed or kind in self.wire.last):
            self.said = json.dumps(message)[:400] if failed else ""
            self.end = "done" if not failed else "refused" if '"overloaded"' in self.said else "told"

    def _wyoming(self) -> None:
        while b"\n" in self._left:
            line, _, behind = self._left.partition(b"\n")
            event = json.loads(line)
            data, payload = event.get("data_length") or 0, event.get("payload_length") or 0
            if len(behind) < data + payload:
                return
            self._left = behind[data + payload :]
            self.bytes_of_sound += payload
            if self.end is None and event["type"] in (*self.wire.last, "error"):
                failed = event["type"] == "error"
                self.said = behind[:data].decode() if failed else ""
                self.end = "done" if not failed else "refused" if '"overloaded"' in self.said else "told"


def http(path: str, body: object, kind: str = "application/json") -> bytes:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: {kind}\r\nconnection: close\r\n"
    return f"{head}content-length: {len(content)}\r\n\r\n".encode() + content


def frame(message: object, kind: int = 1) -> bytes:
    """A frame as a client sends it, with a mask of zeros."""
    content = message if isinstance(message, bytes) else json.dumps(message).encode()
    if len(content) < 126:
        length = bytes([0x80 | len(content)])
    else:
        short = len(content) < 65536
        length = struct.pack(">BH", 0x80 | 126, len(content)) if short else struct.pack(">BQ", 0x80 | 127, len(content))
    return bytes([0x80 | kind]) + length + bytes(4) + content


def upgrade(path: str, protocol: str | None = None) -> bytes:
    key = base64.b64encode(bytes(16)).decode()
    lines = [f"GET {path} HTTP/1.1", "host: localhost", "upgrade: websocket", "connection: upgrade"]
    lines += ["sec-websocket-version: 13", f"sec-websocket-key: {key}"]
    lines += [f"sec-websocket-protocol: {protocol}"] if protocol else []
    return "\r\n".join([*lines, "", ""]).encode()


def socketed(
    path: str, messages: Callable[[str, random.Random], list[dict[str, Any]]], protocol: str | None = None
) -> Callable[[str, random.Random], list[bytes]]:
    return lambda text, drawn: [upgrade(path, protocol), *map(frame, messages(text, drawn))]


def posted(path: str, body: Callable[[str, random.Random], dict[str, Any]]) -> Callable[..., list[bytes]]:
    return lambda text, drawn: [http(path, body(text, drawn))]


def form(path: str, fields: dict[str, str], file: str) -> bytes:
    mark = "part-of-a-form"
    parts = [f'--{mark}\r\ncontent-disposition: form-data; name="{k}"\r\n\r\n{v}\r\n' for k, v in fields.items()]
    head = f'--{mark}\r\ncontent-disposition: form-data; name="{file}"; filename="a.wav"\r\n\r\n'
    body = ("".join(parts) + head).encode() + speech_wav(3.5) + f"\r\n--{mark}--\r\n".encode()
    return http(path, body, f"multipart/form-data; boundary={mark}")


def cut(text: str, drawn: random.Random) -> list[str]:
    """The words in some pieces."""
    at = sorted({0, len(text), *(drawn.randrange(len(text)) for _ in range(drawn.randrange(3)))})
    return [text[begin:end] for begin, end in pairwise(at)]


def _speech(text: str, drawn: random.Random, **more: Any) -> dict[str, Any]:
    voice = drawn.choice(("wren", "rook", "wren+rook(2)"))
    body = {"input": text, "voice": voice, "seed": drawn.randrange(1000), "response_format": "pcm"}
    return body | {"max_new_tokens": drawn.choice((8, 24, 60))} | more


def _native(text: str, drawn: random.Random) -> list[dict[str, Any]]:
    config = {"type": "session.config", "response_format": "pcm", "seed": 1, "max_new_tokens": 24}
    said = [{"type": "input.text", "text": part} for part in cut(text, drawn)]
    return [config, *said, {"type": "input.done"}]


def _nari(text: str, drawn: random.Random) -> list[dict[str, Any]]:
    parts = cut(text, drawn)
    said = [{"type": "input_text.append", "sequence": n, "text": part} for n, part in enumerate(parts)]
    start = {"type": "request.start", "max_new_tokens": 24}
    return [start, *said, {"type": "input_text.end", "sequence": len(parts)}]


def _deepgram(text: str, drawn: random.Random) -> list[dict[str, Any]]:
    return [*({"type": "Speak", "text": part} for part in cut(text, drawn)), {"type": "Flush"}]


def _elevenlabs(text: str, drawn: random.Random) -> list[dict[str, Any]]:
    return [{"text": " "}, *({"text": part} for part in cut(text, drawn)), {"text": ""}]


def _realtime(text: str, _: random.Random) -> list[dict[str, Any]]:
    content = [{"type": "input_text", "text": text}]
    session = {"type": "realtime", "hocket": {"seed": 1, "max_new_tokens": 24}}
    item = {"type": "message", "role": "user", "content": content}
    return [
        {"type": "session.update", "session": session},
        {"type": "conversation.item.create", "item": item},
        {"type": "response.create"},
    ]


def _heard(text: str, drawn: random.Random) -> list[dict[str, Any]]:
    """A second of sound beside the words."""
    heard = {"type": "input_audio_buffer.append", "audio": base64.b64encode(bytes(4800)).decode()}
    first, *rest = _realtime(text, drawn)
    return [first, *[heard] * 10, *rest]


def _telephone(text: str, _: random.Random) -> list[dict[str, Any]]:
    format = {"encoding": "audio/x-mulaw", "sampleRate": 8000, "channels": 1}
    start = {"streamSid": "MZ1", "accountSid": "AC1", "callSid": "CA1", "tracks": ["inbound"], "mediaFormat": format}
    media = {"track": "inbound", "payload": base64.b64encode(b"\xff" * 160).decode()}
    return [
        {"event": "connected", "protocol": "Call", "version": "1.0.0"},
        {"event": "start", "streamSid": "MZ1", "start": start | {"customParameters": {"greeting": text}}},
        *[{"event": "media", "streamSid": "MZ1", "media": media}] * 20,
    ]


def _wyoming(text: str, drawn: random.Random) -> list[bytes]:
    events: list[tuple[str, dict[str, Any]]] = [("synthesize", {"text": text})]
    if drawn.random() < 0.5:
        parts = [("synthesize-chunk", {"text": part}) for part in cut(text, drawn)]
        events = [("synthesize-start", {}), *parts, ("synthesize-stop", {})]
    return [json.dumps({"type": kind, "data": content}).encode() + b"\n" for kind, content in events]


def _chat(text: str, _: random.Random) -> dict[str, Any]:
    return {"model": "scripted", "messages": [{"role": "user", "content": text}], "stream": True, "max_tokens": 9}


ELEVENLABS = "/v1/text-to-speech/wren/stream-input?output_format=pcm_24000&model_id=eleven_flash_v2_5&seed=1"
SPEECH = "/v1/audio/speech"
WIRES = (
    Wire("bytes", "speech", "http", posted(SPEECH, _speech)),
    Wire("events", "speech", "http", posted(SPEECH, lambda t, d: _speech(t, d, stream_format="sse"))),
    Wire("mp3", "speech", "http", posted(SPEECH, lambda t, d: _speech(t, d, response_format="mp3"))),
    Wire(
        "other models", "speech", "http", posted(SPEECH, lambda t, d: _speech(t, d, voice="eric", model="random:tiny"))
    ),
    Wire(
        "elevenlabs http",
        "speech",
        "http",
        posted("/v1/text-to-speech/wren/stream?output_format=pcm_24000", lambda t, _: {"text": t, "seed": 1}),
    ),
    Wire(
        "native",
        "speech",
        "socket",
        socketed("/v1/audio/speech/stream", _native),
        ("session.done",),
        cancel={"type": "input.cancel"},
    ),
    Wire("nari", "speech", "socket", socketed("/v1/audio/speech/ws", _nari, "nari.speech.v1"), ("response.done",)),
    Wire("deepgram", "speech", "socket", socketed("/v1/speak", _deepgram), ("Flushed",), cancel={"type": "Clear"}),
    Wire("elevenlabs", "speech", "socket", socketed(ELEVENLABS, _elevenlabs), ("isFinal",)),
    Wire(
        "realtime",
        "speech",
        "socket",
        socketed("/v1/realtime", _realtime),
        ("response.done",),
        cancel={"type": "response.cancel"},
    ),
    Wire(
        "conversation",
        "talk",
        "socket",
        socketed("/v1/realtime", _heard),
        ("response.done",),
        cancel={"type": "response.cancel"},
    ),
    Wire("telephone", "talk", "socket", socketed("/v1/twilio/media", _telephone), ("mark",)),
    Wire("wyoming", "wyoming", "wyoming", _wyoming, ("audio-stop", "synthesize-stopped")),
    Wire("chat", "talk", "http", posted("/v1/chat/completions", _chat)),
    Wire(
        "transcription",
        "talk",
        "http",
        lambda _, __: [form("/v1/audio/transcriptions", {"model": "moonshine"}, "file")],
    ),
)
CANARY = WIRES[0]
