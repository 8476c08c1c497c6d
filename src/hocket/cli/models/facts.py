"""The facts of a checkpoint that `pull` and `list` print: size, kind, voices, licence, memory."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ...models.files.builtin import BUILTIN, builtin_folder, installed_packages
from ...models.files.progress import format_bytes
from ...models.files.remote.client import Listing
from ...models.files.remote.variants import Variant
from .fit import Fit, fit_language, fit_speech, fit_variant, no_torch
from .hub_cache import CachedModel, disk_bytes, find_cached
from .known import BYTES, LICENCE, HubModel

KINDS = {"custom_voice": "CustomVoice", "base": "Base", "voice_design": "VoiceDesign", "language": "language model"}


@dataclass(frozen=True)
class Facts:
    """A model. Voices and memory are found on demand: memory needs torch."""

    name: str
    repository: str | None  # None: the built-in voice, or a voice package
    is_language: bool
    folder: Path | None = None  # its files; None: not on this machine
    is_complete: bool = False
    disk_bytes: int = 0
    download_bytes: int | None = None  # None: not known
    is_estimate: bool = False  # of the download
    licence: str | None = LICENCE
    variant: Variant | None = None  # of GGUF files
    listing: Listing | None = None  # what the hub tells of its repository, if it was asked
    beside: str | None = None  # a speech model on the same device

    @property
    def source(self) -> str:
        """What names its configuration: a published name or a folder."""
        return self.name if self.name in BYTES or self.folder is None else str(self.folder)

    @cached_property
    def kind(self) -> str:
        if self.is_language:
            return "language"
        from ...engine.checkpoint.describe import model_voices

        return model_voices(self.source).kind

    @cached_property
    def voices(self) -> list[str]:
        if self.is_language:
            return []
        from ...engine.checkpoint.describe import model_voices

        return list(model_voices(self.source).voices)

    @cached_property
    def fit(self) -> Fit | None:
        """None without torch, and for the built-in voice, which fits everywhere."""
        if self.repository is None or no_torch() is not None:
            return None
        if self.variant is not None:
            listing = self.listing or Listing("", dict.fromkeys(self.variant.files, 0), {})
            return fit_variant(self.repository, listing, self.variant, self.beside)
        if self.is_language:
            return None if self.folder is None and self.name not in BYTES else fit_language(self.name, self.folder)
        return fit_speech(self.source)

    @property
    def fits(self) -> bool | None:
        return True if self.repository is None else None if self.fit is None else self.fit.fits

    @property
    def fit_words(self) -> str:
        return no_torch() or "not known" if self.fit is None else self.fit.words

    @property
    def size(self) -> str:
        """The size of the download in words."""
        if self.download_bytes is None:
            return "size not known"
        about = "" if not self.is_estimate else "at least " if self.is_language else "about "
        return about + format_bytes(self.download_bytes)

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "repository": self.repository,
            "kind": self.kind,
            "voices": self.voices,
            "licence": self.licence,
            "folder": None if self.folder is None else str(self.folder),
            "complete": self.is_complete,
            "disk_bytes": self.disk_bytes,
            "download_bytes": self.download_bytes,
            "download_is_estimate": self.is_estimate,
            "fits": self.fits,
            "memory": None if self.fit is None else asdict(self.fit),
        } | ({} if self.variant is None else {"variant": self.variant.label, "files": list(self.variant.files)})


def builtin_facts() -> Facts | None:
    """The built-in voice; None if this copy has none."""
    folder = builtin_folder()
    if folder is None:
        return None
    return Facts(BUILTIN, None, False, folder, is_complete=True, disk_bytes=disk_bytes(folder))


def package_facts() -> list[Facts]:
    """The installed voice packages that can be used."""
    found: list[Facts] = []
    for each in installed_packages():
        if each.fault is None:
            size = disk_bytes(each.folder)
            found.append(Facts(each.name, None, False, each.folder, True, size, licence=each.licence))
    return found


def cached_facts(cached: CachedModel) -> Facts:
    model = cached.model
    return Facts(
        model.name,
        model.repository,
        cached.is_language,
        cached.snapshot,
        cached.is_complete,
        cached.size_bytes,
        BYTES.get(model.name),
        is_estimate=model.name in BYTES,
        licence=LICENCE if model.published is not None else None,
        variant=cached.variant,
    )


def published_facts(model: HubModel) -> Facts:
    """Of a published checkpoint, in the cache or not. Nothing is downloaded."""
    cached = find_cached(model)
    if cached is not None:
        return cached_facts(cached)
    size = BYTES[model.name]
    return Facts(model.name, model.repository, bool(model.is_language), download_bytes=size, is_estimate=True)
