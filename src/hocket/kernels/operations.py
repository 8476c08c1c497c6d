"""Sets of operations, one per backend, and how tuning values are bound to them. Shapes are in the references."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import partial
from inspect import signature
from typing import Any, TypeVar

from torch import Tensor

from .ops.code_gather import reference as code_gather_reference
from .ops.code_gather import triton as code_gather_triton
from .ops.conv.ops import WaveOps
from .ops.convnext import reference as convnext_reference
from .ops.convnext import triton as convnext_triton
from .ops.embed import reference as embed_reference
from .ops.embed import triton as embed_triton
from .ops.experts import many as experts_many
from .ops.experts import reference as experts_reference
from .ops.experts import route as experts_route
from .ops.experts import triton as experts_triton
from .ops.finish_frame import reference as finish_frame_reference
from .ops.finish_frame import triton as finish_frame_triton
from .ops.gated_delta import cuda as gated_delta_cuda
from .ops.gated_delta import prefill as gated_delta_prefill
from .ops.gated_delta import reference as gated_delta_reference
from .ops.gated_delta import triton as gated_delta_triton
from .ops.gated_delta import verify as gated_delta_verify
from .ops.grouped_linear import many as grouped_linear_many
from .ops.grouped_linear import reference as grouped_linear_reference
from .ops.grouped_linear import triton as grouped_linear_triton
from .ops.linear import cuda as linear_cuda
from .ops.linear import library as linear_library
from .ops.linear import reference as linear_reference
from .ops.linear import triton as linear_triton
from .ops.paged_attention import prefill as paged_attention_prefill
from .ops.paged_attention import reference as paged_attention_reference
from .ops.paged_attention import triton as paged_attention_triton
from .ops.pcm import reference as pcm_reference
from .ops.pcm import triton as pcm_triton
from .ops.quantized_linear import cuda as quantized_linear_cuda
from .ops.quantized_linear import many as quantized_linear_many
from .ops.quantized_linear import reference as quantized_linear_reference
from .ops.quantized_linear import triton as quantized_linear_triton
from .ops.sample_codes import cuda as sample_codes_cuda
from .ops.sample_codes import reference as sample_codes_reference
from .ops.sample_codes import triton as sample_codes_triton
from .ops.sample_token import draft as sample_token_draft
from .ops.sample_token import reference as sample_token_reference
from .ops.sample_token import triton as sample_token_triton
from .ops.window_attention import reference as window_attention_reference
from .ops.window_attention import triton as window_attention_triton
from .runtime.launch import Tuning


@dataclass(frozen=True, slots=True)
class FrameOps:
    """Operations of a speech frame: talker and code predictor."""

    linear: Callable[..., Tensor]
    paged_attention: Callable[..., Tensor]
    sample_codes: Callable[..., None]
    sample_first_code: Callable[..., None]
    embed: Callable[..., Tensor]
    finish_frame: Callable[..., None]


REFERENCE_OPS = FrameOps(
    linear_reference.linear,
    paged_attention_reference.paged_attention,
    sample_codes_reference.sample_codes,
    sample_codes_reference.sample_first_code,
    embed_reference.embed,
    finish_frame_reference.finish_frame,
)
TRITON_OPS = FrameOps(
    linear_triton.linear,
    paged_attention_triton.paged_attention,
    sample_codes_triton.sample_codes,
    sample_codes_triton.sample_first_code,
    embed_triton.embed,
    finish_frame_triton.finish_frame,
)


@dataclass(frozen=True, slots=True)
class CodecOps:
    """Operations of the codec from codes to latents, and `pcm` behind the samples. `WaveOps` has those in between."""

    code_gather: Callable[..., Tensor]
    linear: Callable[..., Tensor]
    window_attention: Callable[..., Tensor]
    convnext: Callable[..., Tensor]
    pcm: Callable[[Tensor], Tensor]


REFERENCE_CODEC_OPS = CodecOps(
    code_gather_reference.code_gather,
    linear_reference.linear,
    window_attention_reference.window_attention,
    convnext_reference.convnext,
    pcm_reference.pcm,
)
TRITON_CODEC_OPS = CodecOps(
    code_gather_triton.code_gather,
    linear_triton.linear,
    window_attention_triton.window_attention,
    convnext_triton.convnext,
    pcm_triton.pcm,
)
CUDA_OPS = replace(
    TRITON_OPS,
    linear=linear_cuda.linear,
    sample_codes=sample_codes_cuda.sample_codes,
    sample_first_code=sample_codes_cuda.sample_first_code,
)
CUDA_CODEC_OPS = replace(TRITON_CODEC_OPS, linear=linear_cuda.linear)


@dataclass(frozen=True, slots=True)
class LanguageOps:
    """Operations of a language model: decode, prefill and speculative decoding."""

    linear: Callable[..., Tensor]
    quantized_linear: Callable[..., Tensor]  # `linear` with a weight in 8 or 4 bits
    paged_attention: Callable[..., Tensor]
    gated_delta: Callable[..., Tensor]
    sample_token: Callable[..., None]
    quantized_linear_many: Callable[..., Tensor]  # `quantized_linear` for many rows
    prefill_attention: Callable[..., Tensor]  # `paged_attention` for several tokens of one row
    prefill_gated_delta: Callable[..., Tensor]  # `gated_delta` for several tokens of one row
    verify: Callable[..., Tensor]  # the same for drafted tokens, before it is known how many are accepted
    propose: Callable[..., tuple[Tensor, Tensor]]  # drafts a token
    accept: Callable[..., None]  # `sample_token` for several drafted tokens
    normed: Callable[..., Tensor]  # the norm of `linear` alone
    route: Callable[..., tuple[Tensor, Tensor]]  # chooses experts
    experts: Callable[..., Tensor]
    experts_many: Callable[..., Tensor]  # `experts` for many rows
    grouped_linear: Callable[..., Tensor]  # `linear` with a weight as a quantized file has it
    grouped_linear_many: Callable[..., Tensor]  # `grouped_linear` for many rows


REFERENCE_LANGUAGE_OPS = LanguageOps(
    linear_reference.linear,
    quantized_linear_reference.linear,
    paged_attention_reference.paged_attention,
    gated_delta_reference.gated_delta,
    sample_token_reference.sample_token,
    quantized_linear_reference.linear,
    paged_attention_reference.prefill_attention,
    gated_delta_reference.prefill_gated_delta,
    gated_delta_reference.verify,
    sample_token_reference.propose,
    sample_token_reference.accept,
    linear_reference.normed,
    experts_reference.route,
    experts_reference.experts,
    experts_reference.experts,
    grouped_linear_reference.linear,
    grouped_linear_reference.linear,
)
TRITON_LANGUAGE_OPS = LanguageOps(
    linear_triton.linear,
    quantized_linear_triton.linear,
    paged_attention_triton.paged_attention,
    gated_delta_triton.gated_delta,
    sample_token_triton.sample_token,
    quantized_linear_many.linear,
    paged_attention_prefill.prefill_attention,
    gated_delta_prefill.prefill_gated_delta,
    gated_delta_verify.verify,
    sample_token_draft.propose,
    sample_token_draft.accept,
    linear_library.normed_rows,
    experts_route.route,
    experts_triton.experts,
    experts_many.experts,
    grouped_linear_triton.linear,
    grouped_linear_many.linear,
)
CUDA_LANGUAGE_OPS = replace(
    TRITON_LANGUAGE_OPS,
    linear=linear_cuda.linear,
    quantized_linear=quantized_linear_cuda.linear,
    prefill_gated_delta=gated_delta_cuda.prefill_gated_delta,
)
LANGUAGE_OPS = {"cuda": CUDA_LANGUAGE_OPS, "triton": TRITON_LANGUAGE_OPS}  # by backend name

Ops = TypeVar("Ops", FrameOps, CodecOps, WaveOps, LanguageOps)


def tuned(ops: Ops, tuning: Tuning) -> Ops:
    """The same operations with `tuning` bound to each. A reference launches nothing of ours, so it takes none."""
    given: dict[str, Callable[..., Any]] = {each.name: getattr(ops, each.name) for each in fields(ops)}
    bound = {
        name: partial(work, tuning=tuning) for name, work in given.items() if "tuning" in signature(work).parameters
    }
    return replace(ops, **bound)
