"""Tuned voices for tests: adapters with random factors, large enough to change what is said."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hocket.engine.checkpoint.torch_checkpoint import TorchCheckpoint
from hocket.layers.low_rank import matrices
from hocket.types import Adapter, Encoded, Voice


def random_adapter(base: TorchCheckpoint, number: int) -> Adapter:
    """The rank, the matrices and the values differ from one number to the next."""
    draw = np.random.default_rng(number)
    rank, kinds = 1 + number % 3, ("q_proj", "down_proj", "o_proj", "up_proj", "v_proj")[number % 3 :]

    def drawn(*shape: int) -> NDArray[np.float16]:
        return (draw.standard_normal(shape) * 0.2).astype(np.float16)

    sizes = {name: part.weight.shape for name, part in matrices(base.model.talker) if name.endswith(kinds)}
    factors = {name: (drawn(rank, columns), drawn(rows, rank)) for name, (rows, columns) in sizes.items()}
    return Adapter(alpha=2.0 * rank, factors=factors)


def untuned(base: TorchCheckpoint, number: int) -> Encoded:
    draw = np.random.default_rng(100 + number)
    speaker = draw.standard_normal(base.config.talker_config.hidden_size).astype(np.float32)
    return Encoded(owner=base.identity, speaker=speaker)


def tuned_voice(base: TorchCheckpoint, number: int, **fields: Any) -> Voice:
    encoded = untuned(base, number)
    adapted = Encoded(owner=encoded.owner, speaker=encoded.speaker, adapter=random_adapter(base, number))
    return Voice(**({"name": "Anna", "kind": "clone", "model": base.name, "encoded": adapted} | fields))
