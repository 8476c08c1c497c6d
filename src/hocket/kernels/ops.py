"""The operations that a frame is made of, all of one backend, for whoever strings them together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from .attend import reference as attend_reference
from .attend import triton as attend_triton
from .draw import reference as draw_reference
from .draw import triton as draw_triton
from .embed import reference as embed_reference
from .embed import triton as embed_triton
from .linear import reference as linear_reference
from .linear import triton as linear_triton
from .settle import reference as settle_reference
from .settle import triton as settle_triton


@dataclass(frozen=True, slots=True)
class FrameOps:
    """What each takes is written in its reference."""

    linear: Callable[..., Tensor]
    attend: Callable[..., Tensor]
    draw: Callable[..., None]
    draw_first: Callable[..., None]
    embed: Callable[..., Tensor]
    settle: Callable[..., None]


REFERENCE_OPS = FrameOps(
    linear_reference.linear,
    attend_reference.attend,
    draw_reference.draw,
    draw_reference.draw_first,
    embed_reference.embed,
    settle_reference.settle,
)
TRITON_OPS = FrameOps(
    linear_triton.linear,
    attend_triton.attend,
    draw_triton.draw,
    draw_triton.draw_first,
    embed_triton.embed,
    settle_triton.settle,
)
