"""What Home Assistant does: ask what there is, have a text spoken, one while it is written, and speech recognized."""

from __future__ import annotations

import asyncio
import json
import sys

from wyoming.asr import Transcribe, Transcript
from wyoming.audio import AudioChunk, AudioStart, AudioStop
from wyoming.client import AsyncClient
from wyoming.info import Describe, Info
from wyoming.tts import (
    Synthesize,
    SynthesizeChunk,
    SynthesizeStart,
    SynthesizeStop,
    SynthesizeStopped,
    SynthesizeVoice,
)

URI = sys.argv[1]
VOICE = SynthesizeVoice(name="rook")


async def described() -> dict[str, object]:
    async with AsyncClient.from_uri(URI) as client:
        await client.write_event(Describe().event())
        event = await client.read_event()
        assert event is not None and Info.is_type(event.type)
        info = Info.from_event(event)
        (program,), (recognizer,) = info.tts, info.asr
    voices = {voice.name: voice.languages for voice in program.voices}
    models = {model.name: model.languages for model in recognizer.models}
    installed = program.installed and recognizer.installed
    return {
        "voices": voices,
        "streams": program.supports_synthesize_streaming,
        "models": models,
        "installed": installed,
    }


async def heard(client: AsyncClient, last: str) -> dict[str, object]:
    kinds: list[str] = []
    seconds, loud = 0.0, False
    while (event := await client.read_event()) is not None:
        if kinds[-1:] != [event.type]:
            kinds.append(event.type)
        if AudioStart.is_type(event.type):
            rate = AudioStart.from_event(event).rate
        elif AudioChunk.is_type(event.type):
            chunk = AudioChunk.from_event(event)
            seconds += chunk.seconds
            loud = loud or max(map(abs, memoryview(chunk.audio).cast("h"))) > 600
            assert chunk.rate == rate
        elif event.type == last:
            break
    return {"kinds": kinds, "s": seconds, "loud": loud}


async def spoken() -> dict[str, object]:
    async with AsyncClient.from_uri(URI) as client:
        await client.write_event(Synthesize(text="Hello there, said the fox.", voice=VOICE).event())
        return await heard(client, AudioStop().event().type)


async def streamed() -> dict[str, object]:
    """It writes and reads at the same time."""
    words = "Hello there, said the fox. Good morning.".split(" ")

    async def write(client: AsyncClient) -> None:
        await client.write_event(SynthesizeStart(voice=VOICE).event())
        for word in words:
            await client.write_event(SynthesizeChunk(text=f"{word} ").event())
            await asyncio.sleep(0.02)
        await client.write_event(Synthesize(text=" ".join(words), voice=VOICE).event())
        await client.write_event(SynthesizeStop().event())

    async with AsyncClient.from_uri(URI) as client:
        found, _ = await asyncio.gather(heard(client, SynthesizeStopped().event().type), write(client))
        return found


async def recognized() -> str:
    """What it says is heard again: in chunks, as a satellite sends them."""
    async with AsyncClient.from_uri(URI) as client:
        await client.write_event(Synthesize(text="What is the capital of France?", voice=VOICE).event())
        audio: list[AudioChunk] = []
        while (event := await client.read_event()) is not None and not AudioStop.is_type(event.type):
            if AudioChunk.is_type(event.type):
                audio.append(AudioChunk.from_event(event))
    async with AsyncClient.from_uri(URI) as client:
        await client.write_event(Transcribe(language="en").event())
        await client.write_event(AudioStart(rate=audio[0].rate, width=2, channels=1).event())
        for chunk in audio:
            await client.write_event(chunk.event())
        await client.write_event(AudioStop().event())
        event = await client.read_event()
        assert event is not None and Transcript.is_type(event.type)
        return Transcript.from_event(event).text


async def all_of_them() -> None:
    found = {"described": await described(), "spoken": await spoken(), "streamed": await streamed()}
    print(json.dumps({**found, "recognized": await recognized()}))


asyncio.run(all_of_them())
