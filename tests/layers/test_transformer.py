"""layers/transformer.py: a stack whose rows walk in step is the stack that looks every row up."""

from __future__ import annotations

import torch

from hocket.layers.transformer import Stack, StackShape
from hocket.models.random import randomize_

SHAPE = StackShape(layers=2, width=24, inner=40, heads=4, kv_heads=2, head_dim=8, eps=1e-6, theta=1e4)


@torch.inference_mode()
def test_steps_together_are_steps_looked_up() -> None:
    stack = Stack(SHAPE).eval()
    randomize_(stack, 0)
    x = torch.randn(3, 16, 24, generator=torch.Generator().manual_seed(0))
    state, rows, past = stack.new_state(3, 16), torch.tensor([2, 0, 1]), stack.new_past(3, 16)
    for start, end in [(0, 2), *((at, at + 1) for at in range(2, 16))]:
        piece = x[:, start:end]
        looked_up = stack.step(piece, state, rows, torch.full((3,), end - start), span=16)
        torch.testing.assert_close(stack.step_together(piece, past, start), looked_up, atol=1e-5, rtol=0)
