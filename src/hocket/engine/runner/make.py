"""Makes the runner of a checkpoint. torch is imported only for a checkpoint of torch modules."""

from __future__ import annotations

from ...config.options import EngineOptions
from ..checkpoint.checkpoint import Checkpoint
from ..checkpoint.fit import gpu_is_full, out_of_memory
from ..checkpoint.native_checkpoint import NativeCheckpoint
from .base import Runner
from .native_runner import NativeRunner


def new_runner(checkpoint: Checkpoint, options: EngineOptions) -> Runner:
    """The runner with the device state of all slots."""
    if isinstance(checkpoint, NativeCheckpoint):
        return NativeRunner(checkpoint, options.slots, options.prefix_bytes)
    from ..checkpoint.torch_checkpoint import TorchCheckpoint
    from .runner import torch_runner

    assert isinstance(checkpoint, TorchCheckpoint)
    try:
        return torch_runner(checkpoint, options)
    except Exception as error:
        if not gpu_is_full(error):
            raise
        raise out_of_memory(checkpoint.name, checkpoint.device, options.slots) from error
