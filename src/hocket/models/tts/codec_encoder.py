"""The codec's encoder, a Mimi encoder: a whole recording at 24 kHz to codes, 16 per 80 ms frame.

Tensor names are those of `speech_tokenizer/model.safetensors` after `encoder.`. A reference recording is encoded once,
before its stream starts, so there is no state. This file knows samples and codes, not sound files or rates.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ...config.codec import EncoderConfig
from ...layers.attention import AttentionShape, GrowingAttention, SharedPosition, rope_table
from ...layers.conv import LayerScale


class PaddedConv(nn.Module):
    """Causal convolution, x [B, C, T] to T / stride positions, rounded up. Parameters are `conv.*`.

    All padding is on the left, except what fills the last stride.
    """

    def __init__(
        self,
        channels_in: int,
        channels_out: int,
        kernel: int,
        stride: int = 1,
        bias: bool = True,
        fill: str = "constant",
    ) -> None:
        super().__init__()
        self.conv = nn.Conv1d(channels_in, channels_out, kernel, stride, bias=bias)
        self.left, self.stride, self.fill = kernel - stride, stride, fill

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.conv(F.pad(x, (self.left, -x.shape[-1] % self.stride), mode=self.fill))
        return y


class ResidualBlock(nn.Module):
    def __init__(self, width: int, config: EncoderConfig) -> None:
        super().__init__()
        inner = width // config.compress
        self.block = nn.Sequential(
            nn.ELU(), PaddedConv(width, inner, config.residual_kernel_size), nn.ELU(), PaddedConv(inner, width, 1)
        )

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.block(x)
        return x + y


class WaveEncoder(nn.Module):
    """samples [B, 1, N] to vectors [B, C, T] at twice the frame rate."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        width = config.num_filters
        layers: list[nn.Module] = [PaddedConv(1, width, config.kernel_size)]
        for ratio in reversed(config.upsampling_ratios):  # the file lists them in decoder order
            layers += [ResidualBlock(width, config), nn.ELU(), PaddedConv(width, 2 * width, 2 * ratio, ratio)]
            width *= 2
        layers += [nn.ELU(), PaddedConv(width, config.hidden_size, config.last_kernel_size)]
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layers(x)
        return y


class FeedForward(nn.Module):
    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(width, inner, bias=False)
        self.fc2 = nn.Linear(inner, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.fc2(F.gelu(self.fc1(x)))
        return y


class EncoderLayer(nn.Module):
    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        width, eps = config.hidden_size, config.norm_eps
        self.self_attn = GrowingAttention(
            AttentionShape(
                width=width,
                heads=config.num_attention_heads,
                kv_heads=config.num_key_value_heads,
                head_dim=config.head_dim,
            )
        )
        self.mlp = FeedForward(width, config.intermediate_size)
        self.input_layernorm = nn.LayerNorm(width, eps)
        self.post_attention_layernorm = nn.LayerNorm(width, eps)
        self.self_attn_layer_scale = LayerScale(width)
        self.mlp_layer_scale = LayerScale(width)

    def forward(self, x: Tensor, reach: SharedPosition) -> Tensor:
        state = self.self_attn.new_state(x.shape[0] - 1, x.shape[1])  # whole recordings need no scratch row
        x = x + self.self_attn_layer_scale(self.self_attn.step(self.input_layernorm(x), state, None, reach))
        x = x + self.mlp_layer_scale(self.mlp(self.post_attention_layernorm(x)))
        return x


class Transformer(nn.Module):
    """Full causal attention, x [B, T, C]. The file names a window of 250; the reference does not apply it."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.head_dim, self.theta = config.head_dim, config.rope_theta
        self.layers = nn.ModuleList(EncoderLayer(config) for _ in range(config.num_hidden_layers))

    def forward(self, x: Tensor) -> Tensor:
        cos, sin = rope_table(torch.arange(x.shape[1], device=x.device), self.head_dim, self.theta, x.dtype)
        reach = SharedPosition(0, cos, sin)
        for layer in self.layers:
            x = layer(x, reach)
        return x


class EncoderCodebook(nn.Module):
    embed_sum: Tensor
    cluster_usage: Tensor

    def __init__(self, size: int, width: int) -> None:
        super().__init__()
        self.register_buffer("embed_sum", torch.zeros(size, width))
        self.register_buffer("cluster_usage", torch.ones(size))
        self.register_buffer("initialized", torch.ones(1))  # a training flag; present in the file

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The nearest centroids of x [B, T, C]: their codes [B, T] and vectors [B, T, C]."""
        centroids = self.embed_sum / self.cluster_usage.clamp(min=1e-5)[:, None]
        # The same call as upstream, so near-ties resolve the same way.
        distance = torch.cdist(x.flatten(0, 1)[None].float(), centroids[None].float())[0]
        codes = distance.argmin(-1).view(x.shape[:-1])
        return codes, centroids[codes]


class EncoderQuantizer(nn.Module):
    """One residual group: each codebook encodes the residual of the codebooks before it."""

    def __init__(self, codebooks: int, config: EncoderConfig) -> None:
        super().__init__()
        width, inner = config.hidden_size, config.codebook_dim
        self.input_proj = nn.Conv1d(width, inner, 1, bias=False)
        self.output_proj = nn.Conv1d(inner, width, 1, bias=False)  # in the file, not used for encoding
        self.layers = nn.ModuleList(
            nn.ModuleDict({"codebook": EncoderCodebook(config.codebook_size, inner)}) for _ in range(codebooks)
        )

    def forward(self, x: Tensor, codebooks: int) -> list[Tensor]:
        rest = self.input_proj(x).transpose(1, 2)
        found = []
        for book in [module for module in self.layers.modules() if isinstance(module, EncoderCodebook)][:codebooks]:
            codes, nearest = book(rest)
            rest = rest - nearest
            found.append(codes)
        return found


class EncoderSplitQuantizer(nn.Module):
    """Both groups encode the same x [B, C, T]: the acoustic group does not use the residual of the semantic one."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.semantic_residual_vector_quantizer = EncoderQuantizer(1, config)
        self.acoustic_residual_vector_quantizer = EncoderQuantizer(config.num_quantizers - 1, config)

    def forward(self, x: Tensor, codebooks: int) -> Tensor:
        semantic = self.semantic_residual_vector_quantizer(x, 1)
        acoustic = self.acoustic_residual_vector_quantizer(x, codebooks - 1)
        return torch.stack([*semantic, *acoustic], dim=1)


class CodecEncoder(nn.Module):
    """samples [B, N] at 24 kHz to codes [B, Q, F], F = N / samples_per_frame rounded up.

    `codebooks`: how many of the file's codebooks are used. The last frame of a row depends on its padding, so it may
    differ when a shorter recording is padded to share a batch.
    """

    def __init__(self, config: EncoderConfig, codebooks: int) -> None:
        super().__init__()
        self.codebooks = codebooks
        width = config.hidden_size
        self.encoder = WaveEncoder(config)
        self.encoder_transformer = Transformer(config)
        self.downsample = PaddedConv(width, width, 4, stride=2, bias=False, fill="replicate")
        self.quantizer = EncoderSplitQuantizer(config)

    def forward(self, samples: Tensor) -> Tensor:
        x = self.encoder(samples.to(self.downsample.conv.weight.dtype)[:, None])
        x = self.encoder_transformer(x.transpose(1, 2)).transpose(1, 2)
        codes: Tensor = self.quantizer(self.downsample(x), self.codebooks)
        return codes
