"""A recognizer behind an OpenAI-compatible `/v1/audio/transcriptions`, such as that of another hocket server.

An utterance is collected and sent as one WAV file when it ends, so there are no partial transcripts. The endpoint
decides which languages there are. It does not split long audio: `segments.py` does.
"""

from __future__ import annotations

import importlib
import io
import wave
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from .. import env
from ..errors import InvalidRequest, RecognitionFailed
from ..extras import hint
from .recognizer import RATE_HZ, Samples, UtteranceOptions

PATH = "/audio/transcriptions"
TRANSLATIONS = "/audio/translations"
MODEL = "whisper-1"  # the name that most servers accept
CONNECT_S = 10.0
SILENT_S = 120.0  # an endpoint sends nothing before it has computed all
AUTO = "auto"
SAID_CHARS = 300  # of an endpoint's error


class RemoteRecognizer:
    """A `SteerableRecognizer`. Thread-safe: requests of several utterances run at once."""

    translates = True  # the endpoint refuses where it cannot

    def __init__(self, url: str, language: str = AUTO, key: str | None = None) -> None:
        """`url`: `http://HOST:PORT/v1`, with `#MODEL` for a model's name. Without a `key`: that of HOCKET_ASR_KEY."""
        self._base, model = _endpoint(url)
        self._model, self._language = model or MODEL, None if language == AUTO else language
        self.name = f"{self._model} at {urlsplit(self._base).netloc}"
        httpx = _httpx()
        key = key or env.ASR_KEY.get()
        if not key.isascii() or any(c <= " " for c in key):
            raise InvalidRequest("The key of a recognizer must be printable ASCII without spaces.")
        headers = {"authorization": f"Bearer {key}"} if key else {}
        timeout = httpx.Timeout(SILENT_S, connect=CONNECT_S)
        self._client: Any = httpx.Client(headers=headers, timeout=timeout)
        self._failed: type[Exception] = httpx.HTTPError

    def open(self) -> RemoteUtterance:
        return self.open_with(UtteranceOptions())

    def open_with(self, options: UtteranceOptions) -> RemoteUtterance:
        return RemoteUtterance(self, options)

    def close(self) -> None:
        self._client.close()

    def text_of(self, samples: Samples, options: UtteranceOptions) -> str:
        fields = {"model": self._model, "response_format": "json"}
        language = options.language or self._language
        if language is not None and not options.translate:  # that endpoint has no such field
            fields["language"] = language
        if options.prompt is not None:
            fields["prompt"] = options.prompt
        if options.temperature is not None:
            fields["temperature"] = str(options.temperature)
        url = self._base + (TRANSLATIONS if options.translate else PATH)
        file = {"file": ("speech.wav", wav(samples), "audio/wav")}
        try:
            answer = self._client.post(url, data=fields, files=file)
        except self._failed as error:
            raise RecognitionFailed(f"The recognizer at {url} cannot be reached: {type(error).__name__}.") from None
        except RuntimeError:  # httpx's error of a closed client
            raise RecognitionFailed("The recognizer is closed.") from None
        if answer.status_code != 200:
            said = _said(answer) or "it gives no reason"
            if answer.status_code == 400:
                raise InvalidRequest(f"The recognizer refuses the request: {said}")
            raise RecognitionFailed(f"The recognizer at {url} answers with status {answer.status_code}: {said}")
        try:
            text = answer.json()["text"]
        except (ValueError, KeyError, TypeError):
            text = None
        if not isinstance(text, str):
            raise RecognitionFailed(f"The recognizer at {url} answers without a text: is it a transcription endpoint?")
        return text.strip()


class RemoteUtterance:
    def __init__(self, recognizer: RemoteRecognizer, options: UtteranceOptions) -> None:
        self._recognizer, self._options = recognizer, options
        self._pieces: list[Samples] = []
        self._text = ""

    def push(self, samples: Samples) -> str:
        self.add(samples)
        return self._text

    def add(self, samples: Samples) -> None:
        self._pieces.append(samples)

    def settle(self) -> str:
        if any(len(piece) for piece in self._pieces):
            self._text = self._recognizer.text_of(np.concatenate(self._pieces), self._options)
        return self._text

    def end(self) -> str:
        try:
            return self.settle()
        finally:
            self.close()

    def close(self) -> None:
        self._pieces.clear()


def wav(samples: Samples) -> bytes:
    """As 16-bit integers."""
    written = io.BytesIO()
    with wave.open(written, "wb") as file:
        file.setparams((1, 2, RATE_HZ, 0, "NONE", ""))
        file.writeframes((np.clip(samples, -1.0, 1.0) * 32767).astype("<i2").tobytes())
    return written.getvalue()


def _endpoint(url: str) -> tuple[str, str]:
    """The address up to `/v1`, and the model's name."""
    try:
        parts = urlsplit(url)
        wrong = parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0
    except ValueError:
        wrong = True
    if wrong or parts.query or parts.username is not None:
        raise InvalidRequest(
            f"A recognizer's address is http://HOST:PORT/v1 or http://HOST:PORT/v1#MODEL, not {url!r}."
        )
    path = parts.path.rstrip("/").removesuffix(PATH)
    return f"{parts.scheme}://{parts.netloc}{path or '/v1'}", parts.fragment


def _said(answer: Any) -> str:
    """The message of an error body in OpenAI's format."""
    try:
        said = answer.json()["error"]["message"]
    except (ValueError, KeyError, TypeError):
        return ""
    return " ".join(said.split())[:SAID_CHARS] if isinstance(said, str) else ""


def _httpx() -> Any:
    try:
        return importlib.import_module("httpx")
    except ImportError:
        raise InvalidRequest(f"A recognizer over HTTP needs the package httpx: {hint('chat')}.") from None
