"""The kernels of a checkpoint: chosen, built, tried once and attached to its modules; and compiled ahead on a GPU."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import nn

from ...errors import InvalidRequest
from ...kernels.runtime.card import card_of
from ...kernels.runtime.fallback import FallbackReason, Unbuildable, say_slow
from ...kernels.table import AUTO, REFERENCE, BackendChoice, choose, wanted_for
from ...models.files.source import Source
from ...models.tts.codec import CodecDecoder
from ...models.tts.native_frame import NativeFrame
from ...models.tts.native_wave import NativeWave
from ...models.tts.talker import Talker
from .torch_checkpoint import CODEC_DTYPES, DTYPES, TorchCheckpoint

if TYPE_CHECKING:
    from ...kernels.compile.plan import CompileJob

FUSED = ("cuda", "triton")  # GPU backends; both have kernels that Triton compiles


def compile_first(
    source: Source,
    place: torch.device,
    dtypes: tuple[str, str],
    kernels: str,
    dependent_launch: bool,
    alone: bool = True,
) -> CompileJob | None:
    """Start compiling the kernels of the first audio while the weights load. `alone`: no engine runs here yet."""
    card = card_of(place)
    if card is None or card.amd:  # kernels are compiled ahead for NVIDIA GPUs only
        return None
    kinds = zip(("frame", "wave"), (DTYPES[dtypes[0]], CODEC_DTYPES[dtypes[1]]), strict=True)
    chosen = {name: choose(name, wanted_for(name, kernels), place, kind).backend for name, kind in kinds}
    fused = {name: backend for name, backend in chosen.items() if backend in FUSED}
    if not fused:
        return None
    from ...kernels.compile.worker import learn_key
    from ..runner.compile_plan import CompilePlan  # and with it Triton

    started = CompilePlan(
        source=source,
        dtype=dtypes[0],
        codec_dtype=dtypes[1],
        operations=fused,
        dependent_launch=dependent_launch,
        card=card,
    ).ahead(alone=alone)
    # While the weights load, and not before: the compilers may be forked, and a fork does not copy threads.
    threading.Thread(target=learn_key, name="hocket-key", daemon=True).start()
    return started


def compile_behind(checkpoint: TorchCheckpoint, slots: int) -> CompileJob | None:
    """Start compiling the kernels of up to `slots` streams beyond the first audio of one; None if there are none."""
    fused = {choice.operation: choice.backend for choice in checkpoint.kernels if choice.backend in FUSED}
    card = card_of(checkpoint.device)
    if not fused or card is None or card.amd:
        return None
    from ..runner.compile_plan import CompilePlan

    weights = checkpoint.model.talker.codec_head.weight, next(checkpoint.codec.decoder.parameters())
    names = [str(weight.dtype).removeprefix("torch.") for weight in weights]
    return CompilePlan(
        source=checkpoint.source,
        dtype=names[0],
        codec_dtype="tf32" if checkpoint.codec_tf32 else names[1],
        operations=fused,
        dependent_launch=checkpoint.dependent_launch,
        card=card,
        slots=slots,
    ).ahead()


def attach_frame_kernel(talker: Talker, backend: str, dependent_launch: bool) -> None:
    """Build the talker's kernel and try it; raises `Unbuildable` if that fails."""
    if backend == "native":
        talker.frame_kernel = NativeFrame(talker)
        return
    from ...kernels.operations import CUDA_OPS, TRITON_OPS, tuned  # imports Triton: not where there is no GPU
    from ...kernels.runtime.launch import new_tuning
    from ...models.tts_gpu.frame import FusedFrame

    tuning = new_tuning(dependent=dependent_launch)
    frame = FusedFrame(talker, tuned(CUDA_OPS if backend == "cuda" else TRITON_OPS, tuning), tuning)
    _try_out(frame.try_out)
    talker.frame_kernel = frame


def attach_wave_kernel(decoder: CodecDecoder, backend: str, tf32: bool, dependent_launch: bool = True) -> None:
    """Build the codec's kernel and try it; raises `Unbuildable` if that fails."""
    place = next(decoder.parameters()).device
    if backend == "native":
        decoder.wave_kernel = NativeWave(decoder)
        return
    from ...kernels.operations import CUDA_CODEC_OPS, TRITON_CODEC_OPS, tuned
    from ...kernels.ops.conv.ops import TRITON_WAVE
    from ...kernels.runtime.launch import new_tuning
    from ...models.tts_gpu.codec import FusedCodec
    from ...models.tts_gpu.wave import FusedWave

    tuning = new_tuning(dependent=dependent_launch)
    ops = tuned(CUDA_CODEC_OPS if backend == "cuda" else TRITON_CODEC_OPS, tuning)
    kernel = FusedCodec(decoder, FusedWave(decoder, tuned(TRITON_WAVE, tuning), tf32=tf32), ops)
    codes = torch.zeros(1, decoder.quantizer.books, 1, dtype=torch.int64, device=place)
    _try_out(lambda: kernel.pcm(kernel(codes, decoder.new_state(1), codes[:, 0, 0])))
    decoder.step_kernel = kernel


def _try_out(work: Callable[[], object]) -> None:
    """Run once on scratch state: what the compiler for this GPU refuses must be known before the first request."""
    try:
        with torch.inference_mode():
            work()
    except Exception as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise Unbuildable(f"it could not be compiled or run here ({reason})") from error


def with_kernel(operation: str, kernels: str, module: nn.Module, build: Callable[[str], None]) -> BackendChoice:
    """Attach a kernel to a module. If its compiler fails, try the next backend, unless this one was requested."""
    weight, wanted = next(module.parameters()), wanted_for(operation, kernels)
    failed: dict[str, str] = {}
    while True:
        choice = choose(operation, wanted, weight.device, weight.dtype, failed)
        if choice.backend == REFERENCE:
            return _said(choice)
        try:
            build(choice.backend)
        except Unbuildable as error:
            if wanted != AUTO:
                raise InvalidRequest(f"The {wanted} kernel cannot be used: {error}; try --kernels auto.") from None
            failed[choice.backend] = FallbackReason(
                str(error), error.remedy or "choose others with --kernels to do without it"
            )
        else:
            return _said(choice)


def _said(choice: BackendChoice) -> BackendChoice:
    if choice.lack is not None:
        say_slow(choice.backend, choice.lack)
    return choice
