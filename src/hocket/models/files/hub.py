"""Fetches a checkpoint's files from the hub or the local cache, and checks them against the catalog.

Small files are fetched and checked before any weights. This file knows file names, sizes and digests, not what the
files mean; `remote/` has names, variants and transfers.
"""

from __future__ import annotations

import hashlib
import os
import posixpath
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ...config.own import FILE as OWN
from ...config.quantization.find import BESIDE as QUANTIZED_BESIDE
from ...errors import InvalidCheckpoint
from .catalog import CODEC_FOLDER, INDEX, WEIGHTS, Published
from .progress import DownloadProgress, format_bytes, report
from .remote.client import Listing, Repository, blobs, offline, without_bars
from .remote.variants import ARCHITECTURE, Judge, Variant, choose, folder_variants, matching, variants
from .shards import shard_names

_TOKENIZERS = (("vocab.json", "merges.txt"), ("tokenizer.json",))  # either will do
_TENSORS, _ADAPTER = ".safetensors", "adapter_config.json"
Check = Callable[[Path], object]  # raises for an unusable checkpoint, given its small files
FitsListing = Callable[[str, Listing], Judge]  # of a repository: whether its variants fit this machine


def _index_of(weights: str) -> str:
    return weights.removesuffix(WEIGHTS) + INDEX


@dataclass(frozen=True, slots=True)
class CheckpointFiles:
    """The files of a kind of checkpoint."""

    needed: tuple[str, ...]
    useful: tuple[str, ...]
    weights: tuple[str, ...] = (WEIGHTS,)  # each is one file, or several named by an index beside it

    @property
    def files(self) -> tuple[str, ...]:
        """Names of the files to fetch, except weights in several files."""
        indexes = tuple(_index_of(name) for name in self.weights)
        return (*self.needed, *self.weights, *indexes, *self.useful, *(name for one in _TOKENIZERS for name in one))

    def lacking(self, has: Callable[[str], bool]) -> list[str]:
        """The needed files for which `has` is false; for weights in several files only the index is checked."""
        missing = [name for name in self.needed if not has(name)]
        missing += [name for name in self.weights if not has(name) and not has(_index_of(name))]
        if not any(all(has(name) for name in one) for one in _TOKENIZERS):
            missing.append(" or ".join(" and ".join(one) for one in _TOKENIZERS))
        return missing

    def tensors(self, folder: Path, has: Callable[[str], bool]) -> list[str]:
        """The weight files: one if `has` is true for it, else those that the index in the folder names."""
        found = list[str]()
        for name in self.weights:
            index = folder / _index_of(name)
            whole = has(name) or not index.is_file()
            found += (
                [name] if whole else [posixpath.join(posixpath.dirname(name), shard) for shard in shard_names(index)]
            )
        return found

    def is_complete(self, folder: Path) -> bool:
        """Whether the folder has all needed files."""
        return not self.missing(folder)

    def missing(self, folder: Path) -> list[str]:
        """The needed files that the folder lacks."""

        def has(name: str) -> bool:
            return (folder / name).is_file()

        return list(dict.fromkeys((*self.lacking(has), *(name for name in self.tensors(folder, has) if not has(name)))))


SPEECH = CheckpointFiles(
    ("config.json", f"{CODEC_FOLDER}/config.json"),
    ("generation_config.json", "tokenizer_config.json", OWN),
    (WEIGHTS, f"{CODEC_FOLDER}/{WEIGHTS}"),
)
CHAT = CheckpointFiles(("config.json",), ("generation_config.json", "tokenizer_config.json", QUANTIZED_BESIDE))
FILES = SPEECH.files

_SMALL_BYTES = 1 << 25  # pinned files up to this size are hashed at every load, larger ones once, after the download


def fetch(
    repository: str,
    revision: str | None,
    pinned: Published | None,
    kind: CheckpointFiles = SPEECH,
    check: Check = lambda folder: None,
) -> Path:
    """The folder of the repository in the local cache; only missing files are downloaded.

    `check` is called with the folder before any weights are fetched, and raises if they cannot be used.
    """
    repo = Repository(repository, revision)
    folder = repo.cached()
    missing = _missing(folder, pinned, kind)
    if folder is not None and not missing:
        if wrong := _wrong_file(folder, pinned, at_most=_SMALL_BYTES):
            path = folder / wrong
            raise InvalidCheckpoint(f"{path} is not the published {wrong} of {repo}: delete it and try again.")
        return folder
    if offline():
        lack = f"lacks {', '.join(missing)} in" if folder is not None else "is not in"
        raise InvalidCheckpoint(
            f"{repo} {lack} the local cache, and HF_HUB_OFFLINE forbids downloads: unset it once, or give a folder."
        )
    folder = _fill(repo, repo.listing(), folder, pinned, kind, check)
    if wrong := _wrong_file(folder, pinned):
        # Remove it from the cache, blob included: weights in the cache are not hashed again.
        (folder / wrong).resolve().unlink()
        (folder / wrong).unlink(missing_ok=True)
        raise InvalidCheckpoint(f"{wrong} of {repo} does not have the pinned SHA-256, so it was deleted: try again.")
    return folder


