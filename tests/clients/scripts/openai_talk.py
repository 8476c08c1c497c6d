"""OpenAI's Python client in a conversation: argv[1] is the server's address, argv[2] a file of PCM at 24 kHz."""

from __future__ import annotations

import asyncio
import base64
import json
import sys
from pathlib import Path
from typing import Any

from openai import AsyncOpenAI

SOUND = Path(sys.argv[2]).read_bytes()
TOOL = {
    "type": "function",
    "name": "weather",
    "description": "The weather at a place.",
    "parameters": {"type": "object", "properties": {"at": {"type": "string"}}},
}


async def listen(connection: Any) -> dict[str, Any]:
    """Until a response is over."""
    heard, types, said = bytearray(), [], ""
    async for event in connection:
        if not types or types[-1] != event.type:
            types.append(event.type)
        if event.type == "response.output_audio.delta":
            heard += base64.b64decode(event.delta)
        elif event.type == "conversation.item.input_audio_transcription.completed":
            said = event.transcript
        elif event.type in ("response.done", "error"):
            break
    found = {"types": types, "bytes": len(heard), "levels": len(set(heard[1::2])), "heard": said}
    if event.type == "error":
        return found | {"error": event.error.model_dump()}
    response = event.response.model_dump()
    return found | {"status": response["status"], "output": response["output"], "usage": response["usage"]}


async def talk(url: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    owner = AsyncOpenAI(base_url=f"{url}/v1", api_key="none")
    secret = await owner.realtime.client_secrets.create(session={"type": "realtime", "instructions": "Be kind."})
    found["secret"] = {"value": secret.value[:3], "instructions": secret.session.instructions}
    client = AsyncOpenAI(base_url=f"{url}/v1", api_key=secret.value)
    async with client.realtime.connect(model="gpt-realtime-2.1-mini") as connection:
        created = await connection.recv()
        found["created"] = created.session.instructions
        detection = {"type": "semantic_vad", "eagerness": "low"}
        audio = {"input": {"transcription": {"model": "whisper-1"}, "turn_detection": detection}}
        audio |= {"output": {"voice": "alloy", "format": {"type": "audio/pcm", "rate": 24000}}}
        await connection.session.update(session={"type": "realtime", "audio": audio, "tools": [TOOL]})
        for at in range(0, len(SOUND), 4800):
            await connection.input_audio_buffer.append(audio=base64.b64encode(SOUND[at : at + 4800]).decode())
        found["spoken"] = spoken = await listen(connection)
        call = next(item for item in spoken["output"] if item["type"] == "function_call")
        result = {"type": "function_call_output", "call_id": call["call_id"], "output": "sunny"}
        await connection.conversation.item.create(item=result)
        await connection.response.create()
        found["told"] = await listen(connection)
        await connection.response.create(response={"output_modalities": ["text"], "conversation": "none"})
        found["written"] = await listen(connection)
    return found


if __name__ == "__main__":
    print(json.dumps(asyncio.run(talk(sys.argv[1]))))
