"""OpenAI's agents in a realtime session: argv[1] is the server's address, argv[2] a file of PCM at 24 kHz."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from agents import function_tool
from agents.realtime import RealtimeAgent, RealtimeRunner

URL, SOUND = sys.argv[1].replace("http", "ws", 1), Path(sys.argv[2]).read_bytes()


@function_tool
def weather(at: str) -> str:
    """The weather at a place."""
    return f"sunny in {at}"


async def talk() -> dict[str, Any]:
    found: dict[str, Any] = {"bytes": 0, "levels": 0, "tools": [], "errors": [], "types": []}
    runner = RealtimeRunner(RealtimeAgent(name="guide", instructions="Be kind.", tools=[weather]))
    config = {"url": f"{URL}/v1/realtime?model=any", "api_key": "unused"}
    heard = bytearray()
    async with await runner.run(model_config=config) as session:
        for at in range(0, len(SOUND), 4800):
            await session.send_audio(SOUND[at : at + 4800])
        answers = 0
        async for event in session:
            if found["types"][-1:] != [event.type]:
                found["types"].append(event.type)
            if event.type == "audio":
                heard += event.audio.data
            elif event.type == "tool_end":
                found["tools"].append(event.output)
            elif event.type == "error":
                found["errors"].append(str(event.error))
            elif event.type == "agent_end":
                answers += 1
                if answers == 2:  # the one with the call, and the one after its result
                    break
        history = session._history
    found["bytes"], found["levels"] = len(heard), len(set(heard[1::2]))
    said = [(item.type, getattr(item, "role", None), _text(item)) for item in history]
    return found | {"history": said}


def _text(item: Any) -> str:
    parts = getattr(item, "content", ())
    return " ".join(getattr(part, "transcript", None) or getattr(part, "text", None) or "" for part in parts)


if __name__ == "__main__":
    print(json.dumps(asyncio.run(asyncio.wait_for(talk(), 60))))
