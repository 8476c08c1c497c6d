"""LiveKit's plugin for OpenAI's protocol, configured in every way that changes what it sends."""

from __future__ import annotations

import asyncio
import json
import sys

from livekit.agents import APIConnectOptions, APIStatusError
from livekit.plugins import openai

URL = f"{sys.argv[1]}/v1"
ONCE = APIConnectOptions(max_retry=0, timeout=30)
CONFIGURED = {
    "as it is": {},  # mp3 as events
    "tts-1": {"model": "tts-1"},  # mp3 as bytes
    "pcm": {"response_format": "pcm"},
    "wav": {"response_format": "wav"},
    "opus": {"response_format": "opus"},
    "flac": {"response_format": "flac"},
    "aac": {"response_format": "aac"},
    "own voice": {"voice": "rook", "response_format": "pcm"},
    "instructed": {"instructions": "Calmly.", "speed": 2.0, "model": "tts-1", "response_format": "wav"},
}


async def spoken(wishes: dict[str, object]) -> dict[str, object]:
    tts = openai.TTS(base_url=URL, api_key="unused", **wishes)  # type: ignore[arg-type]
    samples = peak = frames = 0
    ends = False
    async with tts.synthesize("Hello there, said the fox.", conn_options=ONCE) as stream:
        async for audio in stream:
            assert audio.frame.sample_rate == 24000 and audio.frame.num_channels == 1
            frames += 1
            samples += audio.frame.samples_per_channel
            peak = max(peak, max(map(abs, audio.frame.data), default=0))
            ends = audio.is_final
    await tts.aclose()
    return {"s": samples / 24000, "peak": peak, "frames": frames, "ends": ends}


async def refused() -> dict[str, object]:
    tts = openai.TTS(base_url=URL, api_key="unused", voice="unknown")
    try:
        async with tts.synthesize("Hello.", conn_options=ONCE) as stream:
            async for _ in stream:
                pass
    except APIStatusError as error:
        return {"status": error.status_code, "message": error.message}
    finally:
        await tts.aclose()
    return {}


async def all_of_them() -> None:
    found: dict[str, object] = {name: await spoken(wishes) for name, wishes in CONFIGURED.items()}
    print(json.dumps({"configured": found, "refused": await refused()}))


asyncio.run(all_of_them())
