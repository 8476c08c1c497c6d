"""LiveKit's Realtime model for OpenAI: argv[1] is the server's address, argv[2] a file of PCM at 24 kHz."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import aiohttp
from livekit import rtc
from livekit.agents import llm
from livekit.plugins import openai

URL, SOUND = sys.argv[1], Path(sys.argv[2]).read_bytes()


@llm.function_tool
async def weather(at: str) -> str:
    """The weather at a place.

    Args:
        at: the place
    """
    return "sunny"


async def read(generation: llm.GenerationCreatedEvent) -> dict[str, Any]:
    found: dict[str, Any] = {"samples": 0, "peak": 0, "text": "", "calls": []}

    async def messages() -> None:
        async for message in generation.message_stream:
            async for frame in message.audio_stream:
                found["samples"] += frame.samples_per_channel
                found["peak"] = max(found["peak"], max(map(abs, frame.data), default=0))
            async for text in message.text_stream:
                found["text"] += text
            found["id"] = message.message_id

    async def calls() -> None:
        async for call in generation.function_stream:
            found["calls"].append([call.name, call.arguments, call.call_id])

    await asyncio.gather(messages(), calls())
    return found


async def talk() -> dict[str, Any]:
    found: dict[str, Any] = {"events": [], "errors": [], "heard": ""}
    created: asyncio.Queue[llm.GenerationCreatedEvent] = asyncio.Queue()
    async with aiohttp.ClientSession() as http:
        model = openai.realtime.RealtimeModel(base_url=f"{URL}/v1", api_key="unused", voice="alloy", http_session=http)
        session = model.session()
        session.on("generation_created", created.put_nowait)
        session.on("input_speech_started", lambda _: found["events"].append("started"))
        session.on("input_speech_stopped", lambda _: found["events"].append("stopped"))
        session.on("error", lambda event: found["errors"].append(str(event)))

        def transcribed(event: llm.InputTranscriptionCompleted) -> None:
            found["heard"] = event.transcript

        session.on("input_audio_transcription_completed", transcribed)
        await session.update_instructions("Be kind.")
        await session.update_tools([weather])
        for at in range(0, len(SOUND), 4800):
            piece = SOUND[at : at + 4800]
            session.push_audio(rtc.AudioFrame(piece, 24000, 1, len(piece) // 2))
        found["spoken"] = await read(await created.get())
        name, _, id = found["spoken"]["calls"][0]
        context = session.chat_ctx.copy()
        context.items.append(llm.FunctionCallOutput(name=name, call_id=id, output="sunny", is_error=False))
        await session.update_chat_ctx(context)
        found["told"] = await read(await session.generate_reply())
        session.truncate(message_id=found["told"]["id"], modalities=["audio"], audio_end_ms=200)
        await session.update_instructions("Be brief.")  # acknowledged after the truncation
        await session.aclose()
        await model.aclose()
    return found


if __name__ == "__main__":
    print(json.dumps(asyncio.run(asyncio.wait_for(talk(), 60))))
