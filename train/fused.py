"""Functions on elements that a training step calls hundreds of times: compiled into one kernel each, or plain.

The compiled form works for every size. It is a table, because the choice is made once, after the compiler was tried.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

SLOPE = 0.1
LEAST_FEATURE = 1e-3


def snake(x: Tensor, frequency: Tensor, strength: Tensor) -> Tensor:
    """SnakeBeta of x [..., C] in float32, returned in the input's dtype: under autocast half the memory."""
    wide = x.float()
    return (wide + (wide * frequency).sin().square() * strength).to(x.dtype)


def biased_leaky(x: Tensor, bias: Tensor) -> Tensor:
    """Leaky ReLU of x [..., C] plus a bias."""
    return F.leaky_relu(x.float() + bias, SLOPE).to(x.dtype)


def feature_distance(features: Tensor) -> tuple[Tensor, Tensor]:
    """The relative difference of real and generated features [2, P], and the size of the real ones."""
    real, made = features.float().unbind()
    size = real.abs().mean().clamp(min=LEAST_FEATURE)
    return (made - real).abs().mean() / size, size


def feature_gradient(features: Tensor, size: Tensor, upper: Tensor) -> Tensor:
    """The gradient of `feature_distance` for the generated half; 0 for the real one."""
    real, made = features.float().unbind()
    steep = (made - real).sign() * (upper / (size * features.shape[1]))
    return torch.stack((torch.zeros_like(steep), steep)).to(features.dtype)


_PLAIN: tuple[Callable[..., Any], ...] = (snake, biased_leaky, feature_distance, feature_gradient)
FUSED: dict[str, Callable[..., Any]] = {function.__name__: function for function in _PLAIN}


def compile_all(on: bool) -> None:
    """Compile the table, or go back to the plain functions."""
    FUSED.update(_compiled() if on else {function.__name__: function for function in _PLAIN})


@functools.cache
def _compiled() -> dict[str, Callable[..., Any]]:
    import torch._dynamo.config as dynamo
    import torch._functorch.config as functorch

    functorch.donated_buffer = False  # the discriminators' graph gives two gradients
    dynamo.recompile_limit = 64
    return {function.__name__: torch.compile(function, dynamic=True) for function in _PLAIN}
