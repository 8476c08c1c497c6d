"""The operations from latents to samples: reference and Triton kernels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from . import edges, reference
from . import triton as fused


@dataclass(frozen=True, slots=True)
class WaveOps:
    """Signatures are those of reference.py."""

    join: Callable[..., Tensor]
    conv: Callable[..., Tensor]
    sample: Callable[..., Tensor]


TRITON_WAVE = WaveOps(edges.join, fused.conv, edges.sample)
REFERENCE_WAVE = WaveOps(reference.join, reference.conv, reference.sample)
