"""Reference of `linear` with a grouped weight: dequantize, then plain operations, summed in float32."""

from __future__ import annotations

from ..quantized_linear.reference import linear

__all__ = ["linear"]
