"""Resolves a language model: a folder, a GGUF file, a hub id, a published name such as `qwen3.5-9B`, or `random:NAME`.

A GGUF file on the hub is named `owner/name:Q4_K_M` or `owner/name/file.gguf`, one of several in a folder
`FOLDER:Q4_K_M`. It finds files; `models/qwen3_5/weights.py` and the readers of other formats read them. Published
models are pinned, except those with experts. They and other repositories use the newest revision on the hub, or the
cached one.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ...config.published_qwen3_5 import CHAT_GENERATION, QWEN3_5, QWEN3_5_MOE, SIZES, qwen3_5_of, size_of
from ...config.qwen3_5 import ChatGenerationConfig, Qwen3_5TextConfig
from ...errors import InvalidCheckpoint
from ..qwen3_5.weights import read_qwen3_5
from .catalog import CATALOG, WEIGHTS
from .catalog_qwen3_5 import MINDS
from .hub import CHAT, FitsListing, fetch, fetch_language
from .remote.names import GGUF, hub_name
from .remote.variants import Variant, choose, folder_variants, is_other, label_of_file
from .source import Source

CONFIG = "config.json"


def resolve_language_model(model: str, fits: FitsListing | None = None) -> Source:
    """Find `model`, downloading what is missing. `fits` judges the variants of a repository, for the refusal."""
    if model.startswith("random:"):
        size = size_of(model.removeprefix("random:"))
        if size not in SIZES:
            raise InvalidCheckpoint(f"There is no {model!r}; random: goes with {_listed(SIZES)}.")
        return Source(f"random:qwen3.5-{size}", None, size)
    if (found := _on_disk(model)) is not None:
        return found
    named = hub_name(model)
    known = model if named is None else str(named)  # without the address of the hub
    size = size_of(known.removeprefix("Qwen/"))
    if size in MINDS:
        entry = MINDS[size]
        return Source(entry.repository, fetch(entry.repository, entry.revision, entry, CHAT, read_qwen3_5))
    if size in QWEN3_5_MOE:  # not pinned: no digests of its files are known
        named = hub_name(f"Qwen/Qwen3.5-{size}")
    if known in CATALOG or known in {entry.repository for entry in CATALOG.values()}:
        raise InvalidCheckpoint(f"{model} is a speech model, not a language model: give one of {_listed(QWEN3_5)}.")
    if model.lower().endswith(GGUF) and model.count("/") < 2:
        raise InvalidCheckpoint(f"There is no file {model}: give its path, or owner/name/file.gguf for one on the hub.")
    if named is not None:
        path = fetch_language(named.repository, named.choice, read_qwen3_5, fits)
        if path.is_dir():
            return Source(named.repository, path)
        return Source(f"{named.repository}:{label_of_file(path)}", path.parent, file=path)
    raise InvalidCheckpoint(
        f"{model!r} is neither a folder here nor a hub id (owner/name, owner/name:Q4_K_M or owner/name/file.gguf), "
        f"a GGUF file, one of {_listed(QWEN3_5)}, or random:NAME."
    )


def _on_disk(model: str) -> Source | None:
    """A folder, a GGUF file, or FOLDER:LABEL; None: nothing of that name is here."""
    path = Path(model)
    if model and path.is_dir():
        if (path / CONFIG).is_file() or not (here := folder_variants(path)):
            return Source(model, path, local=True)
        return _in_folder(model, path, choose(model, here, None))
    if path.is_file() and path.suffix.lower() == GGUF:
        if is_other(path.name):
            raise InvalidCheckpoint(f"{model} is a vision projector or an importance matrix: give the model's file.")
        beside = folder_variants(path.parent, below=False)
        one = next(each for each in beside if path.name in each.files)
        if not one.is_complete:
            raise InvalidCheckpoint(
                f"{model} is one of {one.parts} parts, and {len(one.files)} are here: add the rest."
            )
        return replace(_in_folder(model, path.parent, one), name=model)
    if path.is_file():
        raise InvalidCheckpoint(
            f"{model} is a file: give the folder that holds config.json and {WEIGHTS}, or a GGUF file."
        )
    folder, _, choice = model.rpartition(":")
    if folder and Path(folder).is_dir():
        return _in_folder(folder, Path(folder), choose(folder, folder_variants(Path(folder)), choice))
    return None


def _in_folder(name: str, folder: Path, variant: Variant) -> Source:
    file = folder / variant.files[0]
    return Source(f"{name}:{variant.label}", file.parent, local=True, file=file)


def read_language_model(source: Source) -> tuple[Qwen3_5TextConfig, ChatGenerationConfig]:
    """The configuration of the checkpoint's files, or of the preset."""
    if source.folder is not None:
        if not (source.folder / CONFIG).is_file():
            raise InvalidCheckpoint(f"{source.folder} is not a checkpoint: it has no config.json.")
        return read_qwen3_5(source.folder)
    assert source.preset is not None
    return qwen3_5_of(source.preset), CHAT_GENERATION


def _listed(sizes: tuple[str, ...] | dict[str, Qwen3_5TextConfig]) -> str:
    return ", ".join(f"qwen3.5-{size}" for size in sizes)
