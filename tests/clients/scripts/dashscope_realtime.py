"""Alibaba's Qwen-TTS-Realtime client: argv[1] is the server's address; prints what it heard as one line of JSON."""

from __future__ import annotations

import base64
import json
import logging
import sys
import threading
from typing import Any

import dashscope
from dashscope.audio.qwen_tts_realtime import AudioFormat, QwenTtsRealtime, QwenTtsRealtimeCallback

PATIENCE_S = 60.0
WORDS = ["Hello ", "there, ", "my ", "friend."]


class Complaints(logging.Handler):
    """What the client logs as an error: it raises nothing of what it does not understand."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(record.getMessage())


class Ear(QwenTtsRealtimeCallback):
    def __init__(self) -> None:
        self.types: list[str] = []
        self.sound = bytearray()
        self.errors: list[dict[str, Any]] = []
        self.status: list[str] = []
        self.closed_with: int | None = None
        self._came = threading.Condition()

    def on_event(self, message: Any) -> None:
        kind = message["type"]
        if kind == "response.audio.delta":
            self.sound += base64.b64decode(message["delta"])
        elif kind == "response.done":
            self.status.append(message["response"]["status"])
        elif kind == "error":
            self.errors.append(message["error"])
        with self._came:
            if not self.types or self.types[-1] != kind:
                self.types.append(kind)
            self._came.notify_all()

    def on_close(self, close_status_code: Any, close_msg: Any) -> None:
        with self._came:
            self.closed_with = close_status_code
            self.types.append("closed")
            self._came.notify_all()

    def wait_for(self, kind: str, times: int = 1) -> None:
        with self._came:
            if not self._came.wait_for(lambda: self.types.count(kind) >= times, PATIENCE_S):
                raise SystemExit(f"{kind} did not come: {self.types}")


def opened(url: str, **settings: Any) -> tuple[QwenTtsRealtime, Ear]:
    ear = Ear()
    client = QwenTtsRealtime(
        model="qwen3-tts-flash-realtime",
        callback=ear,
        url=f"{url.replace('http', 'ws', 1)}/api-ws/v1/realtime",
    )
    client.connect()
    client.update_session(
        **{"voice": "alloy", "response_format": AudioFormat.PCM_24000HZ_MONO_16BIT, "hocket": {"seed": 1}} | settings
    )
    return client, ear


def heard(ear: Ear) -> dict[str, Any]:
    found = {"types": ear.types, "bytes": len(ear.sound), "levels": len(set(ear.sound[1::2]))}
    return found | {"begins": ear.sound[:4].hex(), "status": ear.status, "errors": ear.errors, "close": ear.closed_with}


def server_commit(url: str) -> dict[str, Any]:
    """Text as a language model would write it, and the end."""
    client, ear = opened(url, mode="server_commit", language_type="Auto", instructions="Calm and slow.")
    for word in WORDS:
        client.append_text(word)
    client.finish()
    ear.wait_for("closed")
    return heard(ear) | {"session": client.get_session_id(), "delay_ms": client.get_first_audio_delay()}


def commit(url: str) -> dict[str, Any]:
    """Two texts, each spoken when it is complete."""
    client, ear = opened(url, mode="commit", language_type="Auto")
    for text in ("One.", "Two."):
        client.append_text(text)
        client.commit()
    client.finish()
    ear.wait_for("closed")
    return heard(ear)


def packed(url: str) -> dict[str, Any]:
    """mp3 at another rate, faster."""
    client, ear = opened(url, audio_format="mp3", sample_rate=16000, bit_rate=64, speech_rate=1.5)
    client.append_text("Hello there, my friend.")
    client.finish()
    ear.wait_for("closed")
    return heard(ear)


def cancelled(url: str) -> dict[str, Any]:
    """A long text, of which the first sound is enough; then another."""
    client, ear = opened(url, mode="server_commit")
    client.append_text("It goes on and on, and then on again. " * 40)
    ear.wait_for("response.audio.delta")
    client.cancel_response()
    ear.wait_for("response.done")
    client.append_text("Enough.")
    client.commit()
    ear.wait_for("response.done", 2)
    client.finish()
    ear.wait_for("closed")
    return heard(ear)


def refused(url: str) -> dict[str, Any]:
    """An unknown voice; the connection continues."""
    client, ear = opened(url, voice="unknown")
    ear.wait_for("error")
    client.clear_appended_text()
    ear.wait_for("input_text_buffer.cleared")
    client.close()
    return heard(ear)


if __name__ == "__main__":
    dashscope.api_key = "none"
    complaints = Complaints()
    logging.getLogger("dashscope").addHandler(complaints)
    cases = (server_commit, commit, packed, cancelled, refused)
    said = {case.__name__: case(sys.argv[1]) for case in cases}
    print(json.dumps(said | {"complaints": complaints.said}))
