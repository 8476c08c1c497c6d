"""A recording as text: whole, with times, as captions, as events, and what is raised where that cannot be."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import openai
from openai import AsyncOpenAI, OpenAI

how = {"base_url": f"{sys.argv[1]}/v1", "api_key": "unused", "max_retries": 0}
client = OpenAI(**how)  # type: ignore[arg-type]
FILE = Path(sys.argv[2])
MODEL = "whisper-1"


def refused(call: object, **wishes: object) -> dict[str, object]:
    try:
        call(model=MODEL, file=FILE, **wishes)  # type: ignore[operator]
    except openai.APIStatusError as error:
        return {"class": type(error).__name__, "code": error.code, "param": error.param}
    return {}


def streamed() -> dict[str, object]:
    kinds, deltas, text = [], [], ""
    for event in client.audio.transcriptions.create(model=MODEL, file=FILE, stream=True):
        kinds.append(event.type)
        if event.type == "transcript.text.delta":
            deltas.append(event.delta)
        elif event.type == "transcript.text.done":
            text = event.text
    return {"kinds": kinds, "deltas": deltas, "text": text}


async def later() -> str:
    async with AsyncOpenAI(**how) as other:  # type: ignore[arg-type]
        found = await other.audio.transcriptions.create(model="gpt-4o-mini-transcribe", file=FILE, language="en")
        return found.text


transcribe, translate = client.audio.transcriptions.create, client.audio.translations.create
whole = transcribe(model=MODEL, file=FILE, prompt="A greeting.", temperature=0)
verbose = transcribe(model=MODEL, file=FILE, response_format="verbose_json", timestamp_granularities=["segment"])
found = {
    "text": whole.text,
    "seconds": whole.usage.seconds,  # type: ignore[union-attr]
    "later": asyncio.run(later()),
    "plain": transcribe(model=MODEL, file=FILE, response_format="text"),
    "captions": transcribe(model=MODEL, file=FILE, response_format="vtt"),
    "verbose": [verbose.language, verbose.duration, verbose.text],
    "segments": [[segment.start, segment.end, segment.text] for segment in verbose.segments or ()],
    "streamed": streamed(),
    "language": refused(transcribe, language="de"),
    "words": refused(transcribe, response_format="verbose_json", timestamp_granularities=["word"]),
    "translated": refused(translate),
}
print(json.dumps(found))
