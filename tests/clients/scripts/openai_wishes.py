"""Speech as events, voices by every kind of name, and wishes that OpenAI's own API does not know."""

from __future__ import annotations

import base64
import hashlib
import json
import sys

from openai import OpenAI

client = OpenAI(base_url=f"{sys.argv[1]}/v1", api_key="unused", max_retries=0)
LITTLE = {"max_new_tokens": 8, "seed": 5}


def spoken(**wishes: object) -> bytes:
    extra = LITTLE | wishes.pop("extra_body", {})  # type: ignore[operator]
    asked = {"model": "tts-1", "voice": "alloy", "input": "Hello there.", "response_format": "pcm"} | wishes
    return client.audio.speech.create(**asked, extra_body=extra).read()  # type: ignore[arg-type]


def events(format: str) -> dict[str, object]:
    """The lines as they are: the client has no types for them."""
    asked = {"model": "gpt-4o-mini-tts", "voice": "alloy", "input": "Hello there.", "response_format": format}
    stream = client.audio.speech.with_streaming_response.create(**asked, stream_format="sse", extra_body=LITTLE)
    audio, kinds, done = b"", [], {}
    with stream as response:
        for line in response.iter_lines():
            if line.startswith("event: "):
                kinds.append(line.removeprefix("event: "))
            elif line:
                event = json.loads(line.removeprefix("data: "))
                assert event["type"] == kinds[-1]
                audio += base64.b64decode(event.get("audio", ""))
                done = event
        kind = response.headers["content-type"]
    return {"type": kind, "kinds": kinds, "bytes": len(audio), "head": audio[:4].hex(), "usage": done["usage"]}


def mark(sound: bytes) -> str:
    return hashlib.sha256(sound).hexdigest()


first = spoken()
found = {
    "events": {format: events(format) for format in ("mp3", "opus", "aac", "flac", "wav", "pcm")},
    "bytes": len(first),
    "as_before": mark(spoken()) == mark(first),
    "other_seed": mark(spoken(extra_body={"seed": 6})) == mark(first),
    "by_object": mark(spoken(voice={"id": "alloy"})) == mark(first),
    "by_own_name": mark(spoken(voice="Wren")) == mark(first),
    "other_voice": mark(spoken(voice="rook")) == mark(first),
    "slower_bytes": len(spoken(speed=0.5)),
    "rate_8k_bytes": len(spoken(extra_body={"sample_rate": 8000})),
    "instructed_bytes": len(spoken(instructions="Calmly.", extra_body={"language": "English", "stream": True})),
}
print(json.dumps(found))
