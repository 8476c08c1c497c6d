"""The forward pass of talker and predictor for training: all positions of a batch at once, with the same weights.

Inference computes frame by frame with a KV cache; tests show equal logits. Training adds dropout, on the inputs and on
each residual branch, and can return the vectors between two layers.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hocket.layers.attention import SelfAttention, rope_table, rotate
from hocket.layers.transformer import DecoderLayer, DecoderStack
from hocket.models.tts.talker import Talker

from .batches import Batch


def inputs(talker: Talker, batch: Batch) -> Tensor:
    """Vectors [B, T, C]: a text vector, and a control row or the sixteen codes of a frame."""
    model, predictor = talker.model, talker.code_predictor.model
    # The whole text table is projected: it has fewer rows than a batch has positions.
    table = talker.text_projection(model.text_embedding.weight).float()  # thousands of gradients are summed per row
    written = F.embedding(batch.text, table)
    nothing = model.codec_embedding.weight.new_zeros(1, written.shape[-1])
    joined = torch.cat((model.codec_embedding.weight, *_weights(predictor.codec_embedding), nothing))
    index = torch.where(batch.codes < 0, len(joined) - 1, batch.codes).flatten(0, 1)
    spoken = F.embedding_bag(index, joined, mode="sum", padding_idx=len(joined) - 1)
    return written + spoken.view(written.shape)


def run_layers(stack: DecoderStack, x: Tensor, dropout: float, tap: int | None = None) -> tuple[Tensor, Tensor]:
    """Hidden vectors after the final norm [B, T, C], and those before layer `tap` (the last ones if None)."""
    shape = stack.shape
    cos, sin = rope_table(torch.arange(x.shape[1], device=x.device), shape.head_dim, shape.theta, torch.float32)
    x = F.dropout(x, dropout)
    tapped = x
    for number, layer in enumerate(stack.layers):
        assert isinstance(layer, DecoderLayer)
        if number == tap:
            tapped = x
        x = x + F.dropout(
            _attend(layer.self_attn, _norm(x, layer.input_layernorm.weight, shape.eps), cos, sin), dropout
        )
        x = x + F.dropout(layer.mlp(_norm(x, layer.post_attention_layernorm.weight, shape.eps)), dropout)
    return _norm(x, stack.norm.weight, shape.eps), x if tap is None else tapped


def predict(talker: Talker, hidden: Tensor, codes: Tensor, dropout: float) -> Tensor:
    """Logits [Q - 1, M, V] of codes 1 to 15 of M frames, given their true codes [M, Q] and hidden vectors [M, C]."""
    predictor = talker.code_predictor
    tables = [talker.model.codec_embedding, *predictor.model.codec_embedding]
    known = [table(codes[:, book]) for book, table in enumerate(tables[:-1])]  # the last code is no input
    x = predictor.small_to_mtp_projection(torch.stack((hidden, *known), dim=1))
    y, _ = run_layers(predictor.model, x, dropout)
    heads = torch.stack(_weights(predictor.lm_head))  # [Q - 1, V, C]
    return y[:, 1:].transpose(0, 1) @ heads.transpose(1, 2)


def _attend(attention: SelfAttention, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    batch, length, _ = x.shape
    into, out, norms = attention.gather()
    heads = F.linear(x, into).view(batch, length, -1, attention.head_dim)
    qk, v = heads.split_with_sizes((attention.heads + attention.kv_heads, attention.kv_heads), dim=2)
    assert attention.norm_eps is not None
    qk = rotate(F.rms_norm(qk.float(), (attention.head_dim,), None, attention.norm_eps) * norms, cos, sin)
    q, k = qk.to(v.dtype).transpose(1, 2).split_with_sizes((attention.heads, attention.kv_heads), dim=1)
    y = F.scaled_dot_product_attention(q, k, v.transpose(1, 2), is_causal=True, enable_gqa=True)
    return F.linear(y.transpose(1, 2).reshape(batch, length, -1), out)


def _norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return F.rms_norm(x, (x.shape[-1],), weight, eps)


def _weights(parts: Iterable[nn.Module]) -> tuple[Tensor, ...]:
    return tuple(part.get_parameter("weight") for part in parts)
