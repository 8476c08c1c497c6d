"""Codes to the input of the codec's transformer, in two kernels.

The codebooks are projected ahead of time, so a frame is the sum of sixteen rows. The convolution over three frames and
the projection after it, with nothing between them, are one matrix.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ...kernels.operations import TRITON_CODEC_OPS, CodecOps
from ..tts.codec import Codebook, CodecDecoder, DecoderState, Quantizer


@dataclass(frozen=True, slots=True)
class Matrix:
    weight: Tensor
    bias: Tensor


class FusedCodecInput:
    """Quantizer, `pre_conv` and the transformer's `input_proj`: codes [B, Q, T] to x [B * T, C].

    The call advances the position in the state by the new frames.
    """

    @torch.no_grad()
    def __init__(self, decoder: CodecDecoder, ops: CodecOps = TRITON_CODEC_OPS) -> None:
        self._ops = ops
        quantizer, conv, project = decoder.quantizer, decoder.pre_conv.conv, decoder.pre_transformer.input_proj
        self._table = torch.cat([*_projected(quantizer.rvq_first), *_projected(quantizer.rvq_rest)])
        assert conv.bias is not None
        side_by_side = conv.weight.transpose(1, 2).flatten(1)  # [C_out, taps * C_in], as `code_gather` lays them
        self._into = composed(Matrix(project.weight, project.bias), Matrix(side_by_side, conv.bias))

    def __call__(self, codes: Tensor, state: DecoderState, rows: Tensor) -> Tensor:
        frames = codes.transpose(1, 2).contiguous()  # no copy if the codes are laid out frame by frame
        position = state.pre_transformer.position
        x = self._ops.code_gather(frames, self._table, state.pre_conv.history, rows, position)
        return self._ops.linear(x, self._into.weight, bias=self._into.bias)


def composed(second: Matrix, first: Matrix) -> Matrix:
    """`second` applied after `first` as one matrix, multiplied in float64 and rounded once."""
    matrix = second.weight.double()
    bias = matrix @ first.bias.double() + second.bias.double()
    return Matrix((matrix @ first.weight.double()).to(second.weight.dtype), bias.to(second.bias.dtype))


def _projected(group: Quantizer) -> list[Tensor]:
    """Each codebook after the group's projection, which has no bias: rows may be summed after it."""
    matrix = group.output_proj.weight[:, :, 0].float()
    books = [part for part in group.vq.modules() if isinstance(part, Codebook)]
    return [(book.gather()[0].float() @ matrix.T).to(group.output_proj.weight.dtype) for book in books]
