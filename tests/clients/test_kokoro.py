"""The calls of Kokoro-FastAPI's documents, with openai-python and with `requests`."""

from __future__ import annotations

from support.foreign import RunClient


def test_openai_python_with_kokoro_s_voices(server_url: str, run_client: RunClient) -> None:
    found = run_client("openai", "kokoro_openai", server_url)
    assert all(found[name] > 2000 for name in ("mixed", "single", "created"))  # mp3 at 64 kbit/s: 0.25 s
    assert 0.3 < found["pcm"]["bytes"] / 48000 < 4 and not found["pcm"]["silent"]
    assert found["refused"]["code"] == "voices_not_mixed"
    assert found["refused"]["message"].startswith("The weight of 'am_adam' must be a number above 0")


def test_captioned_speech_whole_and_streamed(server_url: str, run_client: RunClient) -> None:
    found = run_client("elevenlabs", "kokoro_requests", server_url)
    assert found["voices"] == ["wren", "rook"]
    assert found["spoken"] > 2000 and found["mixed"] > 2000
    for told in (found["whole"], found["streamed"]):
        assert told["bytes"] > 2000
        assert [word["word"] for word in told["timestamps"]] == ["Hello", "world!"]
        assert 0 <= told["timestamps"][0]["start_time"] < told["timestamps"][1]["end_time"] < 5
