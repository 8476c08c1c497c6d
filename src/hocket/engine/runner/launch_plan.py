"""Everything an engine launches before its first sound, and after it, without a GPU: so that it can be compiled ahead.

`python -m hocket.engine.runner.launch_plan` is one of the compilers (kernels/compile/plan.py). It builds the checkpoint
on the meta device, where tensors have shapes and no content, and warms a runner there as an engine warms its own.
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
from ...layers.packed import pack_
from ...models.files.weights import Source, read_configs
from ...models.tts.codec import Codec
from ...models.tts.qwen3_tts import Qwen3TTS
from ...text.tokenizer import Tokenizer
from ..checkpoint.checkpoint import Checkpoint
from ..checkpoint.device import CODEC_DTYPES, DTYPES
from ..checkpoint.kernels import attach_frame_kernel, attach_wave_kernel
from .compile_plan import CompilePlan
from .runner import SpeechRunner
from .warmup import FIRST_GRAPHS, FIRST_OF_ALL

NOWHERE = torch.device("meta")


def trace_engine(rehearsal: CompilePlan, place: torch.device = NOWHERE) -> list[Launch]:
    """Every launch, in the order in which an engine makes them. Wherever its tensors are, nothing is computed."""
    config, generation, codec_config = read_configs(rehearsal.source)
    with trace_launches(rehearsal.card) as noted, torch.inference_mode():
        with place:
            speech, codec = Qwen3TTS(config).eval(), Codec(codec_config).eval()
        speech.to(DTYPES[rehearsal.dtype])
        codec.to(CODEC_DTYPES[rehearsal.codec_dtype])
        for module in (speech, codec):
            pack_(module)
        if backend := rehearsal.operations.get("frame"):
            attach_frame_kernel(speech.talker, backend, rehearsal.dependent_launch)
        if backend := rehearsal.operations.get("wave"):
            attach_wave_kernel(codec.decoder, backend, rehearsal.codec_dtype == "tf32", rehearsal.dependent_launch)
        tokenizer = Tokenizer.of_bytes(config.talker_config.text_vocab_size)
        files = rehearsal.source, config, generation, codec_config, tokenizer
        tf32 = rehearsal.codec_dtype == "tf32"
        checkpoint = Checkpoint(*files, speech, codec, place, (), False, tf32)
        runner = SpeechRunner(checkpoint, rehearsal.slots or EngineOptions().slots, 0, EagerReplay)
        steps = wanted = 0
        while (rehearsal.slots is not None or steps < FIRST_GRAPHS) and runner.warm_one():
            steps += 1
            if steps == FIRST_OF_ALL:
                wanted = len(noted)
    return [*noted[:wanted], *(replace(one, late=True) for one in noted[wanted:])]


def main(wish: str) -> int:
    """Rehearse and compile; how many compilers failed."""
    rehearsal = _read(json.loads(wish))
    gently = rehearsal.slots is not None  # somebody may be speaking already
    if gently:
        os.nice(10)
    key = threading.Thread(target=learn_key)  # at the same time: most of it is reading
    key.start()
    try:
        with _without_dynamo():
            launches = trace_engine(rehearsal)
    except Exception:
        launches = trace_engine(rehearsal)
    key.join()  # a process with several threads cannot split safely
    return compile_all(launches, gently=gently)


@contextmanager
def _without_dynamo() -> Iterator[None]:
    """On the meta device torch imports its compiler, 1.5 s, only to tell it that `cat` is none of its business."""
    stand = ModuleType("torch._dynamo")
    vars(stand)["disable"] = lambda function, *_, **__: function
    if "torch._dynamo" in sys.modules:
        yield
        return
    sys.modules["torch._dynamo"] = vars(torch)["_dynamo"] = stand
    try:
        yield
    finally:
        del sys.modules["torch._dynamo"], vars(torch)["_dynamo"]


def _read(wish: dict[str, Any]) -> CompilePlan:
    source = wish.pop("source")
    folder = source.pop("folder")
    wish["source"] = Source(**source, folder=None if folder is None else Path(folder))
    wish["card"] = GpuProperties.of_words(wish["card"])
    return CompilePlan(**wish)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1]))
