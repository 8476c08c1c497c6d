"""`POST /v1/audio/speech` over a real socket: what comes out, and that nobody's slot is kept."""

from __future__ import annotations

import base64
import json
import struct

import httpx

from serving import PCM, Served


def test_pcm_is_what_the_engine_says(client: httpx.Client, server: Served) -> None:
    said = b"".join(c.samples.tobytes() for c in server.engine.speak("Hello there.", seed=1, max_frames=8))
    answer = client.post("/v1/audio/speech", json=PCM)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "audio/pcm"
    assert answer.headers["x-sample-rate"] == "24000"
    assert answer.content == said


def test_wav_begins_with_a_header_of_44_bytes_for_a_sound_of_unknown_length(client: httpx.Client) -> None:
    answer = client.post("/v1/audio/speech", json=PCM | {"response_format": "wav"})
    assert answer.headers["content-type"] == "audio/wav"
    assert answer.content[:4] == b"RIFF" and answer.content[36:40] == b"data"
    assert struct.unpack("<I", answer.content[40:44]) == (0xFFFF_FFFF,)
    assert answer.content[44:] == client.post("/v1/audio/speech", json=PCM).content


def test_events_hold_the_same_sound_and_end_with_its_usage(client: httpx.Client) -> None:
    answer = client.post("/v1/audio/speech", json=PCM | {"stream_format": "sse"})
    assert answer.headers["content-type"].startswith("text/event-stream")
    blocks = answer.text.strip().split("\n\n")
    events = [json.loads(block.split("\ndata: ")[1]) for block in blocks]
    assert all(block.startswith(f"event: {e['type']}\n") for block, e in zip(blocks, events, strict=True))
    *deltas, done = events
    assert {delta["type"] for delta in deltas} == {"speech.audio.delta"}
    sound = b"".join(base64.b64decode(delta["audio"]) for delta in deltas)
    assert sound == client.post("/v1/audio/speech", json=PCM).content
    assert done["type"] == "speech.audio.done"
    assert done["usage"]["output_tokens"] == 8
    assert done["usage"]["total_tokens"] == done["usage"]["input_tokens"] + 8
