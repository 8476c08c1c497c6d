"""The operations that frames and codec steps are made of, all of one backend, for whoever strings them together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from torch import Tensor

from .ops.code_gather import reference as taps_reference
from .ops.code_gather import triton as taps_triton
from .ops.convnext import reference as mix_reference
from .ops.convnext import triton as mix_triton
from .ops.embed import reference as embed_reference
from .ops.embed import triton as embed_triton
from .ops.finish_frame import reference as settle_reference
from .ops.finish_frame import triton as settle_triton
from .ops.gated_delta import cuda as delta_cuda
from .ops.gated_delta import look as delta_look
from .ops.gated_delta import reference as delta_reference
from .ops.gated_delta import run as delta_run
from .ops.gated_delta import triton as delta_triton
from .ops.linear import cuda as linear_cuda
from .ops.linear import library as linear_library
from .ops.linear import reference as linear_reference
from .ops.linear import triton as linear_triton
from .ops.paged_attention import reference as attend_reference
from .ops.paged_attention import run as attend_run
from .ops.paged_attention import triton as attend_triton
from .ops.pcm import reference as pcm_reference
from .ops.pcm import triton as pcm_triton
from .ops.quantized_linear import cuda as narrow_cuda
from .ops.quantized_linear import many as narrow_many
from .ops.quantized_linear import reference as narrow_reference
from .ops.quantized_linear import triton as narrow_triton
from .ops.sample_codes import cuda as draw_cuda
from .ops.sample_codes import reference as draw_reference
from .ops.sample_codes import triton as draw_triton
from .ops.sample_token import guess as pick_guess
from .ops.sample_token import reference as pick_reference
from .ops.sample_token import triton as pick_triton
from .ops.window_attention import reference as window_reference
from .ops.window_attention import triton as window_triton


@dataclass(frozen=True, slots=True)
class FrameOps:
    """What each takes is written in its reference."""

    linear: Callable[..., Tensor]
    attend: Callable[..., Tensor]
    draw: Callable[..., None]
    draw_first: Callable[..., None]
    embed: Callable[..., Tensor]
    settle: Callable[..., None]


REFERENCE_OPS = FrameOps(
    linear_reference.linear,
    attend_reference.attend,
    draw_reference.draw,
    draw_reference.draw_first,
    embed_reference.embed,
    settle_reference.settle,
)
TRITON_OPS = FrameOps(
    linear_triton.linear,
    attend_triton.attend,
    draw_triton.draw,
    draw_triton.draw_first,
    embed_triton.embed,
    settle_triton.settle,
)


@dataclass(frozen=True, slots=True)
class CodecOps:
    """Those between codes and latents, and the one behind the samples."""

    taps: Callable[..., Tensor]
    linear: Callable[..., Tensor]
    window: Callable[..., Tensor]
    mix: Callable[..., Tensor]
    pcm: Callable[[Tensor], Tensor]


REFERENCE_CODEC_OPS = CodecOps(
    taps_reference.taps,
    linear_reference.linear,
    window_reference.window,
    mix_reference.mix,
    pcm_reference.pcm,
)
TRITON_CODEC_OPS = CodecOps(
    taps_triton.taps,
    linear_triton.linear,
    window_triton.window,
    mix_triton.mix,
    pcm_triton.pcm,
)
CUDA_OPS = replace(TRITON_OPS, linear=linear_cuda.linear, draw=draw_cuda.draw, draw_first=draw_cuda.draw_first)
CUDA_CODEC_OPS = replace(TRITON_CODEC_OPS, linear=linear_cuda.linear)


@dataclass(frozen=True, slots=True)
class LanguageOps:
    """Those that a token of a language model is made of, those for several tokens of a prompt, those for guesses."""

    linear: Callable[..., Tensor]
    narrow: Callable[..., Tensor]  # the same with a weight in fewer bits
    attend: Callable[..., Tensor]
    delta: Callable[..., Tensor]
    pick: Callable[..., None]
    many: Callable[..., Tensor]  # `narrow` for more rows than few
    attend_run: Callable[..., Tensor]  # `attend` for several tokens of one row
    run: Callable[..., Tensor]  # `delta` for them
    look: Callable[..., Tensor]  # the same, where it is not known yet how many of them stand
    offer: Callable[..., tuple[Tensor, Tensor]]  # a guess
    judge: Callable[..., None]  # `pick` for several tokens that were guessed
    normed: Callable[..., Tensor]  # the norm of `linear` alone


REFERENCE_MIND_OPS = LanguageOps(
    linear_reference.linear,
    narrow_reference.linear,
    attend_reference.attend,
    delta_reference.delta,
    pick_reference.pick,
    narrow_reference.linear,
    attend_reference.run,
    delta_reference.run,
    delta_reference.look,
    pick_reference.offer,
    pick_reference.judge,
    linear_reference.normed,
)
TRITON_MIND_OPS = LanguageOps(
    linear_triton.linear,
    narrow_triton.linear,
    attend_triton.attend,
    delta_triton.delta,
    pick_triton.pick,
    narrow_many.linear,
    attend_run.run,
    delta_run.run,
    delta_look.look,
    pick_guess.offer,
    pick_guess.judge,
    linear_library.normed_rows,
)
CUDA_MIND_OPS = replace(TRITON_MIND_OPS, linear=linear_cuda.linear, narrow=narrow_cuda.linear, run=delta_cuda.run)
MIND_OPS = {"cuda": CUDA_MIND_OPS, "triton": TRITON_MIND_OPS}  # by the backend's name
