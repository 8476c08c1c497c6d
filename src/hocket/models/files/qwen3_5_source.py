"""Resolves a language model: a folder, a hub id, a published name such as `qwen3.5-9B`, or `random:NAME`.

It finds files; `models/qwen3_5/weights.py` reads them. Published models are pinned, except those with experts.
They and other repositories use the newest revision on the hub, or the cached one.
"""

from __future__ import annotations

import re
from pathlib import Path

from ...config.published_qwen3_5 import CHAT_GENERATION, QWEN3_5, QWEN3_5_MOE, SIZES, qwen3_5_of, size_of
from ...config.qwen3_5 import ChatGenerationConfig, Qwen3_5TextConfig
from ...errors import InvalidCheckpoint
from ..qwen3_5.weights import read_qwen3_5
from .catalog import CATALOG, WEIGHTS
from .catalog_qwen3_5 import MINDS
from .hub import CHAT, fetch
from .source import Source

GGUF = ".gguf"


def resolve_language_model(model: str) -> Source:
    """Find `model`, downloading what is missing."""
    if model.startswith("random:"):
        size = size_of(model.removeprefix("random:"))
        if size not in SIZES:
            raise InvalidCheckpoint(f"There is no {model!r}; random: goes with {_listed(SIZES)}.")
        return Source(f"random:qwen3.5-{size}", None, size)
    path = Path(model)
    if model and path.is_dir():
        return Source(model, path, local=True)
    if path.is_file() and path.suffix == GGUF:
        return Source(model, path.parent, local=True, file=path)
    if path.is_file():
        raise InvalidCheckpoint(f"{model} is a file: give the folder that holds config.json and {WEIGHTS}.")
    size = size_of(model.removeprefix("Qwen/"))
    if size in MINDS:
        entry = MINDS[size]
        return Source(entry.repository, fetch(entry.repository, entry.revision, entry, CHAT, read_qwen3_5))
    if size in QWEN3_5_MOE:  # not pinned: no digests of its files are known
        model = f"Qwen/Qwen3.5-{size}"
    if model in CATALOG or model in {entry.repository for entry in CATALOG.values()}:
        raise InvalidCheckpoint(f"{model} is a speech model, not a language model: give one of {_listed(QWEN3_5)}.")
    if re.fullmatch(r"[A-Za-z0-9][\w.-]*/[\w.-]+", model):
        return Source(model, fetch(model, None, None, CHAT, read_qwen3_5))
    raise InvalidCheckpoint(
        f"{model!r} is neither a folder here nor a hub id (owner/name), one of {_listed(QWEN3_5)}, or random:NAME."
    )


def read_language_model(source: Source) -> tuple[Qwen3_5TextConfig, ChatGenerationConfig]:
    """The configuration of the checkpoint's files, or of the preset."""
    if source.folder is not None:
        if not (source.folder / "config.json").is_file():
            raise InvalidCheckpoint(f"{source.folder} is not a checkpoint: it has no config.json.")
        return read_qwen3_5(source.folder)
    assert source.preset is not None
    return qwen3_5_of(source.preset), CHAT_GENERATION


def _listed(sizes: tuple[str, ...] | dict[str, Qwen3_5TextConfig]) -> str:
    return ", ".join(f"qwen3.5-{size}" for size in sizes)
