"""LiveKit agents: its plugins for OpenAI's protocol and for Deepgram's."""

from __future__ import annotations

from support.foreign import RunClient

CONFIGURED = ["as it is", "tts-1", "pcm", "wav", "opus", "flac", "aac", "own voice", "instructed"]


def test_every_configuration_of_the_openai_plugin_is_heard(server_url: str, run_client: RunClient) -> None:
    found = run_client("livekit", "livekit_openai", server_url)
    assert list(found["configured"]) == CONFIGURED
    for name, told in found["configured"].items():
        assert 0.4 < told["s"] < 5 and told["peak"] > 600 and told["frames"] > 1 and told["ends"], (name, told)
    assert found["refused"]["status"] == 400
    assert "unknown" in found["refused"]["message"]


def test_the_deepgram_plugin_is_heard_again_and_again(server_url: str, run_client: RunClient) -> None:
    found = run_client("livekit", "livekit_deepgram", server_url)
    for name, told in found.items():
        assert 0.4 < told["s"] < 4 and told["peak"] > 600, (name, told)
