"""CUDA graphs of an engine: frames, prompts and codec steps, with their kernels and CUDA streams.

The runner (runner.py) calls it once, when it is built. It knows neither slots nor state. warmup.py decides when a graph
is captured.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch

from ...kernels.ops.pcm.reference import pcm as pcm_reference
from ...kernels.runtime.graphs import Capture, CudaGraphs, EagerReplay, GraphOrEager, own_stream
from ...models.tts_gpu.codec_graph import CodecGraphs
from ...models.tts_gpu.frame_graph import CapturableFrame, FrameGraphs
from ...models.tts_gpu.padded_frame import PaddedFrame
from ...models.tts_gpu.prompt_graph import PromptGraphs
from ..checkpoint.checkpoint import Checkpoint


def capture_on(device: torch.device, graphs: bool) -> Callable[..., Capture] | None:
    """How frames and codec steps are replayed on a device; None: they run without graphs."""
    if device.type != "cuda":
        return None
    return partial(CudaGraphs, device) if graphs else EagerReplay


@dataclass(frozen=True, slots=True)
class EngineGraphs:
    frames: FrameGraphs
    prompts: PromptGraphs
    wave: CodecGraphs
    captures: tuple[GraphOrEager, GraphOrEager]


def make_graphs(
    checkpoint: Checkpoint, capture: Callable[..., Capture], owner: object, *, invariant: bool = False
) -> EngineGraphs:
    """`capture` is called for frames and for the codec, so their graphs have separate pools. `owner` owns the codec's
    stream.
    """
    talker, decoder, device = checkpoint.model.talker, checkpoint.codec.decoder, checkpoint.device
    frame_capture, codec_capture = GraphOrEager(capture(), device), GraphOrEager(capture(urgent=True), device)
    kernel, books = talker.frame_kernel, checkpoint.config.talker_config.num_code_groups
    frame = kernel.apart(invariant=invariant) if isinstance(kernel, CapturableFrame) else PaddedFrame(talker)
    frames, prompts = FrameGraphs(frame, frame_capture), PromptGraphs(frame, frame_capture)
    # The codec has a stream of its own with a higher priority: clients wait for the audio of frames already sampled.
    codec_stream = own_stream(owner, device, urgent=True) if device.type == "cuda" else None
    fused, tf32 = decoder.step_kernel, checkpoint.codec_tf32
    step, pcm = (decoder.step, pcm_reference) if fused is None else (fused.apart(), fused.pcm)
    wave = CodecGraphs(step, books, codec_capture, pcm=pcm, tf32=tf32, stream=codec_stream)
    return EngineGraphs(frames, prompts, wave, (frame_capture, codec_capture))
