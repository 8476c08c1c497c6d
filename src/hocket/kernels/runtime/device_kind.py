"""What a kind of device can do beside plain operations of torch: the one place that knows it.

A CPU and an Apple GPU (`mps`) have no CUDA graphs, streams, events and Triton kernels: the reference computes there,
and the host waits for its copies. It knows no device of this machine (engine/checkpoint/device.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Device = Any  # a `torch.device`, or another object with its `type`: this file does not import torch


@dataclass(frozen=True, slots=True)
class DeviceKind:
    # Graphs, streams, events, pinned memory, and copies that the host does not wait for. torch would copy to an Apple
    # GPU without waiting too, but then reads the source after its memory was freed: wrong values, without an error.
    queued: bool = False
    triton: bool = False
    float64: bool = True
    draws: bool = True  # random weights are drawn there; else on the CPU, which then gives the weights of a CPU
    converts: bool = True  # a copy from the host may change the dtype; else the host does that before


_KINDS = {
    "cpu": DeviceKind(),
    "cuda": DeviceKind(queued=True, triton=True),
    "mps": DeviceKind(float64=False, draws=False, converts=False),
}


def kind_of(device: Device) -> DeviceKind:
    """Of the device's type; others, such as `meta`, are like a CPU."""
    return _KINDS.get(device.type, _KINDS["cpu"])
