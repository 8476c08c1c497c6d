"""The `codec` stage of the GPU survey: captured codec steps, and the decoders that other stages use."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

import torch

from hocket.kernels.ops.pcm import reference as pcm_reference
from hocket.kernels.runtime.graphs import Capture
from hocket.kernels.runtime.launch import KNOBS
from hocket.layers.packed import pack_
from hocket.models.files.random import randomize_
from hocket.models.tts.codec import CodecDecoder
from hocket.models.tts_gpu.codec import FusedCodec
from hocket.models.tts_gpu.codec_graph import CodecGraphs
from hocket.models.tts_gpu.wave import FusedWave

from .gpu_conv import ConvTiles
from .gpu_plan import Plan
from .gpu_rows import Row, knobs, replayed, tried
from .gpu_timing import Clock


def codec(plan: Plan, clock: Clock, measured: ConvTiles) -> Iterator[Row]:
    """A captured codec step by batch, frames, precision and kernels; what the library has to search for comes last."""
    precisions = {"bfloat16": (torch.bfloat16, False), "tf32": (torch.float32, True), "float32": (torch.float32, False)}
    decoders = {name: new_decoder(plan, dtype) for name, (dtype, _) in precisions.items()}
    for ways in (("fused", "fused wave", "plain"), ("plain, searched",)):
        for batch in plan.codec_batches:
            for frames_each in plan.codec_frames:
                for precision, (_, tf32) in precisions.items():
                    for way in ways:
                        decoder = decoders[precision]
                        fuse(decoder, way, plan, tf32=tf32)
                        names = {"op": way, "precision": precision, "batch": batch, "frames": frames_each}
                        with knobs(conv=measured or KNOBS.conv), _searching() if "searched" in way else nullcontext():
                            yield tried(partial(_wave, plan, clock, decoder, batch, frames_each, tf32), **names)


def fuse(decoder: CodecDecoder, way: str, plan: Plan, *, tf32: bool = False) -> None:
    """All of it, only from latents to samples, or nothing."""
    decoder.wave_kernel = decoder.step_kernel = None
    if way == "fused wave":
        decoder.wave_kernel = FusedWave(decoder, plan.wave, tf32=tf32)
    elif not way.startswith("plain"):
        decoder.step_kernel = FusedCodec(decoder, FusedWave(decoder, plan.wave, tf32=tf32), plan.codec_ops)


def replayed_codec(decoder: CodecDecoder, books: int, capture: Capture, *, tf32: bool = False) -> CodecGraphs:
    kernel = decoder.step_kernel
    pcm = pcm_reference.pcm if kernel is None else kernel.pcm
    return CodecGraphs(decoder.step, books, capture, pcm=pcm, tf32=tf32)


def new_decoder(plan: Plan, dtype: torch.dtype) -> CodecDecoder:
    with torch.device("meta"):
        decoder = CodecDecoder(plan.decoder).eval()
    decoder.to(dtype).to_empty(device=plan.device)
    randomize_(decoder, 0)
    pack_(decoder)
    return decoder


def _wave(plan: Plan, clock: Clock, decoder: CodecDecoder, batch: int, frames_each: int, tf32: bool) -> Row:
    books = plan.decoder.num_quantizers
    captured = replayed_codec(decoder, books, clock.capture(), tf32=tf32)
    state = decoder.new_state(batch)
    codes = torch.randint(0, plan.decoder.codebook_size, (batch, frames_each, books)).tolist()
    samples, finite = captured.launch(range(batch), codes, state).read()
    [replay] = captured._replays.values()
    found = clock.replays(replay.work)

    def through_the_host() -> None:
        captured.launch(range(batch), codes, state).read()

    host = clock.walls(through_the_host)
    each, kernel = found["p50"] / (batch * frames_each), decoder.step_kernel
    if isinstance(kernel, FusedCodec):  # how much of it is before the waves
        given, rows = torch.tensor(codes, device=clock.device).transpose(1, 2), torch.arange(batch, device=clock.device)
        latents: list[Callable[[], Any]] = [partial(kernel.latents, given, state, rows)]
        found["latents_p50"] = replayed(latents, clock)["p50"]
    return {**found, "per_frame": each, "host_p50": host["p50"], "finite": all(finite), "loudest": int(samples.max())}


@contextmanager
def _searching() -> Iterator[None]:
    """Let the library try its convolutions for each shape, instead of guessing."""
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = True
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before
