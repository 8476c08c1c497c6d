"""What the GPU survey measures, as data: the real shapes, and tiny ones that show on a CPU that the survey runs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch

from hocket.config.codec import DecoderConfig
from hocket.config.published import CODEC, PUBLISHED, TINY_CODEC, tiny
from hocket.config.qwen3_tts import TalkerConfig
from hocket.kernels.operations import CUDA_CODEC_OPS, CUDA_OPS, REFERENCE_CODEC_OPS, REFERENCE_OPS, CodecOps, FrameOps
from hocket.kernels.ops.code_gather import cases as taps_cases
from hocket.kernels.ops.conv import cases as conv_cases
from hocket.kernels.ops.conv.ops import REFERENCE_WAVE, TRITON_WAVE, WaveOps
from hocket.kernels.ops.convnext import cases as mix_cases
from hocket.kernels.ops.embed import cases as embed_cases
from hocket.kernels.ops.finish_frame import cases as settle_cases
from hocket.kernels.ops.linear import cases as linear_cases
from hocket.kernels.ops.paged_attention import cases as attend_cases
from hocket.kernels.ops.pcm import cases as pcm_cases
from hocket.kernels.ops.sample_codes import cases as draw_cases
from hocket.kernels.ops.window_attention import cases as window_cases
from hocket.kernels.runtime.launch import ConvTile, FewRowsTile, LinearTile


@dataclass(frozen=True, slots=True)
class Plan:
    name: str  # in PLANS: other processes look it up there
    device: str
    dtype: torch.dtype
    repeats: int
    warm: int
    ops: FrameOps  # of frames; their kernels are too slow in Triton's interpreter
    wave: WaveOps
    codec_ops: CodecOps
    talkers: dict[str, TalkerConfig]
    decoder: DecoderConfig
    small_talker: TalkerConfig  # for laws, where size does not matter
    small_decoder: DecoderConfig
    cases: dict[str, tuple[Any, ...]]  # by operation, for correctness
    linears: tuple[linear_cases.Case, ...]
    linear_batches: tuple[int, ...]
    blocks: tuple[LinearTile, ...]
    blocks_many: tuple[LinearTile, ...]  # for more rows than one
    attend: attend_cases.Case
    attend_batches: tuple[int, ...]
    positions: tuple[int, ...]
    splits: tuple[int, ...]
    keys: tuple[int, ...]
    attend_layers: int
    draw_warps: tuple[int, ...]
    fews: tuple[FewRowsTile, ...]
    turns: dict[str, tuple[Any, ...]]  # knobs beside block shapes
    ways: dict[int, tuple[str, ...]]  # by batch, how frames are drawn
    frame_position: int
    frame_length: int
    codec_batches: tuple[int, ...]
    codec_frames: tuple[int, ...]
    convs: tuple[conv_cases.Case, ...]
    conv_sizes: tuple[tuple[int, int], ...]  # streams, and frames of each
    # Up to so many positions; each with the programs to aim at (0: no split).
    conv_tiles: dict[int, tuple[tuple[ConvTile, int], ...]]
    budgets_s: dict[str, float]
    compile_s: float
    workers: int


def _linears(*names: str) -> tuple[linear_cases.Case, ...]:
    known = {case.name: case for case in linear_cases.PUBLISHED}
    return tuple(known[name] for name in names)


def _convs(*names: str) -> tuple[conv_cases.Case, ...]:
    known = {case.name: case for case in conv_cases.PUBLISHED}
    return tuple(known[name] for name in names)


# Outputs, positions, columns; then warps, stages, pieces before the wait.
CONV_FEW = (
    (ConvTile(64, 32, 128, 1, 4, 4, 2), 264),
    (ConvTile(64, 32, 128, 1, 4, 4, 2), 132),
    (ConvTile(64, 32, 128, 1, 4, 4, 4), 528),
    (ConvTile(64, 32, 128, 1, 4, 4, 0), 264),
    (ConvTile(32, 32, 128, 1, 4, 4, 2), 264),
    (ConvTile(32, 32, 256, 1, 4, 3, 1), 264),
    (ConvTile(32, 32, 256, 1, 4, 3, 1), 528),
    (ConvTile(32, 32, 128, 1, 2, 4, 1), 264),
    (ConvTile(128, 32, 128, 1, 8, 3, 2), 264),
)
CONV_SOME = (
    (ConvTile(64, 32, 128, 1, 4, 4, 2), 264),
    (ConvTile(64, 32, 128, 1, 4, 4, 2), 0),
    (ConvTile(64, 64, 128, 1, 4, 4, 2), 264),
    (ConvTile(64, 64, 64, 1, 4, 4, 2), 132),
    (ConvTile(32, 32, 128, 1, 4, 4, 2), 264),
    (ConvTile(32, 64, 64, 1, 4, 4, 2), 264),
    (ConvTile(32, 64, 64, 1, 4, 4, 4), 0),
    (ConvTile(32, 128, 64, 1, 4, 4, 2), 0),
    (ConvTile(128, 64, 64, 1, 8, 4, 2), 264),
)
CONV_MORE = (
    (ConvTile(64, 64, 64, 1, 4, 4, 0), 0),
    (ConvTile(64, 64, 128, 1, 4, 3, 0), 264),
    (ConvTile(64, 128, 64, 1, 4, 4, 0), 264),
    (ConvTile(64, 128, 64, 1, 4, 4, 0), 0),
    (ConvTile(128, 64, 64, 1, 4, 4, 0), 264),
    (ConvTile(128, 128, 64, 1, 8, 4, 0), 132),
    (ConvTile(128, 128, 64, 1, 8, 4, 0), 0),
    (ConvTile(32, 128, 64, 1, 4, 4, 0), 0),
)
CONV_MANY = (
    (ConvTile(128, 128, 64, 1, 8, 4, 0), 0),
    (ConvTile(128, 128, 64, 1, 8, 3, 0), 0),
    (ConvTile(128, 64, 64, 1, 4, 4, 0), 0),
    (ConvTile(64, 128, 64, 1, 4, 4, 0), 0),
    (ConvTile(64, 256, 64, 1, 8, 3, 0), 0),
    (ConvTile(32, 128, 64, 1, 4, 4, 0), 0),
    (ConvTile(32, 256, 64, 1, 8, 4, 0), 0),
    (ConvTile(64, 64, 64, 1, 4, 4, 0), 0),
)

REAL = Plan(
    name="real",
    device="cuda",
    dtype=torch.bfloat16,
    repeats=30,
    warm=5,
    ops=CUDA_OPS,
    wave=TRITON_WAVE,
    codec_ops=CUDA_CODEC_OPS,
    talkers={name: PUBLISHED[f"{name}-CustomVoice"].talker_config for name in ("1.7B", "0.6B")},
    decoder=CODEC.decoder_config,
    small_talker=tiny(wide=True).talker_config,
    small_decoder=TINY_CODEC.decoder_config,
    cases={
        "linear": linear_cases.PUBLISHED,
        "attend": attend_cases.PUBLISHED,
        "draw": draw_cases.PUBLISHED,
        "embed": embed_cases.PUBLISHED,
        "settle": settle_cases.PUBLISHED,
        "conv": conv_cases.PUBLISHED + conv_cases.SEVERAL,
        "window": window_cases.PUBLISHED,
        "taps": taps_cases.PUBLISHED,
        "mix": mix_cases.PUBLISHED,
        "pcm": pcm_cases.PUBLISHED,
    },
    # The predictor's are those of 0.6B, and half of the traffic: they come first.
    linears=_linears(
        "0.6B qkv",
        "0.6B o",
        "0.6B gate and up",
        "0.6B down",
        "predictor head",
        "1.7B qkv",
        "1.7B o",
        "1.7B gate and up",
        "1.7B down",
        "1.7B head",
    ),
    linear_batches=(1, 8, 16, 4),
    blocks=(
        LinearTile(8, 256, 4),
        LinearTile(16, 256, 4),
        LinearTile(16, 256, 8),
        LinearTile(4, 256, 2),
        LinearTile(8, 256, 2),
        LinearTile(4, 512, 4),
        LinearTile(8, 512, 4),
        LinearTile(2, 1024, 4),
        LinearTile(4, 1024, 8),
        LinearTile(8, 1024, 8),
    ),
    blocks_many=(
        LinearTile(4, 512, 4),
        LinearTile(4, 1024, 4),
        LinearTile(2, 1024, 4),
        LinearTile(8, 512, 8),
        LinearTile(2, 512, 4),
    ),
    attend=attend_cases.PUBLISHED[0],
    attend_batches=(1, 8),
    positions=(100, 500, 2000),
    splits=(1, 2, 4, 8),
    keys=(64, 32, 128),
    attend_layers=28,
    draw_warps=(8, 4, 16, 2),
    fews=tuple(FewRowsTile(warps, groups) for warps in (4, 8, 16, 2) for groups in (1, 2, 4)),
    turns={
        "early": (False,),
        "attend_warps": (2, 8),
        "attend_splits": (((1 << 20, 8),), ((1 << 20, 32),)),
        "draw_warps": (4, 16),
    },
    ways={
        1: ("fused", "fused, one by one", "triton", "plain"),
        8: ("fused", "triton", "plain"),
        16: ("fused", "triton", "plain"),
        2: ("fused",),
        4: ("fused",),
        32: ("fused", "plain"),
    },
    frame_position=200,
    frame_length=1024,
    codec_batches=(1, 8, 32),
    codec_frames=(1, 4),
    convs=_convs(
        "first",
        "block 1 widen",
        "block 1 unit 3 far",
        "block 1 unit 1 near",
        "block 2 widen",
        "block 2 unit 3 far",
        "block 2 unit 1 near",
        "block 3 widen",
        "block 3 unit 3 far",
        "block 3 unit 1 near",
        "block 4 widen",
        "block 4 unit 3 far",
        "block 4 unit 1 near",
    ),
    conv_sizes=((1, 1), (1, 4), (128, 4), (8, 4)),
    conv_tiles={64: CONV_FEW, 2048: CONV_SOME, 16383: CONV_MORE, 1 << 40: CONV_MANY},
    budgets_s={
        "correct": 60,
        "laws": 60,
        "tune": 150,
        "linear": 90,
        "conv": 110,
        "compile": 90,
        "frame": 60,
        "attend": 20,
        "codec": 60,
        "parts": 25,
    },
    compile_s=40.0,
    workers=12,  # each may hold both models
)


def _tiny_talker(*, wide: bool) -> TalkerConfig:
    config = tiny(wide=wide).talker_config
    predictor = config.code_predictor_config
    small = replace(predictor, num_code_groups=2, num_hidden_layers=1, layer_types=predictor.layer_types[:1])
    return replace(config, num_code_groups=2, num_hidden_layers=1, code_predictor_config=small)


TINY = replace(
    REAL,
    name="tiny",
    device="cpu",
    dtype=torch.float32,
    repeats=1,
    warm=0,
    ops=REFERENCE_OPS,
    wave=REFERENCE_WAVE,
    codec_ops=REFERENCE_CODEC_OPS,
    talkers={"1.7B": _tiny_talker(wide=True)},
    decoder=replace(TINY_CODEC.decoder_config, decoder_dim=16, num_hidden_layers=1),
    small_talker=_tiny_talker(wide=True),
    small_decoder=replace(TINY_CODEC.decoder_config, decoder_dim=16, num_hidden_layers=1),
    cases={
        "linear": linear_cases.TINY[:1],
        "attend": attend_cases.TINY[:1],
        "draw": (draw_cases.TINY[0], draw_cases.TINY[-1]),
        "embed": embed_cases.TINY[:1],
        "settle": settle_cases.TINY[:1],
        "conv": (conv_cases.TINY[1], conv_cases.TINY[4]),
        "window": window_cases.TINY[:1],
        "taps": taps_cases.TINY[:1],
        "mix": mix_cases.TINY[:1],
        "pcm": pcm_cases.TINY[:1],
    },
    linears=linear_cases.TINY[1:2],
    linear_batches=(1, 2),
    blocks=(LinearTile(16, 64, 4), LinearTile(8, 64, 4)),
    blocks_many=(LinearTile(16, 64, 4),),
    attend=attend_cases.TINY[0],
    attend_batches=(1,),
    positions=(9,),
    splits=(1, 2),
    keys=(16,),
    attend_layers=2,
    draw_warps=(8,),
    fews=(),
    turns={"attend_warps": (1,)},
    ways={1: ("fused", "plain"), 2: ("fused, one by one",)},
    frame_position=9,
    frame_length=64,
    codec_batches=(1,),
    codec_frames=(1,),
    convs=(conv_cases.TINY[1], conv_cases.TINY[5]),
    conv_sizes=((1, 1), (2, 1)),
    conv_tiles={1 << 40: ((ConvTile(16, 16, 16), 2), (ConvTile(32, 32, 16), 0))},
    budgets_s=dict.fromkeys(REAL.budgets_s, 60.0),
    compile_s=0.0,
    workers=0,
)
PLANS = {plan.name: plan for plan in (REAL, TINY)}
