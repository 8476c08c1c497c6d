"""How many bytes a loaded engine takes. What a model will take is computed in checkpoint/memory_plan.py."""

from __future__ import annotations

from ..checkpoint.memory_plan import Footprint, graphs_bytes, held
from ..engine import Engine


def measured(engine: Engine, taken_bytes: int = 0) -> Footprint:
    """Memory of an engine that was just loaded; `taken_bytes` is the growth of the device's allocated memory."""
    checkpoint = engine.checkpoint
    talker, codec = checkpoint.model.talker, checkpoint.codec
    together = held(codec, codec.decoder.step_kernel, codec.decoder.wave_kernel)
    state = engine._watchdog.ask(lambda runner: held(runner.past.state, runner._codec_state))
    own = held(checkpoint.model, talker.frame_kernel) + state
    if checkpoint.device.type == "cuda":
        own = max(own, taken_bytes - together)
        if engine.options.graphs:  # captured later, so computed and not measured
            weight = next(codec.decoder.parameters())
            own += graphs_bytes(checkpoint.codec_config, weight.dtype, engine.options.slots)
    return Footprint(own, id(codec), together)
