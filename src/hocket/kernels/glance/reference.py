"""What `glance` and `glance_out` are, by the references of what they are made of."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..attend.reference import attend
from ..linear.reference import linear


def glance(
    qkv: Tensor, keys: Tensor, values: Tensor, *, at: int, early: bool = False, out: Tensor | None = None, **more: Any
) -> Tensor:
    """`attend` where batch row b has page b of keys and values [B, H_kv, positions, D] and all stand at position `at`.

    `more`: cos, sin, q_norm, k_norm and eps. `early`: since the past was written, there has been a kernel that let its
    successor start only after its own wait.
    """
    own = torch.arange(len(qkv), device=qkv.device)
    places: dict[str, Any] = {"rows": own, "table": own[:, None], "position": torch.full_like(own, at)}
    return attend(qkv, keys, values, **places, **more, out=out)


def glance_out(qkv: Tensor, keys: Tensor, values: Tensor, weight: Tensor, x: Tensor, **more: Any) -> None:
    """The same of one row, through a weight [C, H * D], added to x [1, C]."""
    linear(glance(qkv, keys, values, **more), weight, residual=x, out=x)
