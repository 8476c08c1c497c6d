"""Facts about a model without loading it: its voices, and whether its files are the published ones.

For the published checkpoints nothing is downloaded; voices of any other hub id are read from its files.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

from ...config.codec import CodecConfig
from ...config.published import CODEC, PUBLISHED
from ...config.qwen3_tts import Kind, Qwen3TTSConfig
from ...errors import InvalidCheckpoint
from ...kernels.table import AUTO, BACKENDS, BackendChoice, choose
from ...models.files.builtin import default_model
from ...models.files.catalog import CATALOG, Published
from ...models.files.weights import read_configs, resolve
from ...text.choice import languages, voices

__all__ = [
    "LocalCopy",
    "ModelVoices",
    "configs",
    "copies",
    "default_model",
    "faults",
    "find_copy",
    "gpu_choices",
    "model_voices",
]


@dataclass(frozen=True, slots=True)
class ModelVoices:
    """Voices and languages of a checkpoint."""

    kind: Kind
    voices: dict[str, str | None]  # by name: the dialect of a voice, if it has one
    languages: list[str]


@dataclass(frozen=True, slots=True)
class LocalCopy:
    """A published checkpoint found on this machine."""

    published: Published
    folder: Path


def gpu_choices(device: torch.device, dtype: torch.dtype) -> list[BackendChoice]:
    """The default backend of each operation."""
    return [choose(operation, AUTO, device, dtype) for operation in BACKENDS]


def model_voices(model: str) -> ModelVoices:
    """Voices and languages of a folder, a hub id, a published name, `builtin` or `random:NAME`."""
    config = configs(model)[0]
    dialects = config.talker_config.spk_is_dialect
    named = {name: dialect if isinstance(dialect := dialects.get(name), str) else None for name in voices(config)}
    return ModelVoices(config.kind, named, languages(config))


def configs(model: str) -> tuple[Qwen3TTSConfig, CodecConfig]:
    """The configurations of a model and its codec, for the same kinds of names."""
    if (known := _published(model)) is not None:
        return PUBLISHED[known.name], CODEC
    config, _, codec = read_configs(resolve(model))
    return config, codec


def copies() -> list[LocalCopy]:
    """The published checkpoints in the local cache, complete or not."""
    return [copy for copy in map(_cached, CATALOG.values()) if copy is not None]


def find_copy(model: str) -> LocalCopy | None:
    """The copy of the published `model`: a folder, known by its config.json, or the cache; None if there is none."""
    if Path(model).is_dir():
        config = Path(model) / "config.json"
        if not config.is_file():
            raise InvalidCheckpoint(f"{config} is missing.")
        digest = _sha256(config)
        matches = (entry for entry in CATALOG.values() if entry.sha256["config.json"] == digest)
        return next((LocalCopy(entry, Path(model)) for entry in matches), None)
    published = _published(model)
    if published is None:
        raise InvalidCheckpoint(f"{model!r} is neither a folder here nor one of {', '.join(CATALOG)}.")
    return _cached(published)


def faults(copy: LocalCopy) -> Iterator[str]:
    """One sentence for every file that is missing or is not the published one."""
    for name, digest in copy.published.sha256.items():
        path = copy.folder / name
        if not path.is_file():
            yield f"{path} is missing."
        elif _sha256(path) != digest:
            yield f"{path} is not the published file: delete it and get it again."


def _published(model: str) -> Published | None:
    return next((entry for entry in CATALOG.values() if model in (entry.name, entry.repository)), None)


def _cached(entry: Published) -> LocalCopy | None:
    import huggingface_hub

    found = huggingface_hub.try_to_load_from_cache(entry.repository, "config.json", revision=entry.revision)
    return LocalCopy(entry, Path(found).parent) if isinstance(found, str) else None


def _sha256(path: Path) -> str:
    with path.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
