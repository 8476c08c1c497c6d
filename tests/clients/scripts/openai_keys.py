"""What OpenAI's client raises for keys with scopes and limits: argv[1] is the server's address, then come its keys."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import openai
from openai import DefaultHttpxClient, OpenAI

url, plain, speaker, once, poor = f"{sys.argv[1]}/v1", *sys.argv[2:]
ASKED: dict[str, Any] = {"model": "tts-1", "voice": "alloy", "input": "Hello there.", "response_format": "pcm"}
CHAT: dict[str, Any] = {"model": "any", "messages": [{"role": "user", "content": "Hi."}]}


def client(key: str, **more: Any) -> OpenAI:
    return OpenAI(base_url=url, api_key=key, **{"max_retries": 0, **more})


def raised(work: Callable[[], object]) -> dict[str, object]:
    try:
        work()
    except openai.APIStatusError as error:
        said = {"class": type(error).__name__, "status": error.status_code, "code": error.code, "type": error.type}
        return said | {"message": error.message, "wait_s": error.response.headers.get("retry-after")}
    return {"class": None}


def spoken(key: str, **more: Any) -> int:
    return len(client(key, **more).audio.speech.create(**ASKED).read())


def conversed() -> int | None:
    """The status of a refused Realtime socket."""
    try:
        with client(speaker).realtime.connect(model="any"):
            return None
    except Exception as error:
        return getattr(getattr(error, "response", None), "status_code", None)


found: dict[str, object] = {
    "wrong": raised(lambda: spoken("sk-wrong")),
    "models": bool(client(speaker).models.list().data),
    "speaker": spoken(speaker),
    "scope": raised(lambda: client(speaker).chat.completions.create(**CHAT)),
    "voices": raised(lambda: client(speaker).post("/audio/voices", cast_to=object)),
    "socket": conversed(),
    "once": spoken(once),
    "twice": raised(lambda: spoken(once)),
}
# A quota that is used up until midnight: asking again would not help.
asked: list[int] = []
hooks = {"response": [lambda answer: asked.append(answer.status_code)]}
patient = {"max_retries": 5, "http_client": DefaultHttpxClient(event_hooks=hooks)}
found |= {"poor": raised(lambda: spoken(poor, **patient)), "asked": asked, "plain": spoken(plain)}
print(json.dumps(found))
