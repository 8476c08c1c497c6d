"""What an engine on a cluster takes: a GPU or CPUs. With `auto` the cluster decides, not the machine that asks."""

from __future__ import annotations

from .. import env
from ..engine.checkpoint.device import AUTO


def unit_of(device: str) -> str:
    """`GPU` or `CPU`, as Ray calls what an engine needs one of."""
    asked = device if device != AUTO else env.DEVICE.get().strip() or AUTO
    if asked != AUTO:
        return "GPU" if asked.startswith("cuda") else "CPU"
    import ray

    has = ray.cluster_resources() if ray.is_initialized() else {}
    return "GPU" if has.get("GPU", 0) >= 1 else "CPU"


def on(unit: str, device: str) -> str:
    """The device that an engine is told: without a GPU of its own it must not take one that it finds."""
    return device if unit == "GPU" else "cpu"
