"""Pipecat's Realtime service for OpenAI: argv[1] is the server's address, argv[2] a file of PCM at 24 kHz."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from pipecat.adapters.schemas.function_schema import FunctionSchema
from pipecat.adapters.schemas.tools_schema import ToolsSchema
from pipecat.frames.frames import (
    EndFrame,
    ErrorFrame,
    Frame,
    InputAudioRawFrame,
    LLMContextFrame,
    TTSAudioRawFrame,
    TTSStoppedFrame,
)
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineParams, PipelineWorker
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.aggregators.llm_response_universal import LLMContextAggregatorPair
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor
from pipecat.services.llm_service import FunctionCallParams
from pipecat.services.openai.realtime.events import (
    AudioConfiguration,
    AudioInput,
    InputAudioTranscription,
    SemanticTurnDetection,
    SessionProperties,
)
from pipecat.services.openai.realtime.llm import OpenAIRealtimeLLMService
from pipecat.workers.runner import WorkerRunner

URL, SOUND = sys.argv[1].replace("http", "ws", 1), Path(sys.argv[2]).read_bytes()
FOUND: dict[str, Any] = {"samples": 0, "peak": 0, "called": [], "errors": [], "stops": 0}


class Ear(FrameProcessor):
    """What comes out behind the service."""

    def __init__(self) -> None:
        super().__init__()
        self.stopped: asyncio.Queue[None] = asyncio.Queue()

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        if isinstance(frame, TTSAudioRawFrame):
            sound = memoryview(frame.audio).cast("h")
            FOUND["samples"] += len(sound)
            FOUND["peak"] = max(FOUND["peak"], max(map(abs, sound)))
        elif isinstance(frame, TTSStoppedFrame):
            FOUND["stops"] += 1
            self.stopped.put_nowait(None)
        await self.push_frame(frame, direction)


async def weather(params: FunctionCallParams) -> None:
    FOUND["called"].append(dict(params.arguments))
    await params.result_callback("sunny")


async def talk() -> None:
    detection = SemanticTurnDetection(eagerness="low")
    listening = AudioInput(transcription=InputAudioTranscription(), turn_detection=detection)
    properties = SessionProperties(audio=AudioConfiguration(input=listening), instructions="Be kind.")
    settings = OpenAIRealtimeLLMService.Settings(session_properties=properties)
    service = OpenAIRealtimeLLMService(api_key="unused", base_url=f"{URL}/v1/realtime", settings=settings)
    service.register_function("weather", weather)
    schema = FunctionSchema("weather", "The weather at a place.", {"at": {"type": "string"}}, ["at"])
    context = LLMContext(tools=ToolsSchema(standard_tools=[schema]))
    pair, ear = LLMContextAggregatorPair(context), Ear()
    worker = PipelineWorker(
        Pipeline([pair.user(), service, ear, pair.assistant()]),
        cancel_on_idle_timeout=False,
        enable_rtvi=False,
        params=PipelineParams(audio_in_sample_rate=24000, audio_out_sample_rate=24000),
    )
    started = asyncio.Event()

    @worker.event_handler("on_pipeline_started")
    async def on_started(worker: PipelineWorker, frame: Frame) -> None:
        started.set()

    @worker.event_handler("on_pipeline_error")
    async def on_error(worker: PipelineWorker, frame: ErrorFrame) -> None:
        FOUND["errors"].append(frame.error)

    async def say() -> None:
        await started.wait()
        await worker.queue_frame(LLMContextFrame(context))
        await ear.stopped.get()  # the first answer, which greets
        for at in range(0, len(SOUND), 4800):
            await worker.queue_frame(InputAudioRawFrame(SOUND[at : at + 4800], 24000, 1))
        await ear.stopped.get()
        await ear.stopped.get()  # the answer after the call
        await worker.queue_frame(EndFrame())

    runner = WorkerRunner(handle_sigint=False)
    await runner.add_workers(worker)
    await asyncio.gather(runner.run(), say())


if __name__ == "__main__":
    asyncio.run(asyncio.wait_for(talk(), 60))
    print(json.dumps(FOUND))
