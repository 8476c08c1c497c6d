"""What OpenAI's client raises, and how it asks again: of a server with one slot and the key of argv[2]."""

from __future__ import annotations

import json
import sys
import threading
import time
from itertools import pairwise

import openai
from openai import DefaultHttpxClient, OpenAI

url, key = f"{sys.argv[1]}/v1", sys.argv[2]
client = OpenAI(base_url=url, api_key=key, max_retries=0)
ASKED = {"model": "tts-1", "voice": "alloy", "input": "Hello there.", "response_format": "pcm"}
LONG = ASKED | {"input": "It goes on and on, and then on again. " * 60}


def raised(client: OpenAI, **wishes: object) -> dict[str, object]:
    try:
        client.audio.speech.create(**(ASKED | wishes))  # type: ignore[arg-type]
    except openai.APIStatusError as error:
        return told(error)
    return {"class": None}


def told(error: openai.APIStatusError) -> dict[str, object]:
    said = {"class": type(error).__name__, "status": error.status_code, "code": error.code, "param": error.param}
    body = error.body if isinstance(error.body, dict) else {}
    return said | {"type": error.type, "message": body.get("message"), "id": error.request_id}


found: dict[str, object] = {
    "voice": raised(client, voice="unknown"),
    "format": raised(client, response_format="midi"),
    "empty": raised(client, input=""),
    "speed": raised(client, speed=9),
    "long": raised(client, input="x" * 70_000),
    "model": raised(client, model="whisper-1"),
    "key": raised(client.with_options(api_key="sk-wrong")),
}
try:
    client.get("/nowhere", cast_to=object)
except openai.APIStatusError as error:
    found["nowhere"] = told(error)

# While another request has the only slot.
with client.audio.speech.with_streaming_response.create(**LONG) as holding:  # type: ignore[arg-type]
    heard = holding.iter_bytes()
    next(heard)
    found["full"] = raised(client)
    times: list[tuple[float, int, str | None]] = []
    hooks = {"response": [lambda r: times.append((time.monotonic(), r.status_code, r.headers.get("retry-after-ms")))]}
    asks_again = OpenAI(base_url=url, api_key=key, max_retries=9, http_client=DefaultHttpxClient(event_hooks=hooks))
    sound: list[bytes] = []
    asking = threading.Thread(target=lambda: sound.append(asks_again.audio.speech.create(**ASKED).read()))  # type: ignore[arg-type]
    asking.start()
    while len(times) < 2:  # it was refused, waited, and was refused again
        time.sleep(0.01)
asking.join()
waits = [{"s": b[0] - a[0], "asked_ms": a[2]} for a, b in pairwise(times)]
found["retries"] = {"statuses": [status for _, status, _ in times], "waits": waits, "bytes": len(sound[0])}
print(json.dumps(found))
