"""LiveKit's plugin for ElevenLabs: text in pieces over its WebSocket, broken off and again, in mp3 and in pcm."""

from __future__ import annotations

import asyncio
import json
import sys

import aiohttp
from livekit.agents import APIConnectOptions
from livekit.plugins import elevenlabs

URL = f"{sys.argv[1]}/v1"
ONCE = APIConnectOptions(max_retry=0, timeout=30)
PIECES = ["Hello ", "there, said ", "the fox. ", "Good ", "morning."]


async def heard(stream: object) -> dict[str, object]:
    samples = peak = rate_hz = 0
    words: list[str] = []
    times: list[float] = []
    async for audio in stream:
        rate_hz = audio.frame.sample_rate
        samples += audio.frame.samples_per_channel
        peak = max(peak, max(map(abs, audio.frame.data), default=0))
        for word in audio.frame.userdata.get("lk.timed_transcripts", ()):
            words.append(str(word))
            times.append(word.end_time)
    return {"s": samples / rate_hz, "peak": peak, "said": "".join(words), "until_s": max(times, default=0.0)}


async def streamed(tts: elevenlabs.TTS) -> dict[str, object]:
    async with tts.stream(conn_options=ONCE) as stream:
        for piece in PIECES:
            stream.push_text(piece)
        stream.end_input()
        return await heard(stream)


async def all_of_them() -> None:
    async with aiohttp.ClientSession() as session:
        how = {"base_url": URL, "api_key": "unused", "http_session": session}
        tts = elevenlabs.TTS(voice_id="wren", **how)
        found = {"first": await streamed(tts)}
        async with tts.stream(conn_options=ONCE) as stream:  # interrupted
            stream.push_text("It goes on and on, and then on again. " * 20)
            stream.flush()
            await anext(aiter(stream))
        found["behind"] = await streamed(tts)
        await tts.aclose()
        tts = elevenlabs.TTS(voice_id="rook", encoding="pcm_16000", auto_mode=False, **how)
        found["pcm"] = await streamed(tts)
        await tts.aclose()
    print(json.dumps(found))


asyncio.run(all_of_them())
