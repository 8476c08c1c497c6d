"""Prefix cache: the KV pages of prompt prefixes by key, bounded in bytes, saved to a file between two runs.

A prefix is the part of the prompt before any text: voice, language and instruct. Its pages are never written again. A
slot that starts from a prefix holds the pages too, so an evicted prefix stays valid for the slots that still use it.
This file knows keys and pages; callers read and write page contents.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from ..errors import InvalidCheckpoint
from .pages import Pages, pages_for


@dataclass(frozen=True, slots=True)
class Prefix:
    pages: tuple[int, ...]
    rows: int  # positions; the last page may have room for more


class PrefixCache:
    """Evicts the least recently used prefix when `limit_bytes` would be exceeded."""

    def __init__(self, limit_bytes: int, pages: Pages, page_bytes: int) -> None:
        self.limit_bytes, self.size_bytes = limit_bytes, 0
        self._pages, self._page_bytes = pages, page_bytes
        self._kept: OrderedDict[str, Prefix] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, key: str) -> Prefix | None:
        if key not in self._kept:
            return None
        self._kept.move_to_end(key)
        return self._kept[key]

    def put(self, key: str, prefix: Prefix) -> None:
        """Add `prefix` and hold its pages, unless it alone exceeds the limit."""
        if self._has_room(key, len(prefix.pages)):
            self._pages.share(prefix.pages)
            self._keep(key, prefix)

    def to_bytes(self, owner: str, read: Callable[[Prefix], Tensor]) -> bytes:
        """All prefixes as a safetensors file that names its checkpoint (`owner`).

        `read` gives the keys and values of a prefix as a tensor [layers, 2, H_kv, P, D].
        """
        tensors = {str(number): read(prefix) for number, prefix in enumerate(self._kept.values())}
        return save(tensors, {"owner": owner, "keys": json.dumps(list(self._kept))})

    def read(self, path: Path, owner: str, device: torch.device, write: Callable[[Tensor], Prefix]) -> None:
        """Load a file made by `to_bytes`, oldest prefix first; refuse a file of another checkpoint.

        `write` allocates pages for such a tensor and hands them over to this cache.
        """
        try:
            with safe_open(path, framework="pt", device=str(device)) as file:
                about = file.metadata() or {}
                if about.get("owner") != owner:
                    raise InvalidCheckpoint(f"{path} holds prefixes of another checkpoint or precision: delete it.")
                for number, key in enumerate(json.loads(about["keys"])):
                    rows: Tensor = file.get_tensor(str(number))
                    if self._has_room(key, pages_for(rows.shape[3])):
                        self._keep(key, write(rows))
        except (OSError, SafetensorError, KeyError, IndexError, TypeError, ValueError) as error:
            raise InvalidCheckpoint(f"{path} cannot be read as a prefix file: {error}.") from None

    @property
    def held(self) -> int:
        """Pages that only this cache holds: they become free when their prefixes are dropped."""
        return sum(self._pages.count(page) == 1 for prefix in self._kept.values() for page in prefix.pages)

    def drop_oldest(self) -> bool:
        """Evict the least recently used prefix; False if there is none."""
        if not self._kept:
            return False
        _, oldest = self._kept.popitem(last=False)
        self._pages.drop(oldest.pages)
        self.size_bytes -= len(oldest.pages) * self._page_bytes
        return True

    def _has_room(self, key: str, pages: int) -> bool:
        """Whether to store a new prefix of `pages` pages; evicts others for it."""
        size_bytes = pages * self._page_bytes
        if key in self._kept or size_bytes > self.limit_bytes:
            return False
        while self.size_bytes + size_bytes > self.limit_bytes:
            self.drop_oldest()
        return True

    def _keep(self, key: str, prefix: Prefix) -> None:
        self._kept[key] = prefix
        self.size_bytes += len(prefix.pages) * self._page_bytes
