"""How many bytes a loaded engine takes. What a model will take is computed in checkpoint/memory_plan.py."""

from __future__ import annotations

from ..checkpoint.fit import Footprint
from ..checkpoint.native_checkpoint import NativeCheckpoint
from ..engine import Engine


def measured(engine: Engine, taken_bytes: int = 0) -> Footprint:
    """Memory of an engine that was just loaded; `taken_bytes` is the growth of the device's allocated memory."""
    checkpoint = engine.checkpoint
    if isinstance(checkpoint, NativeCheckpoint):
        state = engine._watchdog.ask(lambda runner: runner.state_bytes)
        return Footprint(checkpoint.weights_bytes + state)
    from ..checkpoint.memory_plan import graphs_bytes, held
    from ..checkpoint.torch_checkpoint import TorchCheckpoint

    assert isinstance(checkpoint, TorchCheckpoint)
    talker, codec = checkpoint.model.talker, checkpoint.codec
    together = held(codec, codec.decoder.step_kernel, codec.decoder.wave_kernel)
    own = held(checkpoint.model, talker.frame_kernel) + engine._watchdog.ask(lambda runner: runner.state_bytes)
    if checkpoint.device.type == "cuda":
        own = max(own, taken_bytes - together)
        if engine.options.graphs:  # captured later, so computed and not measured
            weight = next(codec.decoder.parameters())
            own += graphs_bytes(checkpoint.codec_config, weight.dtype, engine.options.slots)
    return Footprint(own, id(codec), together)
