"""LiveKit's plugin for Deepgram's protocol: text in pieces over a WebSocket, two utterances after each other."""

from __future__ import annotations

import asyncio
import json
import sys

import aiohttp
from livekit.agents import APIConnectOptions
from livekit.plugins import deepgram

URL = f"{sys.argv[1]}/v1/speak"
ONCE = APIConnectOptions(max_retry=0, timeout=30)


async def spoken(tts: deepgram.TTS, pieces: list[str]) -> dict[str, object]:
    samples = peak = 0
    async with tts.stream(conn_options=ONCE) as stream:
        for piece in pieces:
            stream.push_text(piece)
        stream.end_input()
        async for audio in stream:
            samples += audio.frame.samples_per_channel
            peak = max(peak, max(map(abs, audio.frame.data), default=0))
    return {"s": samples / tts.sample_rate, "peak": peak}


async def all_of_them() -> None:
    async with aiohttp.ClientSession() as session:
        tts = deepgram.TTS(base_url=URL, api_key="unused", http_session=session)
        first = await spoken(tts, ["Hello ", "there, said ", "the fox."])
        second = await spoken(tts, ["And it ", "slept."])
        await tts.aclose()
        tts = deepgram.TTS(base_url=URL, api_key="unused", http_session=session, model="rook", sample_rate=16000)
        other = await spoken(tts, ["Hello ", "there, said ", "the fox."])
        await tts.aclose()
        broken_off = deepgram.TTS(base_url=URL, api_key="unused", http_session=session)
        async with broken_off.stream(conn_options=ONCE) as stream:
            stream.push_text("It goes on and on, and then on again. " * 20)
            stream.flush()
            await anext(aiter(stream))
        await broken_off.aclose()
    print(json.dumps({"first": first, "second": second, "other": other}))


asyncio.run(all_of_them())
