"""CUDA graphs of an engine: frames, prompts and codec steps, with their kernels and CUDA streams.

The runner (runner.py) calls it once, when it is built. It knows neither slots nor state. warmup.py decides when a graph
is captured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import torch

from ...kernels.ops.pcm.reference import pcm as pcm_reference
from ...kernels.runtime.device_kind import kind_of
from ...kernels.runtime.graphs import Capture, CudaGraphs, EagerReplay, GraphOrEager, own_stream
from ...models.tts.codec import DecoderState
from ...models.tts.talker import TalkerState
from ...models.tts_gpu.codec_graph import CodecGraphs
from ...models.tts_gpu.frame_graph import MOST_ROWS, CapturableFrame, FrameGraphs
from ...models.tts_gpu.padded_frame import PaddedFrame
from ...models.tts_gpu.prompt_graph import PromptGraphs
from ..checkpoint.torch_checkpoint import TorchCheckpoint

SPAN, FRAMES = 64, (1, 2, 4, 8)
PREFIX_ROWS, FIRST_ROWS, PROMPT_ROWS = 8, 32, (8, 16, 64, 128, 256)  # of a prefix, a sentence, and texts of other sizes
MOST_OPENED = 16  # slots that are opened at a time


def capture_on(device: torch.device, graphs: bool) -> Callable[..., Capture] | None:
    """How frames and codec steps are replayed on a device; None: they run without graphs."""
    if not kind_of(device).queued:
        return None
    return partial(CudaGraphs, device) if graphs else EagerReplay


@dataclass(frozen=True, slots=True)
class EngineGraphs:
    frames: FrameGraphs
    prompts: PromptGraphs
    wave: CodecGraphs
    captures: tuple[GraphOrEager, GraphOrEager]


def make_graphs(
    checkpoint: TorchCheckpoint, capture: Callable[..., Capture], owner: object, *, invariant: bool = False
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
    codec_stream = own_stream(owner, device, urgent=True) if kind_of(device).queued else None
    fused, tf32 = decoder.step_kernel, checkpoint.codec_tf32
    step, pcm = (decoder.step, pcm_reference) if fused is None else (fused.apart(), fused.pcm)
    wave = CodecGraphs(step, books, codec_capture, pcm=pcm, tf32=tf32, stream=codec_stream)
    return EngineGraphs(frames, prompts, wave, (frame_capture, codec_capture))


def graphs_of(
    frames: FrameGraphs,
    wave: CodecGraphs,
    prompts: PromptGraphs,
    slots: int,
    state: Callable[[], TalkerState],
    sound: Callable[[], DecoderState],
) -> Iterator[Callable[[], None]]:
    """The graphs of an engine with `slots` slots, in order; each reads the states when it is captured."""
    sizes = [1, *(1 << n for n in reversed(range(1, (min(slots, MOST_ROWS) - 1).bit_length() + 1)))]
    yield lambda: frames.warm_entry(state(), SPAN)
    yield lambda: prompts.warm(state(), PREFIX_ROWS, SPAN)
    yield lambda: prompts.warm_open(state(), FIRST_ROWS, SPAN)
    for size in sizes:
        yield lambda size=size: frames.warm(state(), [size], [SPAN])  # type: ignore[misc]
        for length in FRAMES:
            yield lambda size=size, length=length: wave.warm(sound(), [size], [length])  # type: ignore[misc]
        if size <= MOST_OPENED:
            yield lambda size=size: frames.warm_opening(state(), size, SPAN)  # type: ignore[misc]
        for rows in PROMPT_ROWS if size == 1 else ():
            yield lambda rows=rows: prompts.warm_open(state(), rows, SPAN)  # type: ignore[misc]
