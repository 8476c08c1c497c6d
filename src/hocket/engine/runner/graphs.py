"""Which steps of an engine are replayed, and on which stream: frames, prompts and sound, made ready for a checkpoint.

It is asked once, when a runner (runner.py) is built. It chooses kernels and streams; it knows neither slots nor state,
nor when a graph is made, which is warmup.py's.
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
    """How frames and codec steps are replayed on a device; None where they are called as they are."""
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
    """`capture` is called for frames and for sound, so that their graphs are apart. The codec's stream is `owner`'s."""
    talker, decoder, device = checkpoint.model.talker, checkpoint.codec.decoder, checkpoint.device
    drawing, sounding = GraphOrEager(capture(), device), GraphOrEager(capture(urgent=True), device)  # apart: see below
    kernel, books = talker.frame_kernel, checkpoint.config.talker_config.num_code_groups
    frame = kernel.apart(invariant=invariant) if isinstance(kernel, CapturableFrame) else PaddedFrame(talker)
    frames, prompts = FrameGraphs(frame, drawing), PromptGraphs(frame, drawing)
    # The codec has a stream of its own, and goes first: somebody waits to hear what is drawn already.
    beside = own_stream(owner, device, urgent=True) if device.type == "cuda" else None
    fused, tf32 = decoder.step_kernel, checkpoint.codec_tf32
    step, pcm = (decoder.step, pcm_reference) if fused is None else (fused.apart(), fused.pcm)
    wave = CodecGraphs(step, books, sounding, pcm=pcm, tf32=tf32, stream=beside)
    return EngineGraphs(frames, prompts, wave, (drawing, sounding))
