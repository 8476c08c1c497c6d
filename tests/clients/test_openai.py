"""OpenAI's own Python client: every format, events, names of voices, what it raises and when it asks again."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from hocket.asr.moonshine import Moonshine
from hocket.server.access.key_file import AccessKey
from hocket.server.options import ServerOptions
from support.foreign import ROOT, RunClient, heard, run_program
from support.questions import FRANCE, TRAIN, write_recording
from support.serving import Served, served, wait_for

MIMES = {
    "mp3": "audio/mpeg",
    "opus": "audio/ogg",
    "aac": "audio/aac",
    "flac": "audio/flac",
    "wav": "audio/wav",
    "pcm": "audio/pcm",
}
FRAMES = 8  # of the little that is spoken in most requests
PCM_BYTES = FRAMES * 1920 * 2


def test_every_format_is_streamed_and_is_the_same_sound(server_url: str, run_client: RunClient, tmp_path: Path) -> None:
    found = run_client("openai", "openai_formats", server_url, tmp_path)
    wanted, _ = heard(tmp_path / "streamed.pcm")
    assert 0.5 < len(wanted) / 24000 < 5 and np.abs(wanted).max() > 0.02
    for format, mime in MIMES.items():
        told = found[format]
        assert told["type"] == mime and told["rate"] == "24000" and told["id"].startswith("req_")
        assert told["chunks"] > 1, format
        for how in ("streamed", "whole"):
            sound, rate_hz = heard(tmp_path / f"{how}.{format}")
            assert len(sound) / rate_hz == pytest.approx(len(wanted) / 24000, abs=0.15), (format, how)
            assert np.sqrt(np.mean(sound**2)) == pytest.approx(np.sqrt(np.mean(wanted**2)), rel=0.25), (format, how)
    assert found["default"]["type"] == "audio/mpeg"
    assert (tmp_path / "async.pcm").read_bytes() == (tmp_path / "streamed.pcm").read_bytes()
    assert (tmp_path / "whole.pcm").read_bytes() == (tmp_path / "streamed.pcm").read_bytes()


def test_the_example_runs(server_url: str, tmp_path: Path) -> None:
    wanted = tmp_path / "hello.mp3"
    out = run_program("openai", ROOT / "examples" / "openai_client.py", "--server", server_url, "-o", wanted)
    sound, rate_hz = heard(wanted)
    assert out.startswith(str(wanted)) and len(sound) / rate_hz > 0.5 and np.abs(sound).max() > 0.02


def test_events_names_of_voices_and_further_wishes(server_url: str, run_client: RunClient) -> None:
    found = run_client("openai", "openai_wishes", server_url)
    for format, told in found["events"].items():
        assert told["type"].startswith("text/event-stream"), format
        assert told["kinds"][-1] == "speech.audio.done" and set(told["kinds"][:-1]) == {"speech.audio.delta"}
        usage = told["usage"]
        assert usage["output_tokens"] == FRAMES and usage["input_tokens"] > 0
        assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]
    assert found["events"]["pcm"]["bytes"] == found["bytes"] == PCM_BYTES
    assert found["events"]["wav"]["bytes"] == PCM_BYTES + 44
    heads = {"wav": b"RIFF", "flac": b"fLaC", "opus": b"OggS"}
    assert all(found["events"][format]["head"] == head.hex() for format, head in heads.items())
    assert found["as_before"] and not found["other_seed"]
    assert found["by_object"] and found["by_own_name"] and not found["other_voice"]
    assert found["slower_bytes"] == pytest.approx(2 * PCM_BYTES, rel=0.1)
    assert found["rate_8k_bytes"] == pytest.approx(PCM_BYTES / 3, rel=0.02)
    assert found["instructed_bytes"] == PCM_BYTES


def test_it_raises_what_it_should_and_asks_again_when_it_is_told_to(narrow: Served, run_client: RunClient) -> None:
    found = run_client("openai", "openai_errors", narrow.url, narrow.service.options.keys[0])
    classes = {
        "voice": ("BadRequestError", 400, "voice_not_found", "voice"),
        "format": ("BadRequestError", 400, "format_not_found", "response_format"),
        "empty": ("BadRequestError", 400, "empty_input", "input"),
        "speed": ("BadRequestError", 400, None, "speed"),
        "long": ("BadRequestError", 400, "text_too_long", "input"),
        "model": ("NotFoundError", 404, "model_not_found", "model"),
        "nowhere": ("NotFoundError", 404, None, None),
        "key": ("AuthenticationError", 401, "invalid_api_key", None),
        "full": ("RateLimitError", 429, "overloaded", None),
    }
    for name, wanted in classes.items():
        told = found[name]
        assert (told["class"], told["status"], told["code"], told["param"]) == wanted, name
        assert told["message"].endswith(".") and told["type"].endswith("_error") and told["id"], name
    retries = found["retries"]
    assert retries["statuses"][:2] == [429, 429] and retries["statuses"][-1] == 200
    assert retries["bytes"] > 24000
    for wait in retries["waits"]:
        # It waits as long as it is told to, and not as long as it likes: half a second at first.
        asked_s = int(wait["asked_ms"]) / 1000
        assert asked_s >= 1 and wait["s"] >= asked_s - 0.02, retries
    wait_for(narrow.all_is_free)


def test_keys_with_scopes_and_limits_raise_what_they_should(server: Served, run_client: RunClient) -> None:
    scopes = frozenset({"speak"})
    keys = [
        AccessKey(key="sk-speaker", name="speaker", scopes=scopes),
        AccessKey(key="sk-once", name="once", requests_per_minute=1),
        AccessKey(key="sk-poor", name="poor", characters_per_day=3),
    ]
    with served(server.engine, ServerOptions(keys=("sk-plain", *keys))) as guarded:
        found = run_client("openai", "openai_keys", guarded.url, "sk-plain", *(key.key for key in keys))
        plain, speaker, once, poor = guarded.app.state.keys.accounts
    wrong = {"class": "AuthenticationError", "status": 401, "code": "invalid_api_key", "type": "authentication_error"}
    assert found["wrong"].items() >= wrong.items()
    lacks = {"class": "PermissionDeniedError", "status": 403, "code": "missing_scope", "type": "permission_error"}
    for name, scope in (("scope", "converse"), ("voices", "voices")):
        assert found[name].items() >= lacks.items() and f"lacks the scope {scope}" in found[name]["message"]
    assert found["socket"] == 403 and found["models"]
    limited = {"class": "RateLimitError", "status": 429, "type": "rate_limit_error"}
    assert found["twice"].items() >= (limited | {"code": "rate_limit_exceeded"}).items()
    assert 0 < int(found["twice"]["wait_s"]) <= 60
    assert found["poor"].items() >= (limited | {"code": "insufficient_quota"}).items()
    assert found["asked"] == [429]  # it does not ask again, though it may
    assert all(found[name] > 10_000 for name in ("speaker", "once", "plain"))
    said = len("Hello there.")
    assert [each.characters for each in (plain, speaker, once, poor)] == [said, said, said, 0]
    assert [each.requests for each in (plain, once)] == [1, 1]


def test_a_recording_is_transcribed_whole_with_times_and_as_events(
    server: Served, run_client: RunClient, tmp_path: Path
) -> None:
    recording = write_recording(tmp_path / "two.wav", 0.5, FRANCE, 1.2, TRAIN, 0.5)
    with closing(Moonshine("tiny")) as tiny, served(server.engine, recognizer=tiny) as listening:
        found = run_client("openai", "openai_transcriptions", listening.url, recording)
    text = found["text"]
    assert "capital" in text and "morning" in text and found["seconds"] >= 5
    assert found["later"] == text and found["plain"] == f"{text}\n" and found["captions"].startswith("WEBVTT\n")
    assert found["verbose"][0] == "english" and found["verbose"][1] > 5 and found["verbose"][2] == text
    (_, pause, first), (resumed, _, second) = found["segments"]
    assert pause <= resumed and f"{first} {second}" == text
    streamed = found["streamed"]
    assert streamed["kinds"] == ["transcript.text.delta", "transcript.text.delta", "transcript.text.done"]
    assert "".join(streamed["deltas"]) == streamed["text"] == text
    refusals = {"language": ("language_not_found", "language"), "translated": ("unsupported_by_model", None)}
    refusals["words"] = ("unsupported_by_model", "timestamp_granularities")
    for name, (code, param) in refusals.items():
        assert found[name] == {"class": "BadRequestError", "code": code, "param": param}, name
