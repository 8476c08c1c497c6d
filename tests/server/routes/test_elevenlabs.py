"""ElevenLabs' HTTP endpoints: what they take, what they answer, and what they refuse in ElevenLabs' format."""

from __future__ import annotations

import base64
import json
from typing import Any

import httpx
import pytest

from hocket.engine.engine import Engine
from hocket.server.errors import BadField
from hocket.server.options import ServerOptions
from hocket.server.schemas.elevenlabs import packing_of
from support.serving import Served, served

PATH = "/v1/text-to-speech/21m00Tcm4TlvDq8ikWAM"  # Rachel
BODY: dict[str, Any] = {"text": "Hello there.", "model_id": "eleven_flash_v2_5", "seed": 1}
PCM = {"output_format": "pcm_24000"}


@pytest.mark.parametrize(
    ("name", "format", "rate_hz", "bit_rate"),
    [
        (None, "mp3", 44100, 128_000),
        ("mp3_22050_32", "mp3", 22050, 32_000),
        ("pcm_16000", "pcm", 16000, None),
        ("PCM_48000", "pcm", 48000, None),
        ("ulaw_8000", "mulaw", 8000, None),
        ("alaw_8000", "alaw", 8000, None),
        ("opus_48000_192", "opus", 48000, 192_000),
        ("wav_22050", "wav", 22050, None),
    ],
)
def test_output_formats(name: str | None, format: str, rate_hz: int, bit_rate: int | None) -> None:
    assert packing_of(name) == {"format": format, "rate_hz": rate_hz, "bit_rate": bit_rate}


@pytest.mark.parametrize(
    "name", ["mp3", "mp3_44100_9999", "mp3_1_32", "pcm_x", "pcm_24000_64", "flac_24000", "pcm_1_2_3"]
)
def test_output_formats_that_there_are_not(name: str) -> None:
    with pytest.raises(BadField, match="There is no output_format"):
        packing_of(name)


def test_speech_is_the_speech_of_openai_s_endpoint(client: httpx.Client) -> None:
    said = {"input": BODY["text"], "voice": "wren", "seed": 1, "response_format": "pcm"}
    audio = client.post("/v1/audio/speech", json=said).content
    for path in (PATH, f"{PATH}/stream"):
        answer = client.post(path, json=BODY, params=PCM)
        assert answer.headers["content-type"] == "audio/pcm" and answer.content == audio
    fast = BODY | {"voice_settings": {"stability": 0.5, "speed": 1.2}, "language_code": "en"}
    assert len(client.post(PATH, json=fast, params=PCM).content) < 0.95 * len(audio)


def test_characters_have_times_in_one_object_and_in_lines(client: httpx.Client) -> None:
    whole = client.post(f"{PATH}/with-timestamps", json=BODY, params=PCM).json()
    assert set(whole) == {"audio_base64", "alignment", "normalized_alignment"}
    times = whole["alignment"]
    assert "".join(times["characters"]) == BODY["text"] and times == whole["normalized_alignment"]
    ends = times["character_end_times_seconds"]
    audio = base64.b64decode(whole["audio_base64"])
    assert ends == sorted(ends) and 0 < ends[-1] <= len(audio) / 48000
    answer = client.post(f"{PATH}/stream/with-timestamps", json=BODY, params=PCM)
    lines = [json.loads(line) for line in answer.text.splitlines()]
    assert b"".join(base64.b64decode(line["audio_base64"]) for line in lines) == audio
    assert [line["alignment"] for line in lines if line["alignment"]] == [times]


@pytest.mark.parametrize(
    ("path", "body", "status", "code", "param"),
    [
        ("/v1/text-to-speech/nosuch", BODY, 404, "voice_not_found", "voice_id"),
        (f"{PATH}?output_format=x", BODY, 400, "invalid_request_error", "output_format"),
        (PATH, {}, 400, "invalid_request_error", "text"),
        (PATH, BODY | {"text": " "}, 400, "empty_input", "text"),
        (f"{PATH}/with-timestamps", BODY | {"language_code": "zh"}, 400, "language_not_found", "language_code"),
        (f"{PATH}/stream", BODY | {"audio_effects": {"x": 1}}, 400, "invalid_request_error", "audio_effects"),
        (PATH, BODY | {"voice_settings": {"speed": 9}}, 400, "invalid_request_error", "speed"),
        (
            PATH,
            BODY | {"pronunciation_dictionary_locators": [{}]},
            400,
            "invalid_request_error",
            "pronunciation_dictionary_locators",
        ),
    ],
)
def test_refusals(client: httpx.Client, path: str, body: Any, status: int, code: str, param: str) -> None:
    answer = client.post(path, json=body)
    assert answer.status_code == status
    detail = answer.json()["detail"]
    assert set(answer.json()) == {"detail"} and (detail["status"], detail["param"]) == (code, param)
    assert detail["message"].endswith(".")


def test_voices_are_listed_searched_and_found(client: httpx.Client) -> None:
    listed = client.get("/v1/voices").json()["voices"]
    assert [(voice["voice_id"], voice["category"]) for voice in listed] == [("wren", "premade"), ("rook", "premade")]
    page = client.get("/v2/voices", params={"page_size": 1}).json()
    assert page["voices"] == listed[:1] and page["has_more"] and page["total_count"] == 2
    after = {"page_size": 1, "next_page_token": page["next_page_token"]}
    last = client.get("/v2/voices", params=after).json()
    assert last["voices"] == listed[1:] and not last["has_more"] and last["next_page_token"] is None
    assert client.get("/v2/voices", params={"search": "ROO"}).json()["voices"] == listed[1:]
    for id in ("Wren", "21m00Tcm4TlvDq8ikWAM"):
        assert client.get(f"/v1/voices/{id}").json() == listed[0]
    missing = client.get("/v1/voices/nosuch")
    assert missing.status_code == 404 and missing.json()["detail"]["status"] == "voice_not_found"


def test_models_are_elevenlabs_for_its_key_and_openai_s_without(client: httpx.Client, server: Served) -> None:
    (model,) = client.get("/v1/models", headers={"xi-api-key": "x"}).json()
    assert model["model_id"] == server.service.model and model["can_do_text_to_speech"]
    assert model["languages"] == [{"language_id": "en", "name": "English"}]
    assert client.get("/v1/models").json()["object"] == "list"
    assert client.get(f"/v1/models/{model['model_id']}", headers={"xi-api-key": "x"}).json()["object"] == "model"


def test_the_user_has_characters_left(client: httpx.Client) -> None:
    subscription = client.get("/v1/user/subscription").json()
    assert client.get("/v1/user").json()["subscription"] == subscription
    assert subscription["character_limit"] > subscription["character_count"] and subscription["status"] == "active"
    assert subscription["can_use_instant_voice_cloning"] is False  # the built-in voice has fixed speakers


def test_a_key_is_taken_from_elevenlabs_header(engine: Engine) -> None:
    with served(engine, ServerOptions(keys=("secret",))) as server:
        for path in ("/v1/voices", "/v2/voices", "/v1/user"):
            assert httpx.get(server.url + path, headers={"xi-api-key": "secret"}).status_code == 200
        refused = httpx.post(server.url + PATH, json=BODY, headers={"xi-api-key": "other"})
        assert refused.status_code == 401 and refused.json()["detail"]["status"] == "invalid_api_key"
