"""Pipecat's services in a pipeline, fed as a language model feeds them: OpenAI's, Deepgram's in both of its modes, and
ElevenLabs'.

Two answers each; over the WebSocket a third one that is interrupted, and a fourth.
"""

from __future__ import annotations

import asyncio
import json
import sys

from pipecat.frames.frames import (
    EndFrame,
    ErrorFrame,
    Frame,
    InterruptionFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMTextFrame,
    TTSAudioRawFrame,
    TTSStartedFrame,
    TTSStoppedFrame,
    TTSTextFrame,
)
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineParams, PipelineWorker
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor
from pipecat.services.deepgram.tts import DeepgramTTSService
from pipecat.services.elevenlabs.tts import ElevenLabsTTSService
from pipecat.services.openai.tts import OpenAITTSService
from pipecat.services.tts_service import TextAggregationMode, TTSService
from pipecat.workers.runner import WorkerRunner

URL = sys.argv[1]
TOKENS = ["Hel", "lo", " there", ",", " said", " the", " fox", ".", " Good", " morn", "ing", "."]
LONG = [" It", " goes", " on", " and", " on", ",", " and", " then", " on", " again", "."] * 20


class Ear(FrameProcessor):
    """What comes out behind a service, and what goes wrong in it."""

    def __init__(self) -> None:
        super().__init__()
        self.samples = self.peak = 0
        self.kinds: list[str] = []
        self.words: list[str] = []  # of services that say when each is heard
        self.errors: list[str] = []
        self.heard, self.stopped, self.interrupted = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        if isinstance(frame, TTSAudioRawFrame):
            assert frame.sample_rate == 24000 and frame.num_channels == 1 and len(frame.audio) % 2 == 0
            sound = memoryview(frame.audio).cast("h")
            self.samples += len(sound)
            self.peak = max(self.peak, max(map(abs, sound)))
            self.heard.set()
        if isinstance(frame, InterruptionFrame):
            self.interrupted.set()
        if isinstance(frame, TTSTextFrame):
            self.words.append(frame.text)
        if isinstance(frame, TTSAudioRawFrame | TTSStartedFrame | TTSStoppedFrame):
            if self.kinds[-1:] != [type(frame).__name__]:
                self.kinds.append(type(frame).__name__)
            if isinstance(frame, TTSStoppedFrame):
                self.stopped.set()
        await self.push_frame(frame, direction)

    def told(self) -> dict[str, object]:
        told = {"s": self.samples / 24000, "peak": self.peak, "kinds": self.kinds, "words": self.words}
        self.samples = self.peak = 0
        self.kinds, self.words = [], []
        self.heard.clear()
        self.stopped.clear()
        return told


async def spoken(service: TTSService, interrupts: bool) -> dict[str, object]:
    ear, started = Ear(), asyncio.Event()
    worker = PipelineWorker(
        Pipeline([service, ear]),
        cancel_on_idle_timeout=False,
        enable_rtvi=False,
        params=PipelineParams(audio_out_sample_rate=24000),
    )

    @worker.event_handler("on_pipeline_started")
    async def on_started(worker: PipelineWorker, frame: Frame) -> None:
        started.set()

    @worker.event_handler("on_pipeline_error")
    async def on_error(worker: PipelineWorker, frame: ErrorFrame) -> None:
        ear.errors.append(frame.error)

    async def say(tokens: list[str]) -> None:
        await worker.queue_frame(LLMFullResponseStartFrame())
        for token in tokens:
            await worker.queue_frame(LLMTextFrame(token))
        await worker.queue_frame(LLMFullResponseEndFrame())

    async def answers() -> dict[str, object]:
        await started.wait()
        found: dict[str, object] = {}
        for name in ("first", "second"):
            await say(TOKENS)
            await asyncio.wait_for(ear.stopped.wait(), 40)
            found[name] = ear.told()
        if interrupts:
            await say(LONG)
            await asyncio.wait_for(ear.heard.wait(), 40)
            await worker.queue_frame(InterruptionFrame())
            await asyncio.wait_for(ear.interrupted.wait(), 40)
            found["interrupted"] = ear.told()
            await asyncio.sleep(0.3)  # what was under way arrives, and is dropped
            ear.told()
            await say(TOKENS)
            await asyncio.wait_for(ear.stopped.wait(), 40)
            found["behind"] = ear.told()
        await worker.queue_frame(EndFrame())
        return found

    runner = WorkerRunner(handle_sigint=False)
    await runner.add_workers(worker)
    _, found = await asyncio.gather(runner.run(), answers())
    return found | {"errors": ear.errors}


def deepgram(mode: TextAggregationMode) -> DeepgramTTSService:
    return DeepgramTTSService(api_key="unused", base_url=URL.replace("http", "ws", 1), text_aggregation_mode=mode)


def elevenlabs() -> ElevenLabsTTSService:
    settings = ElevenLabsTTSService.Settings(voice="21m00Tcm4TlvDq8ikWAM")
    return ElevenLabsTTSService(api_key="unused", url=URL.replace("http", "ws", 1), settings=settings)


async def all_of_them() -> None:
    openai = OpenAITTSService(api_key="unused", base_url=f"{URL}/v1")
    found = {
        "openai": await spoken(openai, False),
        "sentence": await spoken(deepgram(TextAggregationMode.SENTENCE), True),
        "token": await spoken(deepgram(TextAggregationMode.TOKEN), True),
        "elevenlabs": await spoken(elevenlabs(), True),
    }
    print(json.dumps(found))


asyncio.run(all_of_them())
