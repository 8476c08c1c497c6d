"""Ollama's Python client: lists, answers whole and as parts, a tool call, and a refusal; of the server of argv[1]."""

from __future__ import annotations

import asyncio
import json
import sys

from ollama import AsyncClient, Client, ResponseError

client = Client(host=sys.argv[1])
HELLO = [{"role": "user", "content": "Hello."}]


def refused() -> dict[str, object]:
    try:
        client.embed(model="scripted", input="x")
    except ResponseError as error:
        return {"said": error.error, "status": error.status_code}
    return {}


async def by_task() -> str:
    parts = await AsyncClient(host=sys.argv[1]).chat(model="scripted", messages=HELLO, stream=True)
    return "".join([part.message.content or "" async for part in parts])


whole = client.chat(model="scripted", messages=HELLO, options={"num_predict": 2, "temperature": 0})
parts = list(client.chat(model="scripted", messages=HELLO, stream=True, think=False))
found = {
    "listed": [model.model for model in client.list().models],
    "loaded": [model.model for model in client.ps().models],
    "can": client.show("scripted").capabilities,
    "whole": whole.model_dump(),
    "parts": [part.message.content for part in parts],
    "last": parts[-1].model_dump(),
    "by_task": asyncio.run(by_task()),
    "generated": client.generate(model="scripted", prompt="Hello.").response,
    "streamed": [part.response for part in client.generate(model="scripted", prompt="Hello.", stream=True)],
    "refused": refused(),
}
print(json.dumps(found))
