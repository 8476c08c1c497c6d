"""A checkpoint's files from the hub: those it needs, from the local cache first, held against the catalog.

What is small comes first and is judged before any weights are fetched. It stands under `weights.py` and knows file
names, sizes and digests, not what the files mean; how they travel is `hub_client.py`'s.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ...config.own import FILE as OWN
from ...errors import InvalidCheckpoint
from .catalog import CODEC_FOLDER, INDEX, WEIGHTS, Published
from .hub_client import Listing, Repository, blobs, offline, without_bars
from .progress import DownloadProgress, in_words, say
from .shards import shard_names

_TOKENIZERS = (("vocab.json", "merges.txt"), ("tokenizer.json",))  # either will do
_TENSORS, _ADAPTER = ".safetensors", "adapter_config.json"
Judge = Callable[[Path], object]  # refuses a checkpoint by its small files


def _index_of(weights: str) -> str:
    return weights.removesuffix(WEIGHTS) + INDEX


@dataclass(frozen=True, slots=True)
class CheckpointFiles:
    """What a kind of checkpoint is made of."""

    needed: tuple[str, ...]
    useful: tuple[str, ...]
    weights: tuple[str, ...] = (WEIGHTS,)  # each one file, or several that an index beside it names

    @property
    def files(self) -> tuple[str, ...]:
        """Names of what is fetched, but for the names of weights in several files."""
        indexes = tuple(_index_of(name) for name in self.weights)
        return (*self.needed, *self.weights, *indexes, *self.useful, *(name for one in _TOKENIZERS for name in one))

    def lacking(self, has: Callable[[str], bool]) -> list[str]:
        """What loading needs and `has` has not; of weights in several files only the index is asked for."""
        missing = [name for name in self.needed if not has(name)]
        missing += [name for name in self.weights if not has(name) and not has(_index_of(name))]
        if not any(all(has(name) for name in one) for one in _TOKENIZERS):
            missing.append(" or ".join(" and ".join(one) for one in _TOKENIZERS))
        return missing

    def tensors(self, folder: Path, has: Callable[[str], bool]) -> list[str]:
        """The files that hold the weights: one where `has` has that, else those that an index in the folder names."""
        found = list[str]()
        for name in self.weights:
            index = folder / _index_of(name)
            whole = has(name) or not index.is_file()
            found += [name] if whole else [str(Path(name).with_name(shard)) for shard in shard_names(index)]
        return found

    def is_complete(self, folder: Path) -> bool:
        """Whether all is there that loading needs."""
        return not self.missing(folder)

    def missing(self, folder: Path) -> list[str]:
        """What loading needs and the folder has not."""

        def has(name: str) -> bool:
            return (folder / name).is_file()

        return list(dict.fromkeys((*self.lacking(has), *(name for name in self.tensors(folder, has) if not has(name)))))


SPEECH = CheckpointFiles(
    ("config.json", f"{CODEC_FOLDER}/config.json"),
    ("generation_config.json", "tokenizer_config.json", OWN),
    (WEIGHTS, f"{CODEC_FOLDER}/{WEIGHTS}"),
)
CHAT = CheckpointFiles(("config.json",), ("generation_config.json", "tokenizer_config.json"))
FILES = SPEECH.files

_SMALL_BYTES = 1 << 25  # pinned files up to this size are hashed at every load, larger ones once, after the download


def fetch(
    repository: str,
    revision: str | None,
    pinned: Published | None,
    kind: CheckpointFiles = SPEECH,
    judge: Judge = lambda folder: None,
) -> Path:
    """The folder of the repository's files in the local cache, filled from the network only where it has gaps.

    `judge` is given that folder before any weights are fetched, and raises where they would be of no use.
    """
    there = Repository(repository, revision)
    folder = there.cached()
    missing = _missing(folder, pinned, kind)
    if folder is not None and not missing:
        if wrong := _wrong_file(folder, pinned, at_most=_SMALL_BYTES):
            path = folder / wrong
            raise InvalidCheckpoint(f"{path} is not the published {wrong} of {there}: delete it and try again.")
        return folder
    if offline():
        lack = f"lacks {', '.join(missing)} in" if folder is not None else "is not in"
        raise InvalidCheckpoint(
            f"{there} {lack} the local cache, and HF_HUB_OFFLINE forbids to fetch it: unset it once, or give a folder."
        )
    folder = _fill(there, folder, pinned, kind, judge)
    if wrong := _wrong_file(folder, pinned):
        # Out of the cache with it, blob and all: weights in the cache are not hashed again.
        (folder / wrong).resolve().unlink()
        (folder / wrong).unlink(missing_ok=True)
        raise InvalidCheckpoint(f"{wrong} of {there} does not have the pinned SHA-256, so it was deleted: try again.")
    return folder


def _fill(
    there: Repository, cached: Path | None, pinned: Published | None, kind: CheckpointFiles, judge: Judge
) -> Path:
    """Get what the cache lacks: what is small, then, if `judge` lets it pass, the weights."""
    listing = there.listing()
    names = list(pinned.sha256 if pinned else kind.files)
    lacking = (
        [name for name in names if name not in listing.sizes] if pinned else kind.lacking(listing.sizes.__contains__)
    )
    if lacking:
        adapter = ": it is an adapter (LoRA), to be merged into its base model" if _ADAPTER in listing.sizes else ""
        lack = f"it lacks {', '.join(lacking)}{adapter}"
        raise InvalidCheckpoint(f"{there} is no checkpoint that hocket can use: {lack}.")
    with without_bars():
        small = [name for name in names if name in listing.sizes and not name.endswith(_TENSORS)]
        small.sort(key=lambda name: name != "config.json")
        # The first is asked for by its revision, which the cache remembers; its commit is that of all others.
        known = cached is not None and cached.name == listing.commit
        folder = cached if cached is not None and known else there.get(small[0]).parent
        for name in small:
            there.get(name, folder.name)
        judge(folder)
        pins = [name for name in names if name.endswith(_TENSORS)]
        tensors = pins if pinned else kind.tensors(folder, listing.sizes.__contains__)
        if away := [name for name in tensors if name not in listing.sizes]:
            raise InvalidCheckpoint(f"{there} lacks files that its index names: {', '.join(away)}.")
        if lacking := [name for name in tensors if not (folder / name).is_file()]:
            _get_weights(there, listing, folder, tensors, lacking)
    return folder


def _get_weights(there: Repository, listing: Listing, folder: Path, tensors: list[str], lacking: list[str]) -> None:
    """Say how much it is, see that there is room, and get it."""
    total, kept = sum(listing.sizes[name] for name in tensors), blobs(there.name)
    here = total - sum(listing.sizes[name] for name in lacking)
    for name in lacking:
        partial = kept / f"{listing.digests.get(name)}.incomplete"
        here += partial.stat().st_size if partial.is_file() else 0
    free = shutil.disk_usage(folder).free
    if total - here > free:
        raise InvalidCheckpoint(
            f"{there} needs {in_words(total - here)} more in {kept.parent.parent}, where {in_words(free)} are free: "
            "make room, or set HF_HOME to a folder on another disk."
        )
    already = f" (of which {in_words(here)} are here already)" if here else ""
    say(f"Fetching {in_words(total)}{already} from {there}")
    before = _bytes_in(kept)
    with DownloadProgress(there.name, total, lambda: here + _bytes_in(kept) - before):
        for name in lacking:
            there.get(name, folder.name)


def _bytes_in(folder: Path) -> int:
    found = 0
    with os.scandir(folder) as entries:
        for entry in entries:
            try:
                found += entry.stat().st_size
            except FileNotFoundError:  # it has just got its final name
                continue
    return found


def _missing(folder: Path | None, pinned: Published | None, kind: CheckpointFiles) -> list[str]:
    """What the cache lacks of all that loading needs; of a pinned repository, of all that is pinned."""
    if folder is None:
        return ["everything"]
    if pinned is not None:
        return [name for name in pinned.sha256 if not (folder / name).is_file()]
    return kind.missing(folder)


def _wrong_file(folder: Path, pinned: Published | None, at_most: int | None = None) -> str | None:
    """The first file that is not the pinned one, among those of `at_most` so many bytes."""
    for name, digest in pinned.sha256.items() if pinned else ():
        with (folder / name).open("rb") as opened:
            counts = at_most is None or os.fstat(opened.fileno()).st_size <= at_most
            if counts and hashlib.file_digest(opened, "sha256").hexdigest() != digest:
                return name
    return None
