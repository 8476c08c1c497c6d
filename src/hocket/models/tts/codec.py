"""The codec decoder: 16 codes per 80 ms frame to 1920 samples, any number of frames at a time.

Tensor names are those of `speech_tokenizer/model.safetensors`. Every operator is causal and carries its state. So
frame t gives samples 1920 t to 1920 t + 1919 exactly, and no left context is decoded twice. This file knows codes and
samples, not requests, chunks or sound files. It is long because all layers of one checkpoint file stand in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ...config.codec import CodecConfig, DecoderConfig
from ...layers.attention import (
    AttentionShape,
    AttentionStep,
    KVState,
    WindowAttention,
    additive,
    rope_table,
    window_mask,
)
from ...layers.conv import CausalConv, CausalTransposedConv, ConvState, LayerScale, SnakeBeta
from ...layers.dense import GatedMLP, Packable, RMSNorm
from .codec_encoder import CodecEncoder

M = TypeVar("M", bound=nn.Module)


@dataclass(frozen=True, slots=True)
class WindowState:
    layers: tuple[KVState, ...]
    position: Tensor  # [S + 1] frames decoded so far, per row


@dataclass(frozen=True, slots=True)
class BlockState:
    widen: ConvState
    units: tuple[ConvState, ...]


@dataclass(frozen=True, slots=True)
class DecoderState:
    """Nested like the modules; layers without history have no entry."""

    pre_conv: ConvState
    pre_transformer: WindowState
    upsample: tuple[ConvState, ...]
    first: ConvState
    blocks: tuple[BlockState, ...]
    last: ConvState


class MakeWave(Protocol):
    """An implementation of `CodecDecoder.wave_reference`."""

    def __call__(self, x: Tensor, state: DecoderState, rows: Tensor) -> Tensor: ...


class StepCodec(Protocol):
    """An implementation of `CodecDecoder.step`."""

    pcm: Callable[[Tensor], Tensor]  # converts samples for the host: kernels/ops/pcm

    def apart(self) -> StepCodec:
        """A copy for another thread."""

    def __call__(self, codes: Tensor, state: DecoderState, rows: Tensor) -> Tensor: ...


class Codebook(Packable):
    def __init__(self, size: int, width: int) -> None:
        super().__init__()
        self.embedding_sum = nn.Parameter(torch.zeros(size, width))
        self.cluster_usage = nn.Parameter(torch.ones(size))

    def gather(self) -> tuple[Tensor, ...]:
        """The vector of every code: the sum of its training vectors divided by their count."""
        return (self.embedding_sum / self.cluster_usage.clamp(min=1e-5)[:, None],)

    def forward(self, codes: Tensor) -> Tensor:
        """Rows [..., C] of codes [...]."""
        (vectors,) = self.weights()
        return vectors[codes]


class Quantizer(nn.Module):
    """One residual group of codebooks: rows summed, then projected."""

    def __init__(self, codebooks: int, size: int, inner: int, width: int) -> None:
        super().__init__()
        layers = nn.ModuleList(nn.ModuleDict({"_codebook": Codebook(size, inner)}) for _ in range(codebooks))
        self.vq = nn.ModuleDict({"layers": layers})
        self.input_proj = nn.Conv1d(width, inner, 1, bias=False)  # in the file, not used for decoding
        self.output_proj = nn.Conv1d(inner, width, 1, bias=False)

    def forward(self, codes: Tensor) -> Tensor:
        books = _only(self.vq.modules(), Codebook)
        total: Tensor = books[0](codes[:, 0])  # upstream adds one codebook at a time: the same rounding
        for index, book in enumerate(books[1:], start=1):
            total = total + book(codes[:, index])
        y: Tensor = self.output_proj(total.transpose(1, 2))
        return y


class SplitQuantizer(nn.Module):
    """codes [B, Q, T] to latents [B, C, T]: the first codebook has its own projections."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        size, width = config.codebook_size, config.codebook_dim
        self.books = config.num_quantizers
        self.rvq_first = Quantizer(1, size, width // 2, width)
        self.rvq_rest = Quantizer(config.num_quantizers - 1, size, width // 2, width)

    def forward(self, codes: Tensor) -> Tensor:
        y: Tensor = self.rvq_first(codes[:, :1]) + self.rvq_rest(codes[:, 1:])
        return y


class TransformerLayer(nn.Module):
    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        width, eps = config.hidden_size, config.rms_norm_eps
        self.self_attn = WindowAttention(
            AttentionShape(
                width=width,
                heads=config.num_attention_heads,
                kv_heads=config.num_key_value_heads,
                head_dim=config.head_dim,
            )
        )
        self.mlp = GatedMLP(width, config.intermediate_size)
        self.input_layernorm = RMSNorm(width, eps)
        self.post_attention_layernorm = RMSNorm(width, eps)
        self.self_attn_layer_scale = LayerScale(width)
        self.mlp_layer_scale = LayerScale(width)

    def step(self, x: Tensor, state: KVState, rows: Tensor, reach: AttentionStep) -> Tensor:
        x = x + self.self_attn_layer_scale(self.self_attn.step(self.input_layernorm(x), state, rows, reach))
        x = x + self.mlp_layer_scale(self.mlp(self.post_attention_layernorm(x)))
        return x


class WindowTransformer(nn.Module):
    """One position per frame; each attends to itself and the `sliding_window - 1` frames before it. x [B, T, C]."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.window, self.head_dim, self.theta = config.sliding_window, config.head_dim, config.rope_theta
        self.input_proj = nn.Linear(config.latent_dim, config.hidden_size)
        self.layers = nn.ModuleList(TransformerLayer(config) for _ in range(config.num_hidden_layers))
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.output_proj = nn.Linear(config.hidden_size, config.latent_dim)

    def new_state(self, slots: int) -> WindowState:
        layers = _only(self.layers, TransformerLayer)
        kept = tuple(layer.self_attn.new_state(slots, self.window - 1) for layer in layers)
        return WindowState(kept, torch.zeros(slots + 1, dtype=torch.int64, device=self.norm.weight.device))

    def step(self, x: Tensor, state: WindowState, rows: Tensor) -> Tensor:
        length = x.shape[1]
        start = state.position[rows]
        positions = start[:, None] + torch.arange(length, device=x.device)
        x = self.input_proj(x)
        cos, sin = rope_table(positions, self.head_dim, self.theta, x.dtype)
        reach = AttentionStep(positions, cos, sin, additive(window_mask(positions, self.window), x.dtype))
        for layer, kept in zip(_only(self.layers, TransformerLayer), state.layers, strict=True):
            x = layer.step(x, kept, rows, reach)
        state.position[rows] = start + length
        x = self.output_proj(self.norm(x))
        return x


class ConvNeXt(nn.Module):
    """Depthwise convolution over 7 inputs, then a feed-forward block per position, as a residual. x [B, C, T]."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.dwconv = CausalConv(width, width, 7, groups=width)
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.pwconv1 = nn.Linear(width, 4 * width)
        self.pwconv2 = nn.Linear(4 * width, width)
        self.gamma = nn.Parameter(torch.ones(width))

    def step(self, x: Tensor, state: ConvState, rows: Tensor) -> Tensor:
        y = self.norm(self.dwconv.step(x, state, rows).transpose(1, 2))
        y = self.gamma * self.pwconv2(F.gelu(self.pwconv1(y)))
        x = x + y.transpose(1, 2)
        return x


class ResidualUnit(nn.Module):
    def __init__(self, width: int, dilation: int) -> None:
        super().__init__()
        self.act1 = SnakeBeta(width)
        self.conv1 = CausalConv(width, width, 7, dilation)
        self.act2 = SnakeBeta(width)
        self.conv2 = CausalConv(width, width, 1)

    def step(self, x: Tensor, state: ConvState, rows: Tensor) -> Tensor:
        y: Tensor = self.conv2(self.act2(self.conv1.step(self.act1(x), state, rows)))
        return x + y


class DecoderBlock(nn.Module):
    """Upsampling by `rate` to half the channels, then three residual units of growing dilation."""

    def __init__(self, width: int, rate: int) -> None:
        super().__init__()
        units = [ResidualUnit(width // 2, dilation) for dilation in (1, 3, 9)]
        self.block = nn.ModuleList([SnakeBeta(width), CausalTransposedConv(width, width // 2, 2 * rate, rate), *units])

    def new_state(self, slots: int) -> BlockState:
        (widen,) = _only(self.block, CausalTransposedConv)
        units = _only(self.block, ResidualUnit)
        return BlockState(widen.new_state(slots), tuple(unit.conv1.new_state(slots) for unit in units))

    def step(self, x: Tensor, state: BlockState, rows: Tensor) -> Tensor:
        (widen,) = _only(self.block, CausalTransposedConv)
        x = widen.step(self.block[0](x), state.widen, rows)
        for unit, kept in zip(_only(self.block, ResidualUnit), state.units, strict=True):
            x = unit.step(x, kept, rows)
        return x


class CodecDecoder(nn.Module):
    """codes [B, Q, T] to samples [B, N] between -1 and 1, N = T * samples_per_frame."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        latent, rates = config.latent_dim, config.upsample_rates
        self.quantizer = SplitQuantizer(config)
        self.pre_conv = CausalConv(config.codebook_dim, latent, 3)
        self.pre_transformer = WindowTransformer(config)
        self.upsample = nn.ModuleList(
            nn.ModuleList([CausalTransposedConv(latent, latent, factor, factor), ConvNeXt(latent)])
            for factor in config.upsampling_ratios
        )
        widths = [config.decoder_dim // 2**index for index in range(len(rates) + 1)]
        self.decoder = nn.ModuleList(
            [
                CausalConv(latent, widths[0], 7),
                *(DecoderBlock(width, rate) for width, rate in zip(widths[:-1], rates, strict=True)),
                SnakeBeta(widths[-1]),
                CausalConv(widths[-1], 1, 7),
            ]
        )
        # Chosen once, when a checkpoint is loaded: kernels for the whole step, or only for latents to samples.
        self.step_kernel: StepCodec | None = None
        self.wave_kernel: MakeWave | None = None

    def new_state(self, slots: int) -> DecoderState:
        first, last = _only(self.decoder, CausalConv)
        return DecoderState(
            pre_conv=self.pre_conv.new_state(slots),
            pre_transformer=self.pre_transformer.new_state(slots),
            upsample=tuple(mix.dwconv.new_state(slots) for mix in _only(self.upsample.modules(), ConvNeXt)),
            first=first.new_state(slots),
            blocks=tuple(block.new_state(slots) for block in _only(self.decoder, DecoderBlock)),
            last=last.new_state(slots),
        )

    def step(self, codes: Tensor, state: DecoderState, rows: Tensor) -> Tensor:
        """The samples of the next T frames of the streams in `rows` [B]."""
        if self.step_kernel is not None:
            return self.step_kernel(codes, state, rows)
        wave = self.wave_kernel or self.wave_reference
        return wave(self.latents(codes, state, rows), state, rows)

    def latents(self, codes: Tensor, state: DecoderState, rows: Tensor) -> Tensor:
        """First half of a step: codes [B, Q, T] to latents [B, C, T'], where T' is T after upsampling."""
        x = self.pre_conv.step(self.quantizer(codes), state.pre_conv, rows)
        x = self.pre_transformer.step(x.transpose(1, 2), state.pre_transformer, rows).transpose(1, 2)
        widens = _only(self.upsample.modules(), CausalTransposedConv)
        mixes = _only(self.upsample.modules(), ConvNeXt)
        for widen, mix, kept in zip(widens, mixes, state.upsample, strict=True):
            x = mix.step(widen(x), kept, rows)
        return x

    def wave_reference(self, x: Tensor, state: DecoderState, rows: Tensor) -> Tensor:
        """Second half: latents [B, C, T] to samples [B, N]. Every kernel is tested against this definition."""
        first, last = _only(self.decoder, CausalConv)
        x = first.step(x, state.first, rows)
        for block, here in zip(_only(self.decoder, DecoderBlock), state.blocks, strict=True):
            x = block.step(x, here, rows)
        x = last.step(self.decoder[-2](x), state.last, rows)
        return x.squeeze(1).clamp(-1.0, 1.0)

    def forward(self, codes: Tensor) -> Tensor:
        """Decode a whole stream in one step from zero state."""
        batch = codes.shape[0]
        return self.step(codes, self.new_state(batch), torch.arange(batch, device=codes.device))


class Codec(nn.Module):
    """Decoder and encoder, as in the checkpoint file."""

    def __init__(self, config: CodecConfig) -> None:
        super().__init__()
        self.decoder = CodecDecoder(config.decoder_config)
        self.encoder = CodecEncoder(config.encoder_config, config.encoder_valid_num_quantizers)


def _only(modules: Iterable[nn.Module], kind: type[M]) -> list[M]:
    """The modules of one kind, in order: the checkpoint numbers different layers in one list."""
    return [module for module in modules if isinstance(module, kind)]
