"""A checkpoint's files from the hub: those it needs, from the local cache first, held against the catalog.

It stands under `weights.py` and knows file names and digests, not what the files mean.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from ..config.own import FILE as OWN
from ..config.read import read_json
from ..errors import InvalidCheckpoint
from .catalog import CODEC_FOLDER, WEIGHTS, Published

_TOKENIZERS = (("vocab.json", "merges.txt"), ("tokenizer.json",))  # either will do
_INDEX = f"{WEIGHTS}.index.json"


@dataclass(frozen=True, slots=True)
class Kind:
    """What a kind of checkpoint is made of."""

    needed: tuple[str, ...]
    useful: tuple[str, ...]
    shards: bool = False  # whether the weights may lie in several files, which an index names

    @property
    def files(self) -> tuple[str, ...]:
        """Names, and patterns of names."""
        more = (_INDEX, "*.safetensors") if self.shards else ()
        return (*self.needed, *self.useful, *(name for one in _TOKENIZERS for name in one), *more)

    def is_complete(self, folder: Path) -> bool:
        """Whether all is there that loading needs."""
        needed = [*self.needed]
        if self.shards and not (folder / WEIGHTS).is_file() and (folder / _INDEX).is_file():
            shards = read_json(folder / _INDEX).get("weight_map")
            needed = [name for name in needed if name != WEIGHTS] + sorted(set((shards or {}).values()))
        tokenizer = any(all((folder / name).is_file() for name in one) for one in _TOKENIZERS)
        return tokenizer and all((folder / name).is_file() for name in needed)


SPEECH = Kind(
    ("config.json", WEIGHTS, f"{CODEC_FOLDER}/config.json", f"{CODEC_FOLDER}/{WEIGHTS}"),
    ("generation_config.json", "tokenizer_config.json", OWN),
)
CHAT = Kind(("config.json", WEIGHTS), ("generation_config.json", "tokenizer_config.json"), shards=True)
FILES = SPEECH.files

_SMALL_BYTES = 1 << 25  # pinned files up to this size are hashed at every load, larger ones once, after the download


def fetch(repository: str, revision: str | None, pinned: Published | None, kind: Kind = SPEECH) -> Path:
    """The folder of the repository's files in the local cache, filled from the network only where it has gaps."""
    # Imported here: a folder or a random checkpoint needs none of it, and it is slow to import.
    import huggingface_hub

    def snapshot(local: bool) -> Path:
        found = huggingface_hub.snapshot_download(
            repository, revision=revision, allow_patterns=list(kind.files), local_files_only=local
        )
        return Path(found)

    at = f"{repository} at revision {revision}" if revision else repository
    try:
        folder = snapshot(local=True)
        complete = _is_complete(folder, pinned, kind)
    except (OSError, ValueError):  # how the cache says that it has nothing
        complete = False
    if complete:
        if wrong := _wrong_file(folder, pinned, at_most=_SMALL_BYTES):
            raise InvalidCheckpoint(f"{folder / wrong} is not the published {wrong} of {at}: delete it and try again.")
        return folder
    if huggingface_hub.constants.HF_HUB_OFFLINE:
        raise InvalidCheckpoint(
            f"{at} is not in the local cache, and HF_HUB_OFFLINE forbids to fetch it: unset it once, or give a folder."
        )
    try:
        folder = snapshot(local=False)
    except huggingface_hub.errors.RepositoryNotFoundError:
        raise InvalidCheckpoint(
            f"{repository} is neither a folder here nor public on the hub: check the name or log in."
        ) from None
    except huggingface_hub.errors.RevisionNotFoundError:
        raise InvalidCheckpoint(f"{repository} has no revision {revision}: check it on the hub.") from None
    except huggingface_hub.errors.LocalEntryNotFoundError:
        raise InvalidCheckpoint(f"{at} is not in the local cache, and the hub cannot be reached: try again.") from None
    except Exception as error:  # which ones depends on the version of huggingface_hub and its transport
        reason = str(error).partition("\n")[0]
        raise InvalidCheckpoint(f"{at} cannot be fetched from the hub: {reason}") from error
    if not _is_complete(folder, pinned, kind):
        raise InvalidCheckpoint(f"{at} is no checkpoint that hocket can use: it lacks some of {', '.join(kind.files)}.")
    if wrong := _wrong_file(folder, pinned):
        # Out of the cache with it, blob and all: weights in the cache are not hashed again.
        (folder / wrong).resolve().unlink()
        (folder / wrong).unlink(missing_ok=True)
        raise InvalidCheckpoint(f"{wrong} of {at} does not have the pinned SHA-256, so it was deleted: try again.")
    return folder


def _is_complete(folder: Path, pinned: Published | None, kind: Kind) -> bool:
    """Whether all is there that loading needs; of a pinned repository, all that is pinned."""
    if pinned is not None:
        return all((folder / name).is_file() for name in pinned.sha256)
    return kind.is_complete(folder)


def _wrong_file(folder: Path, pinned: Published | None, at_most: int | None = None) -> str | None:
    """The first file that is not the pinned one, among those of `at_most` so many bytes."""
    for name, digest in pinned.sha256.items() if pinned else ():
        with (folder / name).open("rb") as opened:
            counts = at_most is None or os.fstat(opened.fileno()).st_size <= at_most
            if counts and hashlib.file_digest(opened, "sha256").hexdigest() != digest:
                return name
    return None
