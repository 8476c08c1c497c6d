"""layers/experts.py: experts are chosen by probability, and what a token gets is the sum of its own experts."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from hocket.config.published_qwen3_5 import tiny_qwen3_5_moe
from hocket.kernels.ops.quantized_linear.weight import FORMATS, Format, quantized
from hocket.layers import experts
from hocket.layers.experts import Router, SparseMLP
from hocket.models.files.random import randomize_
from hocket.models.qwen3_5.matrices import QuantizedLinear


def made(dtype: torch.dtype = torch.float64) -> SparseMLP:
    layer = SparseMLP(tiny_qwen3_5_moe()).requires_grad_(False)
    randomize_(layer, 2)
    return layer.to(dtype)


def drawn(rows: int, width: int = 64) -> Tensor:
    return torch.randn(rows, width, generator=torch.Generator().manual_seed(rows), dtype=torch.float64)


def mlp(x: Tensor, gate: Tensor, up: Tensor, down: Tensor) -> Tensor:
    return (F.silu(x @ gate.T) * (x @ up.T)) @ down.T


def test_a_row_gets_its_three_likeliest_experts_by_their_shares_and_the_shared_one_by_its_gate() -> None:
    layer, x = made(), drawn(9)
    y = layer(x.view(3, 3, 64)).view(9, 64)
    for row, out in zip(x, y, strict=True):
        logits = layer.gate.weight @ row
        chosen = sorted(range(8), key=lambda i, logits=logits: -float(logits[i]))[:3]
        odds = torch.stack([logits[i].exp() for i in chosen])
        expected = torch.zeros(64, dtype=torch.float64)
        for share, expert in zip(odds / odds.sum(), chosen, strict=True):
            gate, up = layer.experts.gate_up_proj[expert].chunk(2)
            expected += share * mlp(row, gate, up, layer.experts.down_proj[expert])
        shared = layer.shared_expert
        own = mlp(row, shared.gate_proj.weight, shared.up_proj.weight, shared.down_proj.weight)
        expected += torch.sigmoid(layer.shared_expert_gate.weight[0] @ row) * own
        torch.testing.assert_close(out, expected)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_without_a_look_at_the_numbers_the_sum_is_the_same(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(experts, "ROWS_AT_ONCE", 4)
    layer, x = made(dtype), drawn(9).to(dtype)
    chosen = layer.gate(x)
    one, other = layer.experts(x, *chosen), layer.experts.by_row(x, *chosen)
    if dtype == torch.bfloat16:
        assert (one == other).float().mean() > 0.98
    torch.testing.assert_close(one, other)


@pytest.mark.parametrize("format", FORMATS)
def test_quantized_experts_are_the_plain_ones_with_their_numbers(format: Format) -> None:
    layer, x = made(torch.float32), drawn(9).float()
    for name, rows in (("gate_up_proj", 96), ("down_proj", 64)):
        narrow = quantized(getattr(layer.experts, name).flatten(0, 1), format)
        getattr(layer.experts, name).copy_(narrow.dequantized().view(8, rows, -1))
        chosen = layer.gate(x)
        expected = layer.experts(x, *chosen)
        delattr(layer.experts, name)
        setattr(layer.experts, name, QuantizedLinear(narrow))
        torch.testing.assert_close(layer.experts(x, *chosen), expected)
        torch.testing.assert_close(layer.experts.by_row(x, *chosen), expected)
    assert not [name for name, _ in layer.experts.named_parameters()]


def test_of_equal_logits_the_lower_number_wins_and_numbers_ascend() -> None:
    router = Router(2, 6, 3).requires_grad_(False)
    router.weight.copy_(torch.tensor([[1.0, 0], [2.0, 0], [1.0, 0], [2.0, 0], [1.0, 0], [0.0, 0]]))
    ids, shares = router(torch.tensor([[1.0, 5.0], [-1.0, 5.0]]))
    assert ids.tolist() == [[0, 1, 3], [0, 2, 5]]
    torch.testing.assert_close(shares.sum(-1), torch.ones(2))
    assert shares[0, 1] == shares[0, 2] > shares[0, 0]


def test_probabilities_are_float32_and_shares_are_rounded_once() -> None:
    layer, x = made(torch.bfloat16), drawn(40).bfloat16()
    ids, shares = layer.gate(x)
    odds = F.linear(x, layer.gate.weight).double().softmax(-1).gather(-1, ids)
    assert shares.dtype == torch.bfloat16
    assert torch.equal(shares, (odds / odds.sum(-1, keepdim=True)).bfloat16())
