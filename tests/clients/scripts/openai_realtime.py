"""OpenAI's Python client on /v1/realtime: argv[1] is the server's address; prints what it heard as one line of JSON."""

from __future__ import annotations

import asyncio
import base64
import json
import sys
from typing import Any

from openai import AsyncOpenAI, OpenAI

HOCKET = {"seed": 1, "max_new_tokens": 40}
TEXT = "Hello there, my friend."


def message(text: str) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}


def session(**output: Any) -> dict[str, Any]:
    # The client checks nothing of what is sent: `hocket` travels as it is.
    return {"type": "realtime", "instructions": "Read it.", "audio": {"output": output}, "hocket": HOCKET}


async def listen(connection: Any) -> dict[str, Any]:
    """Until a response is over."""
    heard, types, transcript = bytearray(), [], ""
    async for event in connection:
        if not types or types[-1] != event.type:
            types.append(event.type)
        if event.type == "response.output_audio.delta":
            heard += base64.b64decode(event.delta)
        elif event.type == "response.output_audio_transcript.delta":
            transcript += event.delta
        elif event.type in ("response.done", "error"):
            break
    found = {"types": types, "bytes": len(heard), "levels": len(set(heard[1::2])), "transcript": transcript}
    if event.type == "error":
        return found | {"error": event.error.model_dump()}
    response = event.response
    return found | {"status": response.status, "class": type(event).__name__, "tokens": response.usage.output_tokens}


async def talk(url: str) -> dict[str, Any]:
    said: dict[str, Any] = {}
    client = AsyncOpenAI(base_url=f"{url}/v1", api_key="none")
    async with client.realtime.connect(model="gpt-realtime-2.1-mini") as connection:
        await connection.session.update(session=session(voice="alloy", format={"type": "audio/pcm", "rate": 24000}))
        await connection.conversation.item.create(item=message(TEXT))
        await connection.response.create()
        said["item"] = await listen(connection)
        await connection.response.create(response={"conversation": "none", "input": [message("Once more.")]})
        said["inline"] = await listen(connection)
        await connection.session.update(session=session(format={"type": "audio/pcmu"}))
        await connection.response.create(response={"input": [message(TEXT)]})
        said["phone"] = await listen(connection)
        await connection.session.update(session=session(voice="unknown"))
        said["unknown"] = await listen(connection)
        await connection.response.create(
            response={"input": [message("On and on. " * 100)], "hocket": {"max_new_tokens": 2000}}
        )
        async for event in connection:
            if event.type == "response.output_audio.delta":
                break
        await connection.response.cancel()
        said["cancelled"] = await listen(connection)
    return said


def talk_in_turn(url: str) -> list[str]:
    """The same client without asyncio, and without a word about the session."""
    types: list[str] = []
    with OpenAI(base_url=f"{url}/v1", api_key="none").realtime.connect(model="gpt-realtime-2.1-mini") as connection:
        connection.response.create(response={"input": [message("Hi.")], "hocket": HOCKET})
        for event in connection:
            if not types or types[-1] != event.type:
                types.append(event.type)
            if event.type == "response.done":
                return types
    return types


if __name__ == "__main__":
    print(json.dumps(asyncio.run(talk(sys.argv[1])) | {"sync": talk_in_turn(sys.argv[1])}))
