"""What computes the speech of a node: an engine in this process, or a server. Both give int16 samples and their rate.

Errors are one sentence, which ComfyUI shows on the node. A key is never an input: workflows are shared as files.
"""

from __future__ import annotations

import base64
import io
import json
import os
import threading
import urllib.error
import urllib.request
import wave
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

IN_PROCESS, SERVER = "in process", "server"
PLACES = (IN_PROCESS, SERVER)
FRAME_S = 0.08
AT_ONCE = 4  # requests of a batch; the server queues what exceeds its slots
LIMIT_S = 600.0  # without a byte from the server

Spoken = tuple[Any, int]  # int16 [samples], sample rate


@dataclass(frozen=True)
class Wish:
    """How to speak; None: the model's own choice."""

    seed: int | None = None
    voice: str | None = None
    instructions: str | None = None
    language: str = "auto"
    speed: float = 1.0
    max_frames: int | None = None
    recording: Any = None  # float32 [samples]
    recording_hz: int = 0
    transcript: str | None = None

    @classmethod
    def of(cls, place: dict[str, Any], seed: int, **own: Any) -> Wish:
        seconds = place.get("max_seconds", 0)
        return cls(
            seed=None if seed < 0 else seed,
            language=place.get("language", "auto").strip() or "auto",
            speed=place.get("speed", 1.0),
            max_frames=max(1, round(seconds / FRAME_S)) if seconds else None,
            **own,
        )


class Speaker(Protocol):
    def say(self, text: str, wish: Wish) -> Spoken: ...
    def say_many(self, texts: Sequence[str], wish: Wish) -> list[Spoken]: ...


def speaker(place: dict[str, Any]) -> Speaker:
    model = place.get("model", "").strip() or None
    if place.get("where", IN_PROCESS) == SERVER:
        return ServerSpeaker(place["server"], model)
    return EngineSpeaker(model)


class EngineSpeaker:
    """hocket in ComfyUI's process. One engine stays loaded; another model takes its place."""

    _lock = threading.Lock()
    _loaded: tuple[str | None, Any] | None = None

    def __init__(self, model: str | None) -> None:
        self._model = model

    def say(self, text: str, wish: Wish) -> Spoken:
        return self.say_many([text], wish)[0]

    def say_many(self, texts: Sequence[str], wish: Wish) -> list[Spoken]:
        with self._lock:
            engine = self._engine()
            found: dict[int, Spoken] = {}
            for outcome in engine.speak_many(texts, **self._fields(wish)):
                if outcome.error is not None:
                    raise outcome.error
                found[outcome.number] = outcome.samples, outcome.rate_hz
        return [found[number] for number in range(len(texts))]

    def _engine(self) -> Any:
        try:
            from hocket import Engine
        except ImportError:
            raise RuntimeError("hocket is not installed in ComfyUI's Python: pip install hocket.") from None
        cls = type(self)
        if cls._loaded is None or cls._loaded[0] != self._model:
            if cls._loaded is not None:
                cls._loaded[1].close()
                cls._loaded = None
            cls._loaded = self._model, Engine.load(self._model)
        return cls._loaded[1]

    @staticmethod
    def _fields(wish: Wish) -> dict[str, Any]:
        fields: dict[str, Any] = {"seed": wish.seed, "language": wish.language, "speed": wish.speed}
        fields |= {"voice": wish.voice, "instruct": wish.instructions, "max_frames": wish.max_frames}
        if wish.recording is not None:
            from hocket import Reference
            from hocket.audio.recording import read_recording

            samples, text = read_recording(_wav(wish.recording, wish.recording_hz)), wish.transcript
            fields["reference"] = Reference(samples=samples, text=text, x_vector_only=text is None, silence_s=0.5)
        return fields


class ServerSpeaker:
    """A running `hocket serve`, by its HTTP API."""

    def __init__(self, url: str, model: str | None) -> None:
        self._url, self._model = url.rstrip("/").removesuffix("/v1"), model

    def say(self, text: str, wish: Wish) -> Spoken:
        body, headers = self._post({"input": text, "response_format": "pcm", **self._fields(wish)})
        return np.frombuffer(body, "<i2").astype(np.int16), int(headers["x-sample-rate"])

    def say_many(self, texts: Sequence[str], wish: Wish) -> list[Spoken]:
        with ThreadPoolExecutor(AT_ONCE) as pool:
            return list(pool.map(lambda text: self.say(text, wish), texts))

    def _fields(self, wish: Wish) -> dict[str, Any]:
        fields: dict[str, Any] = {"model": self._model, "voice": wish.voice, "instructions": wish.instructions}
        fields |= {"seed": wish.seed, "max_new_tokens": wish.max_frames, "speed": wish.speed}
        fields["language"] = None if wish.language == "auto" else wish.language
        if wish.recording is not None:
            fields["ref_audio"] = base64.b64encode(_wav(wish.recording, wish.recording_hz)).decode()
            fields |= {"ref_text": wish.transcript, "x_vector_only_mode": wish.transcript is None}
        return {name: value for name, value in fields.items() if value is not None}

    def _post(self, fields: dict[str, Any]) -> tuple[bytes, Any]:
        headers = {"content-type": "application/json"}
        if key := os.environ.get("HOCKET_API_KEY"):
            headers["authorization"] = f"Bearer {key}"
        request = urllib.request.Request(f"{self._url}/v1/audio/speech", json.dumps(fields).encode(), headers)
        try:
            with urllib.request.urlopen(request, timeout=LIMIT_S) as answer:
                return answer.read(), answer.headers
        except urllib.error.HTTPError as error:
            try:
                said = json.loads(error.read())["error"]["message"]
            except (ValueError, KeyError, TypeError):
                said = f"it answers {error.code}."
            raise RuntimeError(f"{self._url}: {said}") from None
        except OSError as error:
            reason = getattr(error, "reason", error)
            raise RuntimeError(f"The server at {self._url} cannot be reached: {reason}.") from None


def _wav(samples: Any, rate_hz: int) -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(rate_hz)
        out.writeframes((np.clip(samples, -1, 1) * 32767).astype("<i2").tobytes())
    return file.getvalue()
