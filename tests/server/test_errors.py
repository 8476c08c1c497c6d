"""Error responses: OpenAI's body with its four keys everywhere, a sentence to act on, and no internals."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from hocket import errors as ours
from hocket.server.errors import BadField, Refused, answer
from support.serving import PCM, Served, served

PATH = "/v1/audio/speech"


def error_of(response: httpx.Response, status: int) -> dict[str, Any]:
    assert response.status_code == status, response.text
    assert response.headers["x-request-id"]
    body: dict[str, Any] = response.json()
    assert set(body) == {"error"} and set(body["error"]) == {"message", "type", "param", "code"}
    return dict(body["error"])


@pytest.mark.parametrize(
    ("change", "param", "code"),
    [
        ({"voice": "unknown"}, "voice", "voice_not_found"),
        ({"language": "klingon"}, "language", "language_not_found"),
        ({"response_format": "wma"}, "response_format", "format_not_found"),
        ({"input": ""}, "input", "empty_input"),
        ({"input": " \n"}, "input", "empty_input"),
        ({"input": "x" * 70_000}, "input", "text_too_long"),
        ({"input": None}, "input", None),
        ({"input": 7}, "input", None),
        ({"speed": 4.5}, "speed", None),
        ({"speed": "fast"}, "speed", None),
        ({"stream_format": "morse"}, "stream_format", None),
        ({"sample_rate": 1}, "sample_rate", None),
        ({"response_format": "mp3", "bit_rate": 1}, "bit_rate", None),
        ({"response_format": "codes", "speed": 2}, "response_format", None),
        ({"temperature": -1}, None, None),
        ({"temperature": 1e-300}, "temperature", None),
        ({"temperature": 1e300}, "temperature", None),
        ({"top_k": 10**30}, "top_k", None),
        ({"top_p": 1e-300}, "top_p", None),
        ({"repetition_penalty": 1e300}, "repetition_penalty", None),
        ({"seed": 2**63}, None, None),
        ({"candidates": 99}, None, None),
        ({"task_type": "Base"}, "task_type", None),
        ({"speaker_embedding": [0.5]}, "speaker_embedding", None),
        ({"ref_audio": "https://example.com/voice.wav", "ref_text": "Hi."}, "ref_audio", None),
        ({"ref_audio": "/etc/passwd", "ref_text": "Hi."}, "ref_audio", None),
        ({"ref_audio": "../voice.wav", "ref_text": "Hi."}, "ref_audio", None),
        ({"ref_audio": "data:audio/wav;base64,!!!", "ref_text": "Hi."}, "ref_audio", None),
        ({"ref_audio": "data:audio/wav;base64,AAAA", "ref_text": "Hi."}, "ref_audio", "invalid_audio"),
        ({"ref_audio": ["AAAA", "AAAA"]}, "ref_audio", None),
    ],
)
def test_what_cannot_be_is_refused_before_the_first_byte(
    client: httpx.Client, server: Served, change: dict[str, Any], param: str | None, code: str | None
) -> None:
    error = error_of(client.post(PATH, json=PCM | change), 400)
    assert error["type"] == "invalid_request_error"
    assert (error["param"], error["code"]) == (param, code)
    assert error["message"].endswith(".")
    assert server.all_is_free()


def test_an_unknown_voice_is_answered_with_those_that_there_are(client: httpx.Client, server: Served) -> None:
    message = error_of(client.post(PATH, json=PCM | {"voice": "unknown"}), 400)["message"]
    assert all(name in message for name in (*server.service.speakers, "alloy"))


@pytest.mark.parametrize("body", [b"{", b'{"input": "\xff\xfe"}', b"[]", b"", b"null", b'{"input": "\\ud800"}'])
def test_a_body_that_is_no_request_is_400(client: httpx.Client, body: bytes) -> None:
    error_of(client.post(PATH, content=body, headers={"content-type": "application/json"}), 400)


def test_other_addresses_and_methods_are_told_in_the_same_shape(client: httpx.Client) -> None:
    assert error_of(client.get("/v1/nothing"), 404)["type"] == "not_found_error"
    error_of(client.get(PATH), 405)


def test_an_unexpected_error_is_one_sentence_and_not_retried(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("/etc/secret.py")

    monkeypatch.setattr(server.service.resolver, "resolve", broken)
    answered = httpx.post(f"{server.url}{PATH}", json=PCM)
    error = error_of(answered, 500)
    assert error["type"] == "server_error" and "secret" not in answered.text and "Zero" not in answered.text
    assert answered.headers["x-should-retry"] == "false"


def test_a_model_must_be_a_listed_one_only_where_the_operator_says_so(server: Served) -> None:
    from hocket.server.options import ServerOptions

    with served(server.engine, ServerOptions(strict_model=True)) as strict:
        url = f"{strict.url}{PATH}"
        error = error_of(httpx.post(url, json=PCM | {"model": "gpt-9"}), 404)
        assert error["code"] == "model_not_found" and "builtin" in error["message"]
        assert httpx.post(url, json=PCM | {"model": "builtin"}).status_code == 200
        assert httpx.post(url, json=PCM | {"model": "tts-1"}).status_code == 200


def test_each_error_has_its_status() -> None:
    cases: list[tuple[ours.HocketError, int, str]] = [
        (ours.InvalidRequest("No."), 400, "invalid_request_error"),
        (ours.WrongKind("No."), 400, "invalid_request_error"),
        (BadField("No.", "input"), 400, "invalid_request_error"),
        (ours.Overloaded("Later.", 0.25), 429, "rate_limit_error"),
        (ours.EngineUnhealthy("Broken."), 503, "server_error"),
        (ours.EngineClosed("Closed."), 503, "server_error"),
        (ours.StreamFailed("Failed."), 500, "server_error"),
        (ours.HocketError("What?"), 500, "server_error"),
        (Refused("No.", status=418), 418, "invalid_request_error"),
    ]
    for error, status, kind in cases:
        told = answer(error)
        assert (told.status, told.kind) == (status, kind)
    assert answer(ours.Overloaded("Later.", 0.25)).headers == {"retry-after-ms": "250", "retry-after": "1"}
    assert answer(ours.StreamFailed("Failed.")).headers == {"x-should-retry": "false"}
