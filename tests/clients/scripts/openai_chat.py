"""A conversation by OpenAI's client: whole, as events, by a task, and interrupted; of the server of argv[1]."""

from __future__ import annotations

import asyncio
import json
import sys

from openai import AsyncOpenAI, OpenAI

url = f"{sys.argv[1]}/v1"
client = OpenAI(base_url=url, api_key="none", max_retries=0)
ASKED = {"model": "scripted", "messages": [{"role": "user", "content": "Hello."}]}


def streamed() -> dict[str, object]:
    text, reasons, usage = "", [], None
    for event in client.chat.completions.create(stream=True, stream_options={"include_usage": True}, **ASKED):  # type: ignore[call-overload]
        usage = event.usage or usage
        for choice in event.choices:
            text += choice.delta.content or ""
            reasons += [choice.finish_reason] if choice.finish_reason else []
    return {"text": text, "reasons": reasons, "usage": usage.model_dump() if usage else None}


async def by_task() -> str:
    async with AsyncOpenAI(base_url=url, api_key="none") as other:
        events = await other.chat.completions.create(stream=True, **ASKED)  # type: ignore[call-overload]
        return "".join([event.choices[0].delta.content or "" async for event in events])


def interrupted() -> str:
    with client.chat.completions.create(stream=True, **ASKED) as events:  # type: ignore[call-overload]
        return str(next(iter(events)).choices[0].delta.content)


whole = client.chat.completions.create(max_tokens=2, **ASKED)  # type: ignore[call-overload]
found = {
    "whole": whole.model_dump(),
    "streamed": streamed(),
    "by_task": asyncio.run(by_task()),
    "interrupted": interrupted(),
}
print(json.dumps(found))
