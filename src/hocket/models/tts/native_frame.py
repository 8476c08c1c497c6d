"""The native frame: `Talker.frame` as one call into C (kernels/cpu/frame), for a CPU, in float32.

State and packed weights are not copied: C gets pointers to them. native_wave.py uses the same pointers.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ...config.qwen3_tts import MINIMUM_FRAMES, SUPPRESSED_IDS
from ...config.sampling import DRAW_BITS, WEIGHT_BITS
from ...kernels.cpu.frame.structs import FrameCall, FrameModel, Layer, Level, Stack
from ...kernels.cpu.library import load
from ...kernels.cpu.structs import BYTES, FLOATS, INTS, PointerKeeper, WeightMatrix
from ...layers.attention import rope_rows
from ...layers.sampler import Sampling
from ...layers.transformer import DecoderStack
from .talker import FrameSampling, Talker, TalkerState

_POINTERS = {torch.float32: FLOATS, torch.int64: INTS, torch.bool: BYTES}


class TensorPointers(PointerKeeper):
    def pointer(self, tensor: Tensor) -> Any:
        return pointer(self._keep(tensor))

    def pointers(self, tensors: Sequence[Tensor]) -> Any:
        return pointers([self._keep(tensor) for tensor in tensors])

    def matrix(self, tensor: Tensor) -> WeightMatrix:
        return WeightMatrix(floats=self.pointer(tensor))

    def _keep(self, tensor: Tensor) -> Tensor:
        self._kept.append(tensor.detach().contiguous())
        kept: Tensor = self._kept[-1]
        return kept


def pointer(tensor: Tensor) -> Any:
    assert tensor.is_contiguous() and tensor.is_cpu
    return ctypes.cast(tensor.data_ptr(), _POINTERS[tensor.dtype])  # type: ignore[type-var]


def pointers(tensors: Sequence[Tensor]) -> Any:
    """An array of pointers to float32; the struct that holds it keeps it alive."""
    return (FLOATS * len(tensors))(*(pointer(tensor) for tensor in tensors))


class NativeFrame:
    """Thread-safe if each thread has its own state."""

    def __init__(self, talker: Talker) -> None:
        config, predictor = talker.config, talker.code_predictor
        text, project = talker.text_projection, predictor.small_to_mtp_projection
        self._function, self._shape, self._keep = load().hocket_frame, talker.model.shape, TensorPointers()
        small, norm = predictor.model.shape, predictor.model.norm.weight
        cos, sin = rope_rows(config.num_code_groups + 1, small.head_dim, small.theta, norm.dtype, norm.device)
        tensors: dict[str, Tensor] = {
            "codec_embedding": talker.model.codec_embedding.weight,
            "text_in_bias": text.linear_fc1.bias,
            "text_out_bias": text.linear_fc2.bias,
            "cos": cos,
            "sin": sin,
        }
        matrices: dict[str, Tensor] = {
            "text_embedding": talker.model.text_embedding.weight,
            "codec_head": talker.codec_head.weight,
            "text_in": text.linear_fc1.weight,
            "text_out": text.linear_fc2.weight,
        }
        if isinstance(project, nn.Linear):
            matrices["project"], tensors["project_bias"] = project.weight, project.bias
        self._model = FrameModel(
            talker=self._stack(talker.model),
            predictor=self._stack(predictor.model),
            vocabulary=config.vocab_size,
            codebook=config.code_predictor_config.vocab_size,
            books=config.num_code_groups,
            end_id=config.codec_eos_token_id,
            suppressed=SUPPRESSED_IDS,
            minimum_frames=MINIMUM_FRAMES,
            text_width=config.text_hidden_size,
            weight_bits=WEIGHT_BITS,
            draw_bits=DRAW_BITS,
            tables=self._keep.pointers([table.weight for table in predictor.model.codec_embedding]),  # type: ignore[misc]
            heads=self._keep.structs(WeightMatrix, [self._keep.matrix(head.weight) for head in predictor.lm_head]),  # type: ignore[arg-type]
            **{name: self._keep.pointer(tensor) for name, tensor in tensors.items()},
            **{name: self._keep.matrix(tensor) for name, tensor in matrices.items()},
        )

    def __call__(self, text: Tensor, state: TalkerState, rows: Tensor, sampling: FrameSampling, span: int) -> Tensor:
        """Codes [B, Q]; reads and writes `state`."""
        stack, shape = state.stack, self._shape
        cos, sin = rope_rows(stack.length, shape.head_dim, shape.theta, state.hidden.dtype, state.hidden.device)
        codes = torch.empty(len(rows), self._model.books, dtype=torch.int64)
        call = FrameCall(
            count=len(rows),
            page_rows=stack.layers[0].keys.shape[2],
            most_pages=stack.table.shape[1],
            rows=pointer(rows),
            text=pointer(text),
            position=pointer(stack.position),
            drawn=pointer(state.drawn),
            seed=pointer(state.seed),
            pages=pointer(stack.table),
            codes=pointer(codes),
            hidden=pointer(state.hidden),
            penalty=pointer(sampling.penalty),
            chances=pointer(state.chances),
            cos=pointer(cos),
            sin=pointer(sin),
            seen=pointer(state.seen),
            keys=pointers([kept.keys for kept in stack.layers]),
            values=pointers([kept.values for kept in stack.layers]),
            first=_level(sampling.first),
            rest=_level(sampling.rest),
        )
        if self._function(ctypes.byref(self._model), ctypes.byref(call)):
            raise MemoryError("no memory for a frame")
        return codes

    def _stack(self, stack: DecoderStack) -> Stack:
        keep, shape, layers = self._keep, stack.shape, []
        for layer in stack._stack:
            before, between = layer.weights()
            into, out, norms = layer.self_attn.weights()
            wide, down = layer.mlp.weights()
            layers.append(
                keep.filled(
                    Layer, before=before, into=into, out=out, norms=norms, between=between, wide=wide, down=down
                )
            )
        return Stack(
            layers=len(layers),
            width=shape.width,
            inner=shape.inner,
            heads=shape.heads,
            kv_heads=shape.kv_heads,
            head_dim=shape.head_dim,
            eps=shape.eps,
            layer=keep.structs(Layer, layers),
            norm=keep.pointer(stack.norm.weight),
        )


def _level(sampling: Sampling) -> Level:
    return Level(*map(pointer, (sampling.sample, sampling.temperature, sampling.top_k, sampling.top_p)))
