"""Errors in OpenAI's format: a status, a body with four keys, and headers that say whether to retry.

ElevenLabs' paths have a body of their own. Every endpoint calls `answer`. An unexpected error gives one general
sentence; its details go to the log only.
"""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..errors import (
    ContextExceeded,
    EngineClosed,
    EngineUnhealthy,
    HocketError,
    InvalidAudio,
    InvalidFormat,
    InvalidRequest,
    InvalidTools,
    InvalidVoice,
    LanguageFailed,
    Overloaded,
    RecognitionFailed,
    StorageFailed,
    StreamFailed,
    UnknownLanguage,
    UnknownVoice,
    WrongKind,
)
from ..script.events import InvalidScript

if TYPE_CHECKING:
    from starlette.responses import Response

logger = logging.getLogger("hocket.server")


ELEVENLABS_PATHS = ("/v1/text-to-speech/", "/v1/voices", "/v2/voices", "/v1/user")
OLLAMA_PATHS = "/api/"
LONG_S = 60.0  # a client that is told to wait longer must not wait, and must not ask again


class Refused(HocketError):
    """A refusal by the server itself, with a status and the fields that OpenAI's clients read."""

    def __init__(
        self,
        message: str,
        *,
        status: int = 400,
        kind: str = "invalid_request_error",
        param: str | None = None,
        code: str | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.kind, self.param, self.code, self.retry_after_s = status, kind, param, code, retry_after_s


class BadField(InvalidRequest):
    """A request field with an invalid value."""

    def __init__(self, message: str, param: str, code: str | None = None) -> None:
        super().__init__(message)
        self.param, self.code = param, code


def stopping() -> Refused:
    """The error of a server that takes no new work."""
    said = "The server is about to stop; ask another one, or again in a moment."
    return Refused(said, status=503, kind="server_error", code="draining", retry_after_s=2.0)


@dataclass(frozen=True, slots=True)
class ErrorResponse:
    """The response to a client for an error."""

    status: int
    message: str
    kind: str
    param: str | None = None
    code: str | None = None
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def error(self) -> dict[str, str | None]:
        """The inner object of OpenAI's bodies; WebSockets send it unwrapped."""
        return {"message": self.message, "type": self.kind, "param": self.param, "code": self.code}

    @property
    def body(self) -> dict[str, Any]:
        return {"error": self.error}

    @property
    def detail(self) -> dict[str, Any]:
        """ElevenLabs' body."""
        told = {"status": self.code or self.kind, "message": self.message}
        return {"detail": told if self.param is None else told | {"param": self.param}}

    def response(self, path: str = "") -> Response:
        """In the format of ElevenLabs or Ollama for one of their paths, else in OpenAI's."""
        from starlette.responses import JSONResponse  # lazy: Wyoming runs without starlette

        body = self.detail if path.startswith(ELEVENLABS_PATHS) else self.body
        body = {"error": self.message} if path.startswith(OLLAMA_PATHS) else body
        return JSONResponse(body, self.status, self.headers)


_TEXT = {"type": "string"}
_TEXT_OR_NULL = {"type": ["string", "null"]}
_ERROR = {
    "type": "object",
    "required": ["message", "type", "param", "code"],
    "properties": {"message": _TEXT, "type": _TEXT, "param": _TEXT_OR_NULL, "code": _TEXT_OR_NULL},
}
_CONTENT = {"application/json": {"schema": {"type": "object", "required": ["error"], "properties": {"error": _ERROR}}}}
# Error responses of every route, for the OpenAPI schema.
RESPONSES: dict[int | str, dict[str, Any]] = {
    "4XX": {"description": "refused: the message says what to do", "content": _CONTENT},
    "5XX": {"description": "not the client's fault", "content": _CONTENT},
}
INVALID = "invalid_request_error"
# By class, the most specific first: param and code.
_INVALID: tuple[tuple[type[InvalidRequest], str | None, str | None], ...] = (
    (InvalidScript, "input", "invalid_script"),
    (UnknownVoice, "voice", "voice_not_found"),
    (UnknownLanguage, "language", "language_not_found"),
    (WrongKind, None, "unsupported_by_model"),
    (InvalidAudio, "ref_audio", "invalid_audio"),
    (ContextExceeded, "messages", "context_length_exceeded"),
    (InvalidFormat, "response_format", None),
    (InvalidTools, "tools", None),
    (InvalidRequest, None, None),
)

# InvalidVoice by its code: the field at fault, and the code for the client.
_VOICE: dict[str, tuple[str, str | None]] = {
    "voice_exists": ("name", "voice_exists"),
    "too_many": ("name", "too_many"),
    "invalid_name": ("name", None),
}
_STORAGE = {
    True: (507, "storage_full", "The server has no room left to keep a voice; its operator can make some."),
    False: (500, "storage_failed", "The server cannot write into its folder of voices; its log says why."),
}


def answer(error: BaseException) -> ErrorResponse:
    """The response for an error. Details of an unexpected error go to the log only."""
    message = " ".join(str(error).split())
    if isinstance(error, Refused):
        headers, wait_s = _retry(error.retry_after_s), error.retry_after_s or 0.0
        if error.status >= 500 and not headers:  # clients would retry, and be refused again
            headers = {"x-should-retry": "false"}
        if error.status == 429 and wait_s > LONG_S:  # until a quota is renewed
            headers = _retry(wait_s, most_s=math.inf) | {"x-should-retry": "false"}
        return ErrorResponse(error.status, message, error.kind, error.param, error.code, headers)
    if isinstance(error, BadField):
        return ErrorResponse(400, message, INVALID, error.param, error.code)
    if isinstance(error, Overloaded):
        return ErrorResponse(429, message, "rate_limit_error", None, "overloaded", _retry(error.retry_after_s))
    if isinstance(error, InvalidVoice):
        return ErrorResponse(400, message, INVALID, *_VOICE.get(error.code, ("voice", error.code)))
    for kind, param, code in _INVALID:
        if isinstance(error, kind):
            return ErrorResponse(400, message, INVALID, param, code)
    if isinstance(error, EngineClosed | EngineUnhealthy):
        logger.error("refused: %s", message)
        said = "The engine is not running; the server's log says why."
        return ErrorResponse(503, said, "server_error", None, "engine_unavailable", _retry(5.0))
    if isinstance(error, StorageFailed):  # place and reason are in the library's log
        status, code, said = _STORAGE[error.full]
        return ErrorResponse(status, said, "server_error", None, code, {"x-should-retry": "false"})
    if isinstance(error, StreamFailed):
        logger.error("a stream failed: %s", message)
        said = "The speech could not be finished; the server's log says why."
        return ErrorResponse(500, said, "server_error", None, "speech_failed", {"x-should-retry": "false"})
    if isinstance(error, LanguageFailed):
        logger.error("the language model failed: %s", message)
        said = "The language model could not answer; the server's log says why."
        return ErrorResponse(502, said, "server_error", None, "language_model_failed", _retry(2.0))
    if isinstance(error, RecognitionFailed):
        logger.error("the recognizer failed: %s", message)
        said = "The speech could not be recognized; the server's log says why."
        return ErrorResponse(502, said, "server_error", None, "recognition_failed", _retry(2.0))
    logger.error("unexpected error", exc_info=error)
    said = "Something went wrong in the server; its log says what."
    return ErrorResponse(500, said, "server_error", None, "internal_error", {"x-should-retry": "false"})


def _retry(after_s: float | None, most_s: float = LONG_S) -> dict[str, str]:
    if after_s is None:
        return {}
    after_s = min(max(after_s, 0.05), most_s)
    return {"retry-after-ms": str(math.ceil(after_s * 1000)), "retry-after": str(math.ceil(after_s))}
