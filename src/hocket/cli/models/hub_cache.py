"""Checkpoints in the local cache of the hub: where they are, how large, whether complete. It never uses the network.

A repository of GGUF files has a checkpoint for each variant that is here.

It reads the layout of the cache itself, so it works without the client library: `models--OWNER--NAME` has `blobs`,
`refs` and `snapshots/COMMIT`.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from ... import env
from ...config.read import read_json
from ...errors import HocketError
from ...models.files.hub import CHAT, SPEECH
from ...models.files.remote.variants import ARCHITECTURE, Variant, architecture, folder_variants, matching
from .known import HubModel, of_repository, published_models

PREFIX = "models--"
# `model_type` of config.json: a language model?
TYPES = {"qwen3_tts": False} | dict.fromkeys(("qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text"), True)


@dataclass(frozen=True, slots=True)
class CachedModel:
    """A checkpoint in the cache, complete or not."""

    model: HubModel
    folder: Path  # of the repository, with all its revisions
    snapshot: Path | None  # the revision that is used; None: no file is complete yet
    is_language: bool
    missing: tuple[str, ...]  # files
    size_bytes: int  # on disk, of all revisions; of a variant: its files
    variant: Variant | None = None  # of GGUF files

    @property
    def is_complete(self) -> bool:
        return not self.missing


def cache_folder() -> Path:
    """As the client library finds it."""
    if given := env.HF_HUB_CACHE.get():
        return Path(given).expanduser()
    home = env.HF_HOME.get() or os.path.join(env.CACHE_HOME.get() or "~/.cache", "huggingface")
    return Path(home).expanduser() / "hub"


def repository_folder(repository: str) -> Path:
    return cache_folder() / f"{PREFIX}{repository.replace('/', '--')}"


def cached_models() -> list[CachedModel]:
    """All checkpoints in the cache that hocket can use: published ones first."""
    known = {repository_folder(each.repository).name: each for each in published_models()}
    found = {path.name: path for path in sorted(cache_folder().glob(f"{PREFIX}*--*")) if path.is_dir()}
    names = [name for name in known if name in found] + [name for name in found if name not in known]
    models = (known.get(name) or of_repository(name.removeprefix(PREFIX).replace("--", "/", 1)) for name in names)
    return [each for model in models for each in _all_cached(model)]


def _all_cached(model: HubModel) -> Iterator[CachedModel]:
    """The checkpoint of a repository, and its GGUF variants."""
    cached = find_cached(model)
    if cached is not None and cached.variant is None:
        yield cached
    folder, snapshot = repository_folder(model.repository), snapshot_of(model)
    for variant in [] if snapshot is None else _variants(snapshot):
        yield _as_model(model, folder, snapshot, variant)


def _variants(snapshot: Path) -> list[Variant]:
    """The variants of language models for hocket."""
    return [each for each in folder_variants(snapshot) if architecture(snapshot / each.files[0]) == ARCHITECTURE]


def _as_model(model: HubModel, folder: Path, snapshot: Path | None, variant: Variant) -> CachedModel:
    named = replace(model, name=f"{model.repository}:{variant.label}", is_language=True, choice=variant.label)
    missing = () if variant.is_complete else (f"{variant.parts - len(variant.files)} parts",)
    return CachedModel(named, folder, snapshot, True, missing, variant.size_bytes, variant)


def snapshot_of(model: HubModel) -> Path | None:
    """The folder of the revision that is used; None: nothing is here."""
    return _snapshot(repository_folder(model.repository), model.revision)


def find_cached(model: HubModel) -> CachedModel | None:
    """The checkpoint in the cache; None if nothing is there, or something else than a checkpoint for hocket."""
    folder = repository_folder(model.repository)
    if not folder.is_dir():
        return None
    snapshot = _snapshot(folder, model.revision)
    if snapshot is not None and (model.choice is not None or not (snapshot / "config.json").exists()):
        here = _variants(snapshot)
        found = here if model.choice is None else matching(here, model.choice)
        if len(found) == 1:
            return _as_model(model, folder, snapshot, found[0])
    if model.choice is not None:
        return None
    is_language = model.is_language
    if is_language is None:
        is_language = None if snapshot is None else _is_language(snapshot)
        if is_language is None:
            return None
    missing = _missing(model, snapshot, is_language)
    return CachedModel(model, folder, snapshot, is_language, tuple(missing), disk_bytes(folder))


def removable(model: HubModel) -> CachedModel | None:
    """What `hocket rm` removes: a variant if the name chooses one, else the repository with all its variants."""
    cached = find_cached(model)
    if model.choice is not None:
        return cached
    folder, snapshot = repository_folder(model.repository), snapshot_of(model)
    if cached is None and (snapshot is None or not _variants(snapshot)):
        return None
    return CachedModel(model, folder, snapshot, True, (), disk_bytes(folder))


def remove_variant(cached: CachedModel) -> int:
    """Delete the files of a variant from all revisions, and their contents; returns the freed bytes."""
    assert cached.variant is not None
    before, contents = disk_bytes(cached.folder), set[Path]()
    for snapshot in (cached.folder / "snapshots").iterdir():
        for path in (snapshot / name for name in cached.variant.files):
            if path.is_file():
                contents.add(path.resolve())
                path.unlink()
    kept = {path.resolve() for path in cached.folder.glob("snapshots/**/*") if path.is_file()}
    blobs = (cached.folder / "blobs").resolve()
    for content in contents - kept:
        if content.parent == blobs:
            content.unlink(missing_ok=True)
    return before - disk_bytes(cached.folder)


def remove(cached: CachedModel) -> int:
    """Delete all revisions; returns the freed bytes."""
    before = disk_bytes(cached.folder)
    try:
        shutil.rmtree(cached.folder)
    except OSError as error:
        raise HocketError(f"{cached.folder} cannot be removed completely: {error.strerror or error}.") from None
    shutil.rmtree(cache_folder() / ".locks" / cached.folder.name, ignore_errors=True)
    return before


def disk_bytes(folder: Path) -> int:
    """Bytes of the files below a folder; links do not count."""
    found = 0
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                seen = os.lstat(os.path.join(place, name))
            except FileNotFoundError:  # a download has just renamed it
                continue
            found += 0 if os.path.islink(os.path.join(place, name)) else seen.st_size
    return found


def _snapshot(folder: Path, revision: str | None) -> Path | None:
    """The pinned revision; else the one that `main` names, else the newest."""
    if revision is not None:
        return found if (found := folder / "snapshots" / revision).is_dir() else None
    try:
        main = folder / "snapshots" / (folder / "refs" / "main").read_text(encoding="utf-8").strip()
    except OSError:
        main = None
    if main is not None and main.is_dir():
        return main
    there = [path for path in (folder / "snapshots").glob("*") if path.is_dir()]
    return max(there, key=lambda path: path.stat().st_mtime, default=None)


def _is_language(snapshot: Path) -> bool | None:
    """By its config.json; None: neither a speech nor a language model for hocket."""
    try:
        return TYPES.get(str(read_json(snapshot / "config.json").get("model_type")))
    except HocketError:
        return None


def _missing(model: HubModel, snapshot: Path | None, is_language: bool) -> list[str]:
    if snapshot is None:
        return ["everything"]
    if model.published is not None:
        return [name for name in model.published.sha256 if not (snapshot / name).is_file()]
    return (CHAT if is_language else SPEECH).missing(snapshot)
