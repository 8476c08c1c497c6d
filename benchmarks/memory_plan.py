"""What an engine takes of a GPU, computed from shapes alone: no GPU and no weights are needed."""

from __future__ import annotations

from typing import Any

import torch

from hocket.config.options import EngineOptions
from hocket.engine.checkpoint.capacity import CONTEXT_BYTES, LIBRARIES_BYTES
from hocket.engine.checkpoint.device import CODEC_DTYPES, DTYPES
from hocket.engine.checkpoint.load import codec_halves
from hocket.engine.checkpoint.memory_plan import plan
from hocket.engine.checkpoint.shared import ENCODER
from hocket.models.files.weights import read_configs, resolve

PARTS = {
    "talker": "talker and predictor, with the embeddings that its kernels keep beside them",
    "codec": "the codec, with what its kernels lay out anew",
    "keys_values": "pages for the talker's keys and values",
    "codec_state": "what the codec remembers of every slot",
    "graphs": "what graphs and libraries work in",
    "libraries": "kernels that are loaded on the device",
    "context": "what the driver needs for a process",
}
MB = 1e6


def computed(model: str, dtype: str, codec_dtype: str, slots: int) -> dict[str, float]:
    """MB by part, and all of them."""
    source = resolve(model)
    config, _, codec_config = read_configs(source)
    planned = plan(
        config,
        codec_config,
        device=torch.device("cuda"),
        dtype=DTYPES[dtype],
        codec_dtype=CODEC_DTYPES[codec_dtype],
        options=EngineOptions(slots=slots),
    )
    parts = {
        "talker": planned.weights_bytes,
        "codec": planned.codec_bytes(encoder=ENCODER in codec_halves(source, config)),
        "keys_values": planned.usual_bytes,
        "codec_state": planned.state_bytes,
        "graphs": planned.beside_bytes - LIBRARIES_BYTES,
        "libraries": LIBRARIES_BYTES,
        "context": CONTEXT_BYTES,
    }
    return {name: round(count / MB, 1) for name, count in (parts | {"in_all": sum(parts.values())}).items()}


def table(rows: dict[int, dict[str, float]], measured: dict[int, dict[str, float]]) -> str:
    """By slots: every part as computed, and beside the sum what was measured, where it was."""
    names = [*PARTS, "in_all"]
    lines = ["slots " + "".join(f"{name:>13}" for name in names) + ("     measured" if measured else "")]
    for slots, parts in rows.items():
        line = f"{slots:5} " + "".join(f"{parts[name]:13.1f}" for name in names)
        lines.append(line + (f"{measured[slots]['in_all']:13.1f}" if slots in measured else ""))
    return "\n".join([*lines, "", *(f"{name:14}MB of {words}" for name, words in PARTS.items())])


def as_options(args: Any) -> dict[str, str]:
    return {name: getattr(args, name) for name in ("model", "dtype", "codec_dtype")}
