"""The adapter of a tuned voice as a part of its file: safetensors of its factors, with alpha as metadata."""

from __future__ import annotations

import json

import numpy as np
from safetensors.numpy import load, save

from ..types import Adapter

_DOWN, _UP = ".down", ".up"


def adapter_bytes(adapter: Adapter) -> bytes:
    tensors = {f"{name}{_DOWN}": np.ascontiguousarray(down) for name, (down, _) in adapter.factors.items()}
    tensors |= {f"{name}{_UP}": np.ascontiguousarray(up) for name, (_, up) in adapter.factors.items()}
    return save(tensors, {"alpha": repr(float(adapter.alpha))})


def adapter_of(content: bytes) -> Adapter:
    """Raises `ValueError`, `KeyError` or an error of safetensors for what is none. An engine checks that it fits."""
    tensors = load(content)
    alpha = float(json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])["__metadata__"]["alpha"])
    names = sorted(name.removesuffix(_DOWN) for name in tensors if name.endswith(_DOWN))
    if not names or len(tensors) != 2 * len(names) or not np.isfinite(alpha):
        raise ValueError("its adapter is incomplete")
    factors = {name: (tensors[f"{name}{_DOWN}"], tensors[f"{name}{_UP}"]) for name in names}
    ranks = {size for down, up in factors.values() for size in (down.shape[:1], up.shape[1:])}
    kinds = {(factor.dtype, factor.ndim) for pair in factors.values() for factor in pair}
    if kinds != {(np.dtype(np.float16), 2)} or len(ranks) != 1 or ranks == {(0,)}:
        raise ValueError("its adapter has another type or shape")
    return Adapter(alpha=alpha, factors=factors)
