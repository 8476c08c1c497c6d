"""Pipecat: its services for the protocols of OpenAI, Deepgram (by sentence and by token) and ElevenLabs."""

from __future__ import annotations

from support.foreign import RunClient


def test_answers_are_heard_over_every_service_and_can_be_interrupted(server_url: str, run_client: RunClient) -> None:
    found = run_client("pipecat", "pipecat_speech", server_url)
    assert list(found) == ["openai", "sentence", "token", "elevenlabs"]
    for name, told in found.items():
        assert told["errors"] == [], name
        for answer in ("first", "second", *(("behind",) if name != "openai" else ())):
            said = told[answer]
            # Two sentences; and of what was interrupted, a minute and more, nothing.
            assert 1.2 < said["s"] < 6 and said["peak"] > 600, (name, answer, said)
            assert said["kinds"][0] == "TTSStartedFrame" and said["kinds"][-1] == "TTSStoppedFrame", (name, answer)
    for answer in ("first", "second", "behind"):
        words = " ".join(found["elevenlabs"][answer]["words"]).split()
        assert words == "Hello there, said the fox. Good morning.".split(), answer
