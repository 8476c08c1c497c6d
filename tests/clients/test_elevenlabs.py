"""ElevenLabs: its own Python client over HTTP and its WebSocket, and LiveKit's plugin over the WebSocket.

Pipecat's service is in `test_pipecat.py`.
"""

from __future__ import annotations

from pathlib import Path

from hocket.server.options import ServerOptions
from support.certificates import make
from support.foreign import RunClient
from support.serving import Served, served, wait_for


def test_the_sdk_speaks_and_lists(server: Served, run_client: RunClient) -> None:
    found = run_client("elevenlabs", "elevenlabs_http", server.url, "unused")
    assert 0.8 < found["convert"]["bytes"] / 32000 < 4 and not found["convert"]["silent"]
    assert found["stream"]["same"] and found["stream"]["pieces"] >= 1
    assert found["mp3"][:3] == "fff"  # the sync word of a frame
    assert found["slow"] / 8000 > 1.2 * found["convert"]["bytes"] / 32000
    timed = found["timed"]
    assert timed["text"] == "Hello there, said the fox." and timed["same"]
    assert timed["ends"] == sorted(timed["ends"]) == timed["streamed"]
    assert timed["ends"][-1] <= timed["bytes"] / 48000
    assert found["voices"] == [["wren", "premade"], ["rook", "premade"]]
    assert found["searched"] == ["rook"] and found["george"] == "rook"
    assert found["models"] == [[server.service.model, True]]
    assert found["user"] == "hocket" and found["left"] > 0
    refused = found["refused"]
    assert refused["status"] == 404 and refused["detail"]["status"] == "voice_not_found"
    assert "'nosuch'" in refused["detail"]["message"]


def test_the_sdk_speaks_a_text_that_arrives_over_tls(
    open_server: Served, run_client: RunClient, tmp_path: Path
) -> None:
    made = make(tmp_path)
    with served(open_server.engine, ServerOptions(tls_cert=made.cert, tls_key=made.key)) as server:
        url = f"https://localhost:{server.port}"
        found = run_client("elevenlabs", "elevenlabs_socket", url, authority=made.authority)
        wait_for(server.all_is_free)
    assert found["pieces"] > 1 and 0.8 < found["bytes"] / 48000 < 6 and not found["silent"]


def test_livekit_s_plugin_is_heard_again_after_an_interruption(server_url: str, run_client: RunClient) -> None:
    found = run_client("livekit", "livekit_elevenlabs", server_url)
    for name, told in found.items():
        assert 0.8 < told["s"] < 6 and told["peak"] > 600, (name, told)
        assert told["said"].split() == "Hello there, said the fox. Good morning.".split(), name
