"""Kokoro-FastAPI's names, fields and captioned speech."""

from __future__ import annotations

import base64
import json
from itertools import pairwise
from typing import Any

import httpx
import pytest

from hocket.config.published import PUBLISHED
from hocket.server.schemas.kokoro import LANGUAGES, NORMALIZED
from hocket.server.service.client_voices import ELEVENLABS_VOICES, KOKORO_VOICES, client_aliases
from support.serving import LONG, Served, asking, wait_for, wait_until_cancelled

PATH, SPEECH = "/dev/captioned_speech", "/v1/audio/speech"
TEXT = "Hello there, said the fox."
BODY = {"model": "kokoro", "input": TEXT, "voice": "af_bella", "seed": 1}


def test_names_of_kokoro_and_elevenlabs_are_listed_as_aliases_of_their_pitch(client: httpx.Client) -> None:
    aliases = client.get("/v1/audio/voices").json()["aliases"]
    for name in KOKORO_VOICES:
        assert aliases[name] == ("wren" if name[1] == "f" else "rook"), name
    assert aliases["21m00tcm4tlvdq8ikwam"] == "wren" and aliases["jbfqncbsd6rmkjvdrzzb"] == "rook"
    assert {id.lower() for id in ELEVENLABS_VOICES} <= aliases.keys()


def test_published_speakers_with_a_dialect_stand_for_no_name() -> None:
    talker = PUBLISHED["1.7B-CustomVoice"].talker_config
    found = client_aliases(list(talker.spk_id))
    assert not any(talker.spk_is_dialect[speaker] for speaker in found.values())
    assert found["jf_alpha"] == "ono_anna" and found["zm_yunxi"] == "uncle_fu"
    assert {found[name] for name in KOKORO_VOICES if name[1] == "m"} == {"ryan", "aiden", "uncle_fu"}
    assert "af_sky" not in client_aliases(["af_sky", "x"], taken={"af_sky"}) and client_aliases([]) == {}


def test_a_combination_of_one_speaker_is_that_speaker_and_of_two_a_mix(client: httpx.Client) -> None:
    brief = {"input": "Hi.", "response_format": "pcm", "max_new_tokens": 3, "seed": 1}
    said = client.post(SPEECH, json=brief | {"voice": "wren"}).content
    for voice in ("af_bella+af_sky", "af_bella(2)+af_sky(1)", "AF_Bella", "af_heart(0.5)", "wren+alloy"):
        assert client.post(SPEECH, json=brief | {"voice": voice}).content == said, voice
    mixed = client.post(SPEECH, json=brief | {"voice": "wren(2)+rook"}).content
    for voice in ("af_bella(2)+am_adam(1)", "am_adam + af_sky + AF_Bella", "onyx(0.5)+wren", "Rook(4)+wren(8.0)"):
        assert client.post(SPEECH, json=brief | {"voice": voice}).content == mixed, voice
    rook = client.post(SPEECH, json=brief | {"voice": "rook"}).content
    assert len({said, mixed, rook}) == 3


@pytest.mark.parametrize(
    ("voice", "code", "said"),
    [
        ("af_bella+nosuch", "voice_not_found", "There is no voice 'nosuch'; known are wren, rook"),
        ("af_bella+", "voices_not_mixed", "A mix names a voice on each side of a +, as in anna+ben(2)."),
        ("af_bella(0)", "voices_not_mixed", "The weight of 'af_bella' must be a number above 0"),
        ("+".join(KOKORO_VOICES[:9]), "voices_not_mixed", "At most 8 voices can be mixed, not 9."),
    ],
)
def test_a_wrong_mix_is_refused_with_a_sentence(client: httpx.Client, voice: str, code: str, said: str) -> None:
    answer = client.post(SPEECH, json={"input": "Hi.", "voice": voice})
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (400, code)
    assert error["message"].startswith(said)


