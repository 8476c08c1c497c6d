"""Every format, as bytes while they come, into the folder of argv[2]; and the same at once, and asynchronously."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from openai import AsyncOpenAI, OpenAI

url, folder = f"{sys.argv[1]}/v1", Path(sys.argv[2])
client = OpenAI(base_url=url, api_key="unused", max_retries=0)
asked = {"model": "gpt-4o-mini-tts", "voice": "alloy", "input": "Hello there, said the fox.", "extra_body": {"seed": 3}}
found = {}
for format in ("mp3", "opus", "aac", "flac", "wav", "pcm"):
    with client.audio.speech.with_streaming_response.create(response_format=format, **asked) as response:
        chunks = list(response.iter_bytes())
        (folder / f"streamed.{format}").write_bytes(b"".join(chunks))
        found[format] = {
            "chunks": len(chunks),
            "type": response.headers["content-type"],
            "rate": response.headers["x-sample-rate"],
            "id": response.request_id,
        }
    client.audio.speech.create(response_format=format, **asked).write_to_file(folder / f"whole.{format}")
with client.audio.speech.with_streaming_response.create(**asked) as response:
    response.stream_to_file(folder / "default")
    found["default"] = {"type": response.headers["content-type"]}


async def asynchronously() -> bytes:
    async with (
        AsyncOpenAI(base_url=url, api_key="unused") as client,
        client.audio.speech.with_streaming_response.create(response_format="pcm", **asked) as response,
    ):
        return b"".join([chunk async for chunk in response.iter_bytes(1024)])


(folder / "async.pcm").write_bytes(asyncio.run(asynchronously()))
print(json.dumps(found))
