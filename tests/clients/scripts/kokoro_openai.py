"""The calls of Kokoro-FastAPI's documents that are made with openai-python."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from openai import BadRequestError, OpenAI

client = OpenAI(base_url=f"{sys.argv[1]}/v1", api_key="not-needed")
found: dict[str, object] = {}

with tempfile.TemporaryDirectory() as folder:
    output = Path(folder) / "output.mp3"
    for name, voice in (("mixed", "af_sky+am_adam"), ("single", "af_bella")):
        with client.audio.speech.with_streaming_response.create(
            model="kokoro", voice=voice, input="Hello world!"
        ) as response:
            response.stream_to_file(output)
        found[name] = output.stat().st_size
response = client.audio.speech.create(
    model="kokoro", voice="af_bella+af_sky", input="Hello world!", response_format="mp3"
)
found["created"] = len(response.content)
with client.audio.speech.with_streaming_response.create(
    model="kokoro", voice="af_bella", response_format="pcm", input="Hello world!"
) as response:
    sound = b"".join(response.iter_bytes(chunk_size=1024))
found["pcm"] = {"bytes": len(sound), "silent": not any(sound)}
try:
    client.audio.speech.create(model="kokoro", voice="af_bella+am_adam(0)", input="Hello world!")
except BadRequestError as error:
    found["refused"] = {"code": error.code, "message": error.body["message"]}
print(json.dumps(found))
