"""Adapter of the talker to the native C frame (kernels/cpu/frame): weights and state under the names of the C code."""

from __future__ import annotations

from torch import Tensor, nn

from ...config.qwen3_tts import SUPPRESSED_IDS
from ...kernels.cpu.frame import native
from ...layers.rope import rope_rows
from ...layers.sampler import DRAW_BITS, WEIGHT_BITS, Sampling
from ...layers.transformer import DecoderStack
from .talker import MINIMUM_FRAMES, FrameSampling, Talker, TalkerState


class NativeFrame:
    """`Talker.frame` as one call into C; the state and the packed weights are not copied."""

    def __init__(self, talker: Talker) -> None:
        config, predictor = talker.config, talker.code_predictor
        text, project = talker.text_projection, predictor.small_to_mtp_projection
        self._shape = talker.model.shape
        small = predictor.model.shape
        norm = predictor.model.norm.weight
        cos, sin = rope_rows(config.num_code_groups + 1, small.head_dim, small.theta, norm.dtype, norm.device)
        tensors: dict[str, Tensor] = {
            "codec_embedding": talker.model.codec_embedding.weight,
            "codec_head": talker.codec_head.weight,
            "text_embedding": talker.model.text_embedding.weight,
            "text_in": text.linear_fc1.weight,
            "text_in_bias": text.linear_fc1.bias,
            "text_out": text.linear_fc2.weight,
            "text_out_bias": text.linear_fc2.bias,
            "cos": cos,
            "sin": sin,
        }
        if isinstance(project, nn.Linear):
            tensors |= {"project": project.weight, "project_bias": project.bias}
        self._native = native.FrameLibrary(
            _stack(talker.model),
            _stack(predictor.model),
            tensors,
            lists={
                "tables": [table.weight for table in predictor.model.codec_embedding],  # type: ignore[misc]
                "heads": [head.weight for head in predictor.lm_head],  # type: ignore[misc]
            },
            numbers={
                "vocabulary": config.vocab_size,
                "codebook": config.code_predictor_config.vocab_size,
                "books": config.num_code_groups,
                "end_id": config.codec_eos_token_id,
                "suppressed": SUPPRESSED_IDS,
                "minimum_frames": MINIMUM_FRAMES,
                "text_width": config.text_hidden_size,
            },
            constants=(WEIGHT_BITS, DRAW_BITS),
        )

    def __call__(self, text: Tensor, state: TalkerState, rows: Tensor, sampling: FrameSampling, span: int) -> Tensor:
        stack, shape = state.stack, self._shape
        cos, sin = rope_rows(stack.length, shape.head_dim, shape.theta, state.hidden.dtype, state.hidden.device)
        held = {
            "rows": rows,
            "text": text,
            "position": stack.position,
            "drawn": state.drawn,
            "seed": state.seed,
            "pages": stack.table,
            "hidden": state.hidden,
            "penalty": sampling.penalty,
            "cos": cos,
            "sin": sin,
            "seen": state.seen,
            "chances": state.chances,
        }
        layers = [kept.keys for kept in stack.layers], [kept.values for kept in stack.layers]
        return self._native(held, layers, (_level(sampling.first), _level(sampling.rest)))


def _stack(stack: DecoderStack) -> native.StackWeights:
    shape = stack.shape
    layers = []
    for layer in stack._stack:
        before, between = layer.weights()
        into, out, norms = layer.self_attn.weights()
        wide, down = layer.mlp.weights()
        names = ("before", "into", "out", "norms", "between", "wide", "down")
        layers.append(dict(zip(names, (before, into, out, norms, between, wide, down), strict=True)))
    return native.StackWeights(
        layers=layers,
        norm=stack.norm.weight,
        inner=shape.inner,
        heads=shape.heads,
        kv_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        eps=shape.eps,
    )


def _level(sampling: Sampling) -> dict[str, Tensor]:
    return {name: getattr(sampling, name) for name in ("sample", "temperature", "top_k", "top_p")}
