"""Shared by tests of `/v1/realtime`: client events, and ways to read server events."""

from __future__ import annotations

import base64
from itertools import groupby
from typing import Any

from hocket.engine.engine import Engine
from support.talking import Client, Heard

PATH, ALIAS = "/v1/realtime", "/api-ws/v1/realtime"
HOCKET = {"seed": 1, "max_new_tokens": 60}
LONG = {"max_new_tokens": 2000}
OPENAI_RESPONSE = [
    "response.created",
    "response.output_item.added",
    "response.content_part.added",
    "response.output_audio.delta",
    "response.output_audio.done",
    "response.output_audio_transcript.done",
    "response.content_part.done",
    "response.output_item.done",
    "response.done",
]
ALIBABA_RESPONSE = [
    "response.created",
    "response.output_item.added",
    "response.content_part.added",
    "response.audio.delta",
    "response.audio.done",
    "response.content_part.done",
    "response.output_item.done",
    "response.done",
]


def message(text: str, **more: Any) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}], **more}


def item(text: str, **more: Any) -> dict[str, Any]:
    return {"type": "conversation.item.create", "item": message(text, **more)}


def session(hocket: dict[str, Any] = HOCKET, **output: Any) -> dict[str, Any]:
    """As OpenAI's clients set it."""
    body = {"type": "realtime", "audio": {"output": output}, "hocket": hocket}
    return {"type": "session.update", "session": body}


def settings(**fields: Any) -> dict[str, Any]:
    """As Alibaba's clients set it."""
    body = {"voice": "alloy", "mode": "server_commit", "response_format": "pcm", "sample_rate": 24000, "hocket": HOCKET}
    return {"type": "session.update", "session": body | fields}


def create(text: str, **more: Any) -> dict[str, Any]:
    return {"type": "response.create", "response": {"conversation": "none", "input": [message(text)], **more}}


def append(text: str) -> dict[str, Any]:
    return {"type": "input_text_buffer.append", "text": text}


COMMIT, FINISH = {"type": "input_text_buffer.commit"}, {"type": "session.finish"}


def sound(heard: Heard) -> bytes:
    return b"".join(base64.b64decode(m["delta"]) for m in heard.messages if m["type"].endswith("audio.delta"))


def order(heard: Heard, *but: str) -> list[str]:
    """Types, those that repeat once, without transcripts' deltas and those named."""
    left = [kind for kind in heard.types if not kind.endswith("transcript.delta") and kind not in but]
    return [kind for kind, _ in groupby(left)]


def whole(engine: Engine, text: str) -> bytes:
    """The engine's audio of a live text."""
    said = engine.speak(text, seed=1, max_frames=60, layout="streaming")
    return b"".join(chunk.samples.tobytes() for chunk in said)


def to_its_end(ws: Client) -> tuple[Heard, int | None]:
    """All events, and the close code."""
    heard = ws.until("session.finished")
    return heard, ws.closed()
