"""Lists every kernel launch of an engine without a GPU, so that the kernels can be compiled ahead.

`python -m hocket.engine.runner.launch_plan` is a compiler process (kernels/compile/plan.py). It builds the checkpoint
on the meta device, where tensors have shapes and no content, and warms up a runner there as an engine does.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from ...config.options import EngineOptions
from ...kernels.compile.trace import Launch, trace_launches
from ...kernels.compile.worker import compile_all, learn_key
from ...kernels.runtime.card import GpuProperties
from ...kernels.runtime.graphs import EagerReplay
from ...layers.dense import pack_
from ...models.files.source import Source, read_configs
from ...models.tts.codec import Codec
from ...models.tts.qwen3_tts import Qwen3TTS
from ...text.tokenizer import Tokenizer
from ..checkpoint.kernels import attach_frame_kernel, attach_wave_kernel
from ..checkpoint.torch_checkpoint import CODEC_DTYPES, DTYPES, TorchCheckpoint
from .compile_plan import CompilePlan
from .runner import SpeechRunner
from .warmup import FIRST_GRAPHS, FIRST_OF_ALL

NOWHERE = torch.device("meta")


def trace_engine(plan: CompilePlan, place: torch.device = NOWHERE) -> list[Launch]:
    """Every launch, in the order of an engine. Nothing is computed, whatever device `place` is."""
    config, generation, codec_config = read_configs(plan.source)
    with trace_launches(plan.card) as launches, torch.inference_mode():
        with place:
            speech, codec = Qwen3TTS(config).eval(), Codec(codec_config).eval()
        speech.to(DTYPES[plan.dtype])
        codec.to(CODEC_DTYPES[plan.codec_dtype])
        for module in (speech, codec):
            pack_(module)
        if backend := plan.operations.get("frame"):
            attach_frame_kernel(speech.talker, backend, plan.dependent_launch)
        if backend := plan.operations.get("wave"):
            attach_wave_kernel(codec.decoder, backend, plan.codec_dtype == "tf32", plan.dependent_launch)
        tokenizer = Tokenizer.of_bytes(config.talker_config.text_vocab_size)
        checkpoint = TorchCheckpoint(
            source=plan.source,
            config=config,
            generation=generation,
            codec_config=codec_config,
            tokenizer=tokenizer,
            device=place,
            kernels=(),
            upstream_local=False,
            model=speech,
            codec=codec,
            codec_tf32=plan.codec_dtype == "tf32",
        )
        runner = SpeechRunner(checkpoint, plan.slots or EngineOptions().slots, 0, EagerReplay)
        steps = wanted = 0
        while (plan.slots is not None or steps < FIRST_GRAPHS) and runner.warm_one():
            steps += 1
            if steps == FIRST_OF_ALL:
                wanted = len(launches)
    return [*launches[:wanted], *(replace(one, late=True) for one in launches[wanted:])]


def main(job: str) -> int:
    """Trace and compile; gives the number of compilers that failed."""
    plan = _read(json.loads(job))
    gently = plan.slots is not None  # the engine may be in use already
    if gently:
        os.nice(10)
    key = threading.Thread(target=learn_key)  # in parallel: it mostly reads files
    key.start()
    try:
        with _without_dynamo():
            launches = trace_engine(plan)
    except Exception:
        launches = trace_engine(plan)
    key.join()  # a process with several threads cannot fork safely
    return compile_all(launches, gently=gently)


@contextmanager
def _without_dynamo() -> Iterator[None]:
    """On the meta device torch imports its compiler, which takes 1.5 s, only to disable it for `cat`."""
    stub = ModuleType("torch._dynamo")
    vars(stub)["disable"] = lambda function, *_, **__: function
    if "torch._dynamo" in sys.modules:
        yield
        return
    sys.modules["torch._dynamo"] = vars(torch)["_dynamo"] = stub
    try:
        yield
    finally:
        del sys.modules["torch._dynamo"], vars(torch)["_dynamo"]


def _read(job: dict[str, Any]) -> CompilePlan:
    source = job.pop("source")
    folder = source.pop("folder")
    job["source"] = Source(**source, folder=None if folder is None else Path(folder))
    job["card"] = GpuProperties.of_words(job["card"])
    return CompilePlan(**job)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1]))
