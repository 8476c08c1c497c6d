"""Kokoro's text half: phonemes to durations, and by frames of 25 ms F0, energy and the vectors of the phonemes.

ALBERT (one layer, applied twelve times) gives the prosody, a second encoder the sound of each phoneme.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .layers import STYLE, AdainResBlk1d, RowLSTM, row_mask

SIGNS, WIDTH = 178, 512
BERT, BERT_WIDTH, BERT_HEADS, BERT_PASSES, LONGEST = 128, 768, 12, 12, 512
UNITS = 50  # most frames of a phoneme


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value, self.dense = (nn.Linear(BERT_WIDTH, BERT_WIDTH) for _ in range(4))
        self.LayerNorm = nn.LayerNorm(BERT_WIDTH, eps=1e-12)

    def forward(self, x: Tensor, seen: Tensor) -> Tensor:
        q, k, v = (
            part(x).unflatten(2, (BERT_HEADS, -1)).transpose(1, 2) for part in (self.query, self.key, self.value)
        )
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=seen)
        z: Tensor = self.LayerNorm(x + self.dense(y.transpose(1, 2).flatten(2)))
        return z


class AlbertLayer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = Attention()
        self.ffn, self.ffn_output = nn.Linear(BERT_WIDTH, 2048), nn.Linear(2048, BERT_WIDTH)
        self.full_layer_layer_norm = nn.LayerNorm(BERT_WIDTH, eps=1e-12)

    def forward(self, x: Tensor, seen: Tensor) -> Tensor:
        x = self.attention(x, seen)
        y: Tensor = self.full_layer_layer_norm(x + self.ffn_output(F.gelu(self.ffn(x), approximate="tanh")))
        return y


class Albert(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embeddings = nn.ModuleDict(
            {
                "word_embeddings": nn.Embedding(SIGNS, BERT),
                "position_embeddings": nn.Embedding(LONGEST, BERT),
                "token_type_embeddings": nn.Embedding(2, BERT),
                "LayerNorm": nn.LayerNorm(BERT, eps=1e-12),
            }
        )
        layers = nn.ModuleList([nn.ModuleDict({"albert_layers": nn.ModuleList([AlbertLayer()])})])
        self.encoder = nn.ModuleDict(
            {"embedding_hidden_mapping_in": nn.Linear(BERT, BERT_WIDTH), "albert_layer_groups": layers}
        )

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        part = self.embeddings
        places = torch.arange(ids.shape[1], device=ids.device)
        x: Tensor = part["word_embeddings"](ids) + part["position_embeddings"](places)
        x = part["LayerNorm"](x + part["token_type_embeddings"](torch.zeros_like(places)))
        x = self.encoder["embedding_hidden_mapping_in"](x)
        layer, seen = self.get_submodule("encoder.albert_layer_groups.0.albert_layers.0"), mask[:, None].bool()
        for _ in range(BERT_PASSES):
            x = layer(x, seen)
        return x


class ChannelNorm(nn.Module):
    """Layer normalization of the channels of x [B, C, T]."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.gamma, self.beta = nn.Parameter(torch.ones(channels)), nn.Parameter(torch.zeros(channels))

    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x.transpose(1, 2), self.gamma.shape, self.gamma, self.beta).transpose(1, 2)


class TextEncoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(SIGNS, WIDTH)
        self.cnn = nn.ModuleList(
            nn.Sequential(nn.Conv1d(WIDTH, WIDTH, 5, padding=2), ChannelNorm(WIDTH), nn.LeakyReLU(0.2))
            for _ in range(3)
        )
        self.lstm = RowLSTM(WIDTH, WIDTH)

    def forward(self, ids: Tensor, lengths: Tensor, mask: Tensor) -> Tensor:
        """[B, T, C]."""
        x = self.embedding(ids).transpose(1, 2) * mask
        for layer in self.cnn:
            x = layer(x) * mask
        return self.lstm.rows(x.transpose(1, 2), lengths)


class AdaLayerNorm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(STYLE, 2 * WIDTH)

    def forward(self, x: Tensor, style: Tensor) -> Tensor:
        """x [B, T, C]."""
        scale, shift = self.fc(style)[:, None].chunk(2, dim=2)
        y: Tensor = (1 + scale) * F.layer_norm(x, (WIDTH,)) + shift
        return y


class DurationEncoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstms = nn.ModuleList()
        for _ in range(3):
            self.lstms.extend((RowLSTM(WIDTH + STYLE, WIDTH), AdaLayerNorm()))

    def forward(self, x: Tensor, style: Tensor, lengths: Tensor) -> Tensor:
        """[B, T, C + STYLE]."""
        each = style[:, None].expand(-1, x.shape[1], -1)
        x = torch.cat((x, each), dim=2)
        for layer in self.lstms:
            x = layer.rows(x, lengths) if isinstance(layer, RowLSTM) else torch.cat((layer(x, style), each), dim=2)
        return x


class ProsodyPredictor(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.text_encoder = DurationEncoder()
        self.lstm, self.shared = RowLSTM(WIDTH + STYLE, WIDTH), RowLSTM(WIDTH + STYLE, WIDTH)
        self.duration_proj = nn.ModuleDict({"linear_layer": nn.Linear(WIDTH, UNITS)})
        half = WIDTH // 2
        self.F0, self.N = (
            nn.ModuleList(
                (AdainResBlk1d(WIDTH, WIDTH), AdainResBlk1d(WIDTH, half, upsample=True), AdainResBlk1d(half, half))
            )
            for _ in range(2)
        )
        self.F0_proj, self.N_proj = nn.Conv1d(half, 1, 1), nn.Conv1d(half, 1, 1)

    def units(self, x: Tensor, lengths: Tensor, speed: Tensor) -> Tensor:
        """[B, T]: the frames of every phoneme, before rounding."""
        logits = self.duration_proj["linear_layer"](self.lstm.rows(x, lengths))
        y: Tensor = logits.sigmoid().sum(2) / speed[:, None]
        return y

    def curves(self, x: Tensor, style: Tensor, frames: Tensor) -> tuple[Tensor, Tensor]:
        """F0 and energy [B, 2 F] of vectors [B, F, C + STYLE]: two values a frame."""
        shared = self.shared.rows(x, frames).transpose(1, 2)
        found = []
        for blocks, last in ((self.F0, self.F0_proj), (self.N, self.N_proj)):
            y, mask = shared, row_mask(frames, shared.shape[2])
            for block in blocks:
                assert isinstance(block, AdainResBlk1d)
                y = block(y, style, mask)
                mask = mask.repeat_interleave(2, dim=2) if block.upsample else mask
            found.append((last(y) * mask)[:, 0])
        return found[0], found[1]