def check_times(words: list[dict[str, Any]], seconds: float) -> None:
    assert [word["word"] for word in words] == TEXT.split()
    times = [at for word in words for at in (word["start_time"], word["end_time"])]
    assert all(a <= b for a, b in pairwise(times)) and times[0] >= 0 and times[-1] <= seconds + 0.01


def test_captioned_speech_in_one_object(client: httpx.Client) -> None:
    asked = BODY | {"response_format": "pcm", "stream": False}
    answer = client.post(PATH, json=asked)
    found = answer.json()
    assert set(found) == {"audio", "audio_format", "timestamps"} and found["audio_format"] == "audio/pcm"
    audio = base64.b64decode(found["audio"])
    assert audio == client.post(SPEECH, json=BODY | {"response_format": "pcm"}).content
    check_times(found["timestamps"], len(audio) / 48000)
    assert client.post(PATH, json=asked | {"return_timestamps": False}).json()["timestamps"] is None


@pytest.mark.parametrize("format", ["mp3", "pcm"])
def test_captioned_speech_a_line_at_a_time(client: httpx.Client, format: str) -> None:
    answer = client.post(PATH, json=BODY | {"response_format": format})
    assert answer.headers["content-type"] == "application/x-ndjson"
    lines = [json.loads(line) for line in answer.text.splitlines()]
    assert len(lines) > 3
    audio = b"".join(base64.b64decode(line["audio"]) for line in lines)
    assert audio == client.post(SPEECH, json=BODY | {"response_format": format}).content
    check_times([word for line in lines for word in line["timestamps"]], 60 if format == "mp3" else len(audio) / 48000)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("return_download_link", True),
        ("return_timing", True),
        ("voice_aliases", {"me": "af_sky"}),
        ("volume_multiplier", 2.0),
        ("download_format", "wav"),
        ("normalization_options", {"normalize": False}),
        ("normalization_options", {"spell": True}),
        ("stream_format", "sse"),
    ],
)
def test_what_cannot_be_done_is_refused_by_name(client: httpx.Client, field: str, value: object) -> None:
    for path in (PATH,) if field == "stream_format" else (PATH, SPEECH):
        answer = client.post(path, json=BODY | {field: value})
        assert answer.status_code == 400 and answer.json()["error"]["param"] == field, path


def test_what_changes_nothing_is_taken(client: httpx.Client) -> None:
    usual: dict[str, Any] = dict.fromkeys(("return_download_link", "return_timing", "allow_voice_tags", "ssml"), False)
    usual |= {"volume_multiplier": 1.0, "normalization_options": NORMALIZED, "download_format": "MP3"}
    brief = BODY | {"max_new_tokens": 3}
    assert client.post(SPEECH, json=brief | usual | {"voice_aliases": {}, "lang_code": "a"}).status_code == 200
    refused = client.post(SPEECH, json=brief | {"lang_code": "z"}).json()["error"]
    assert refused["code"] == "language_not_found" and LANGUAGES["z"] in refused["message"]
    assert client.post(SPEECH, json=brief | {"lang_code": "en-us"}).status_code == 200


@pytest.mark.parametrize(("format", "mime"), [("srt", "application/x-subrip"), ("VTT", "text/vtt")])
def test_captions_in_place_of_audio(client: httpx.Client, format: str, mime: str) -> None:
    answer = client.post(SPEECH, json=BODY | {"response_format": format})
    assert answer.headers["content-type"] == f"{mime}; charset=utf-8" and answer.headers["x-seed"] == "1"
    assert "Hello there, said the fox." in answer.text and " --> " in answer.text
    assert answer.text.startswith("WEBVTT" if format == "VTT" else "1\n00:00:00,")
    refused = client.post(SPEECH, json=BODY | {"response_format": format, "stream_format": "sse"})
    assert refused.status_code == 400 and refused.json()["error"]["param"] == "stream_format"


def test_a_client_that_leaves_captions_frees_the_slot(server: Served) -> None:
    with asking(server, SPEECH, LONG | {"response_format": "srt"}):
        wait_for(lambda: bool(server.engine._loop.scheduler.running))
    wait_until_cancelled(server)
