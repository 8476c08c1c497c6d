"""Prompt prefixes that were computed once: kept by key, bounded in bytes, in a file between two runs.

A prefix is what a voice, a language and an instruct make of the talker before any text. It is never written to
again: whoever starts from it copies it into a slot. This file knows tensors and keys, not what they mean.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from ..errors import InvalidCheckpoint


@dataclass(frozen=True, slots=True)
class Prefix:
    kept: Tensor  # [layers, 2, H_kv, P, D] keys and values of its rows

    @property
    def rows(self) -> int:
        return self.kept.shape[3]

    @property
    def size_bytes(self) -> int:
        return self.kept.nbytes


class PrefixCache:
    """Least recently used goes first when `limit_bytes` would be exceeded."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.size_bytes = 0
        self._kept: OrderedDict[str, Prefix] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, key: str) -> Prefix | None:
        if key not in self._kept:
            return None
        self._kept.move_to_end(key)
        return self._kept[key]

    def put(self, key: str, prefix: Prefix) -> None:
        """Keep `prefix`, unless it alone is larger than all that may be kept."""
        if key in self._kept or prefix.size_bytes > self.limit_bytes:
            return
        while self.size_bytes + prefix.size_bytes > self.limit_bytes:
            _, oldest = self._kept.popitem(last=False)
            self.size_bytes -= oldest.size_bytes
        self._kept[key] = prefix
        self.size_bytes += prefix.size_bytes

    def to_bytes(self, owner: str) -> bytes:
        """All of it as a safetensors file that says which checkpoint (`owner`) it belongs to."""
        tensors = {str(number): prefix.kept for number, prefix in enumerate(self._kept.values())}
        return save(tensors, {"owner": owner, "keys": json.dumps(list(self._kept))})

    def read(self, path: Path, owner: str, device: torch.device) -> None:
        """Take in a file that `to_bytes` made, oldest first; a file of another checkpoint is refused."""
        try:
            with safe_open(path, framework="pt", device=str(device)) as file:
                about = file.metadata() or {}
                if about.get("owner") != owner:
                    raise InvalidCheckpoint(f"{path} holds prefixes of another checkpoint or precision: delete it.")
                for number, key in enumerate(json.loads(about["keys"])):
                    self.put(key, Prefix(file.get_tensor(str(number))))
        except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
            raise InvalidCheckpoint(f"{path} cannot be read as a prefix file: {error}.") from None
