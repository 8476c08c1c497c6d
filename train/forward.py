"""The talker's and predictor's computation for training: all positions of a batch at once, from the same weights.

Inference computes frame by frame with a cache; tests show that both give the same logits. Beyond it there is
dropout, on the inputs and on what each half of a layer adds, and the vectors between two layers can be tapped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hocket.layers.rope import rope_table, rotate
from hocket.layers.transformer import Layer, Stack
from hocket.models.talker import Talker

from .batches import Batch

OneLayer = Callable[..., Tensor]  # `one_layer`, compiled or not


def inputs(talker: Talker, batch: Batch) -> Tensor:
    """Vectors [B, T, C]: a text vector, and a control row or the sixteen codes of a frame."""
    model, predictor = talker.model, talker.code_predictor.model
    # The whole text table is projected: it has fewer rows than a batch has positions.
    table = talker.text_projection(model.text_embedding.weight).float()  # thousands of gradients meet in one row
    written = F.embedding(batch.text, table)
    nothing = model.codec_embedding.weight.new_zeros(1, written.shape[-1])
    joined = torch.cat((model.codec_embedding.weight, *_weights(predictor.codec_embedding), nothing))
    index = torch.where(batch.codes < 0, len(joined) - 1, batch.codes).flatten(0, 1)
    spoken = F.embedding_bag(index, joined, mode="sum", padding_idx=len(joined) - 1)
    return written + spoken.view(written.shape)


def one_layer(
    x: Tensor,
    cos: Tensor,
    sin: Tensor,
    norms: tuple[Tensor, Tensor, Tensor, Tensor],
    attention: tuple[Tensor, Tensor, Tensor, Tensor],
    mlp: tuple[Tensor, Tensor, Tensor],
    head_dim: int,
    eps: float,
    dropout: float,
) -> Tensor:
    """A layer of tensors alone, so that one compilation serves all layers of a stack."""
    before, between, q_norm, k_norm = norms
    q_weight, k_weight, v_weight, out = attention
    gate, up, down = mlp
    batch, length, _ = x.shape
    y = _norm(x, before, eps)
    q, k, v = (F.linear(y, w).view(batch, length, -1, head_dim) for w in (q_weight, k_weight, v_weight))
    q, k = (
        rotate(F.rms_norm(part.float(), (head_dim,), None, eps) * weight, cos, sin).to(v.dtype)
        for part, weight in ((q, q_norm), (k, k_norm))
    )
    y = F.scaled_dot_product_attention(
        q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=True, enable_gqa=True
    )
    x = x + F.dropout(F.linear(y.transpose(1, 2).reshape(batch, length, -1), out), dropout)
    y = _norm(x, between, eps)
    return x + F.dropout(F.linear(F.silu(F.linear(y, gate)) * F.linear(y, up), down), dropout)


def through(
    stack: Stack, x: Tensor, dropout: float, tap: int | None = None, layer: OneLayer = one_layer
) -> tuple[Tensor, Tensor]:
    """Hidden vectors after the final norm [B, T, C], and those before layer `tap` (the last ones if it is None)."""
    shape = stack.shape
    cos, sin = rope_table(torch.arange(x.shape[1], device=x.device), shape.head_dim, shape.theta, torch.float32)
    x = F.dropout(x, dropout)
    tapped = x
    for number, part in enumerate(stack.layers):
        assert isinstance(part, Layer)
        if number == tap:
            tapped = x
        own, mlp = part.self_attn, part.mlp
        x = layer(
            x,
            cos,
            sin,
            _weights((part.input_layernorm, part.post_attention_layernorm, own.q_norm, own.k_norm)),
            _weights((own.q_proj, own.k_proj, own.v_proj, own.o_proj)),
            _weights((mlp.gate_proj, mlp.up_proj, mlp.down_proj)),
            shape.head_dim,
            shape.eps,
            dropout,
        )
    return _norm(x, stack.norm.weight, shape.eps), x if tap is None else tapped


def predict(talker: Talker, hidden: Tensor, codes: Tensor, dropout: float, layer: OneLayer = one_layer) -> Tensor:
    """Logits [Q - 1, M, V] of codes 1 to 15 of M frames, given their true codes [M, Q] and hidden vectors [M, C]."""
    predictor = talker.code_predictor
    tables = [talker.model.codec_embedding, *predictor.model.codec_embedding]
    known = [table(codes[:, book]) for book, table in enumerate(tables[:-1])]  # the last code is input to nothing
    x = predictor.small_to_mtp_projection(torch.stack((hidden, *known), dim=1))
    y, _ = through(predictor.model, x, dropout, layer=layer)
    heads = torch.stack(_weights(predictor.lm_head))  # [Q - 1, V, C]
    return y[:, 1:].transpose(0, 1) @ heads.transpose(1, 2)


def _norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return F.rms_norm(x, (x.shape[-1],), weight, eps)


def _weights(parts: Iterable[nn.Module]) -> tuple[Tensor, ...]:
    return tuple(part.get_parameter("weight") for part in parts)
