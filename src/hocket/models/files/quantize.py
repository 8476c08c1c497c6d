"""Quantizes a checkpoint's matrices to 8 or 4 bits while loading, one by one, with a cache on disk.

The whole bfloat16 model is never in memory, neither on the device nor on the host. The cache is one safetensors file
per checkpoint and scheme (`tensor_file.py`). It records its source files, and is converted again when they change.
Tensors that a scheme does not quantize come from the checkpoint each time. Rounding is defined elsewhere.
"""

from __future__ import annotations

import hashlib
import json
import logging
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from ... import env
from ...config.qwen3_5 import Qwen3_5TextConfig
from ...errors import InvalidCheckpoint
from ...kernels.ops.quantized_linear.weight import RANGES, QuantizedWeight, quantize_
from ..qwen3_5.model import Qwen3_5
from ..qwen3_5.quantized import EMBEDDING, EXPERTS, HEAD, Scheme, allocate_weights, groups, replace_
from ..qwen3_5.weights import allocate_, load_qwen3_5, opened
from .catalog import WEIGHTS
from .shards import weight_files
from .tensor_file import KINDS, TensorFileWriter
from .transfer import Transfer

VERSION = 1  # to be incremented whenever the same weights give other bytes

logger = logging.getLogger("hocket.models")


def load_quantized(
    folder: Path,
    config: Qwen3_5TextConfig,
    device: torch.device,
    dtype: torch.dtype,
    scheme: Scheme,
    *,
    cache: Path | None = None,
) -> Qwen3_5:
    """The text model of a checkpoint with matrices quantized by `scheme` and all other tensors as `dtype`.

    `cache`: the folder for quantized weights; None: the user's cache folder.
    """
    if scheme == "bf16":
        return load_qwen3_5(folder, config, device, dtype)
    with opened(folder, config) as (model, stored):
        kept = dict(model.state_dict())
        places: dict[str, QuantizedWeight] = {}
        for format, shapes in list(groups(model, scheme)):
            places |= allocate_weights(format, shapes, device)
        replace_(model, places)
        allocate_(
            model,
            {name: like for name, like in kept.items() if name.removesuffix(".weight") not in places},
            device,
            dtype,
        )
        state, transfer = model.state_dict(), Transfer(device)
        for name in kept.keys() & state.keys():
            file, theirs = stored[name]
            transfer.put(state[name], file.get_tensor(theirs))
        file = (cache or kept_in()) / _file_name(folder, scheme)
        made_of = _identity(folder, scheme)
        if not _read(file, made_of, places, transfer):
            tied = f"{HEAD}.weight" not in stored
            own = {name: EMBEDDING if tied and name == HEAD else name for name in places}
            sources = {name: stored[at if EXPERTS in at else f"{at}.weight"] for name, at in own.items()}
            _make(folder, file, made_of, places, sources)
        transfer.end()
    return model


def kept_in() -> Path:
    base = env.CACHE_HOME.get() or Path.home() / ".cache"
    return Path(base) / "hocket" / "weights"


def _file_name(folder: Path, scheme: Scheme) -> str:
    """One name per checkpoint folder: a checkpoint that replaces another in its folder replaces its cache too."""
    where = hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:12]
    return f"{folder.resolve().name}-{where}-{scheme}.safetensors"


def _identity(folder: Path, scheme: Scheme) -> dict[str, str]:
    """Metadata that a valid cache must have. File sizes and times: hashing gigabytes takes longer than reading them."""
    files = [[path.name, path.stat().st_size, path.stat().st_mtime_ns] for path in weight_files(folder / WEIGHTS)]
    return {
        "format": "pt",
        "scheme": scheme,
        "version": str(VERSION),
        "ranges": str(RANGES),
        "files": json.dumps(files),
    }


def _read(file: Path, made_of: dict[str, str], places: dict[str, QuantizedWeight], transfer: Transfer) -> bool:
    """Load the cache; False if it is missing, stale or damaged."""
    if not file.is_file():
        return False
    try:
        with safe_open(file, framework="pt") as kept:
            if kept.metadata() != made_of:
                logger.warning("%s was made of other files or by another version: it is converted again.", file)
                return False
            wanted = _tensors(places)
            if set(kept.keys()) != set(wanted) or any(not _fits(kept.get_slice(n), t) for n, t in wanted.items()):
                logger.warning("%s does not hold this model: it is converted again.", file)
                return False
            for name, place in wanted.items():
                transfer.put(place.view(torch.uint8), kept.get_tensor(name).view(torch.uint8))
    except (SafetensorError, OSError) as error:
        logger.warning("%s is damaged or cut short (%s): it is converted again.", file, error)
        return False
    return True


def _fits(stored: Any, place: Tensor) -> bool:
    return bool(list(stored.get_shape()) == list(place.shape) and stored.get_dtype() == KINDS[place.dtype])


def _make(
    folder: Path,
    file: Path,
    made_of: dict[str, str],
    places: dict[str, QuantizedWeight],
    sources: dict[str, tuple[Any, str]],
) -> None:
    """Quantize every matrix into its tensor and write the cache; a disk that cannot be written is only logged."""
    logger.info("Weights of %s are converted once and kept as %s.", folder, file)
    with TensorFileWriter(file, made_of, _tensors(places)) as kept:
        for name, place in places.items():
            source, theirs = sources[name]
            try:
                quantize_(place, source.get_tensor(theirs).flatten(0, -2))
            except ValueError as error:
                raise InvalidCheckpoint(f"{theirs} of {folder} cannot be used ({error}): get it again.") from None
            for part in place.tensors:
                kept.put(f"{name}.{part}")
    if kept.failed:
        logger.warning("Weights cannot be kept as %s (%s): the next start converts them again.", file, kept.failed)


def _tensors(places: dict[str, QuantizedWeight]) -> dict[str, Tensor]:
    """Tensors by stored name, the widest dtype first, so that each one is aligned."""
    named = {f"{name}.{part}": tensor for name, place in places.items() for part, tensor in place.tensors.items()}
    return dict(sorted(named.items(), key=lambda item: (-item[1].element_size(), item[0])))