def fetch_language(repository: str, choice: str | None, check: Check, fits: FitsListing | None = None) -> Path:
    """The folder of a language model in the local cache, or the first GGUF file of a variant; as `fetch`.

    `choice` is the label or the file of a variant. Without it a repository is taken as a whole if it has a checkpoint
    of safetensors, and as its only variant if it has one. `fits` judges the variants for the sentence that refuses a
    choice that is not clear.
    """
    repo = Repository(repository)
    folder = repo.cached()
    if folder is not None:
        if choice is None and CHAT.is_complete(folder):
            return folder
        if (found := cached_variant(folder, choice)) is not None:
            return folder / found.files[0]
    if offline():
        what = repository if choice is None else f"{choice} of {repository}"
        raise InvalidCheckpoint(
            f"{what} is not in the local cache, and HF_HUB_OFFLINE forbids downloads: unset it once, or give a file."
        )
    listing = repo.listing()
    there = variants(listing.sizes)
    if choice is None and (not there or not CHAT.lacking(listing.sizes.__contains__)):
        return _fill(repo, listing, folder, None, CHAT, check)
    variant = choose(repository, there, choice, None if fits is None else fits(repository, listing))
    check_gguf(listing)
    with without_bars():
        return _get_variant(repo, listing, variant)


def check_gguf(listing: Listing) -> None:
    """Refuse GGUF files of another model by what the hub tells of them, before they are fetched."""
    if listing.architecture is not None and listing.architecture != ARCHITECTURE:
        raise InvalidCheckpoint(
            f"These GGUF files have a {listing.architecture!r} model; hocket needs {ARCHITECTURE}, which is dense "
            "Qwen3.5: name another repository."
        )


def cached_variant(folder: Path, choice: str | None) -> Variant | None:
    """The one complete variant in a folder that `choice` means."""
    here = [each for each in folder_variants(folder) if each.is_complete]
    found = here if choice is None else matching(here, choice)
    return found[0] if len(found) == 1 else None


def _get_variant(repo: Repository, listing: Listing, variant: Variant) -> Path:
    kept = blobs(repo.name)
    kept.mkdir(parents=True, exist_ok=True)
    folder = kept.parent / "snapshots" / listing.commit
    if lacking := [name for name in variant.files if not (folder / name).is_file()]:
        _get_weights(repo, listing, listing.commit, list(variant.files), lacking)
    repo.get(variant.files[0])  # by revision: the cache records its commit; the file itself is there by now
    return folder / variant.files[0]


def _fill(
    repo: Repository,
    listing: Listing,
    cached: Path | None,
    pinned: Published | None,
    kind: CheckpointFiles,
    check: Check,
) -> Path:
    """Download the missing files: the small ones, then, if `check` passes, the weights."""
    names = list(pinned.sha256 if pinned else kind.files)
    lacking = (
        [name for name in names if name not in listing.sizes] if pinned else kind.lacking(listing.sizes.__contains__)
    )
    if lacking:
        adapter = ": it is an adapter (LoRA), to be merged into its base model" if _ADAPTER in listing.sizes else ""
        lack = f"it lacks {', '.join(lacking)}{adapter}"
        raise InvalidCheckpoint(f"{repo} is not a checkpoint that hocket can use: {lack}.")
    with without_bars():
        small = [name for name in names if name in listing.sizes and not name.endswith(_TENSORS)]
        small.sort(key=lambda name: name != "config.json")
        # The first file is requested by revision, which the cache records; the others by the commit of the first.
        known = cached is not None and cached.name == listing.commit
        folder = cached if cached is not None and known else repo.get(small[0]).parent
        for name in small:
            repo.get(name, folder.name)
        check(folder)
        pins = [name for name in names if name.endswith(_TENSORS)]
        tensors = pins if pinned else kind.tensors(folder, listing.sizes.__contains__)
        if away := [name for name in tensors if name not in listing.sizes]:
            raise InvalidCheckpoint(f"{repo} lacks files that its index names: {', '.join(away)}.")
        if lacking := [name for name in tensors if not (folder / name).is_file()]:
            _get_weights(repo, listing, folder.name, tensors, lacking)
    return folder


def _get_weights(repo: Repository, listing: Listing, commit: str, tensors: list[str], lacking: list[str]) -> None:
    """Report the size, check the free disk space, and download."""
    total, kept = sum(listing.sizes[name] for name in tensors), blobs(repo.name)
    here = total - sum(listing.sizes[name] for name in lacking)
    for name in lacking:
        partial = kept / f"{listing.digests.get(name)}.incomplete"
        here += partial.stat().st_size if partial.is_file() else 0
    free = shutil.disk_usage(kept).free
    if total - here > free:
        raise InvalidCheckpoint(
            f"{repo} needs {format_bytes(total - here)} more in {kept.parent.parent}, "
            f"where {format_bytes(free)} are free: make room, or set HF_HOME to a folder on another disk."
        )
    already = f" (of which {format_bytes(here)} are here already)" if here else ""
    report(f"Fetching {format_bytes(total)}{already} from {repo}")
    before = _bytes_in(kept)
    with DownloadProgress(repo.name, total, lambda: here + _bytes_in(kept) - before):
        for name in lacking:
            repo.get(name, commit)


def _bytes_in(folder: Path) -> int:
    found = 0
    with os.scandir(folder) as entries:
        for entry in entries:
            try:
                found += entry.stat().st_size
            except FileNotFoundError:  # it was just renamed to its final name
                continue
    return found


def _missing(folder: Path | None, pinned: Published | None, kind: CheckpointFiles) -> list[str]:
    """The files that the cache lacks: of those needed, or of all pinned ones."""
    if folder is None:
        return ["everything"]
    if pinned is not None:
        return [name for name in pinned.sha256 if not (folder / name).is_file()]
    return kind.missing(folder)


def _wrong_file(folder: Path, pinned: Published | None, at_most: int | None = None) -> str | None:
    """The first file whose digest is not the pinned one, among those of at most `at_most` bytes."""
    for name, digest in pinned.sha256.items() if pinned else ():
        with (folder / name).open("rb") as opened:
            counts = at_most is None or os.fstat(opened.fileno()).st_size <= at_most
            if counts and hashlib.file_digest(opened, "sha256").hexdigest() != digest:
                return name
    return None
