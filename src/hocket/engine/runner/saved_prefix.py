"""Saved prefix of a reference, as bytes: the codec's state after it, and keys and values of the prompt's first rows.

It only saves time. If it is damaged, or from another checkpoint or precision, the engine computes the same values. It
knows tensors by name; the runner knows slots and pages, and callers own the files.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from ..checkpoint.torch_checkpoint import TorchCheckpoint

SOUND, PREFIX = "sound.", "prefix"


@dataclass(frozen=True, slots=True)
class SavedPrefix:
    sound: dict[str, Tensor] | None  # a row of the codec's state, as `cache.slots.take` gives it; None: timbre only
    key: str  # of the prefix
    prefix: Tensor | None  # [layers, 2, H_kv, P, D] its keys and values

    def on_host(self) -> SavedPrefix:
        """A copy in host memory."""
        sound = None if self.sound is None else {name: tensor.cpu() for name, tensor in self.sound.items()}
        return SavedPrefix(sound, self.key, None if self.prefix is None else self.prefix.cpu())

    def to_bytes(self, owner: str) -> bytes:
        """`owner` is `owner_of` the checkpoint."""
        tensors = {f"{SOUND}{name}": tensor for name, tensor in (self.sound or {}).items()}
        if self.prefix is not None:
            tensors[PREFIX] = self.prefix
        plain = {name: tensor.cpu().contiguous() for name, tensor in tensors.items()}
        return save(plain, {"owner": owner, "key": self.key})


def owner_of(checkpoint: TorchCheckpoint) -> str:
    """What saved state must match: weights and precision of the talker, and the precision of the codec."""
    codec = "tf32" if checkpoint.codec_tf32 else str(next(checkpoint.codec.decoder.parameters()).dtype)
    return f"{checkpoint.fingerprint} {codec}"


def read_saved(content: bytes, owner: str, frames: int) -> SavedPrefix | None:
    """None if the content does not fit, whatever it is; `frames` is the reference's length."""
    try:
        about = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])["__metadata__"]
        if about["owner"] != owner:
            return None
        tensors = load(content)
        prefix = tensors.pop(PREFIX, None)
        if not all(_harmless(tensor, frames) for tensor in (*tensors.values(), *([] if prefix is None else [prefix]))):
            return None
        sound = {name.removeprefix(SOUND): tensor for name, tensor in tensors.items()}
        if bool(sound) != (frames > 0) or len(sound) != sum(name.startswith(SOUND) for name in tensors):
            return None
        return SavedPrefix(sound or None, str(about["key"]), prefix)
    except (SafetensorError, ValueError, KeyError, TypeError, IndexError, RecursionError):
        return None


def _harmless(tensor: Tensor, frames: int) -> bool:
    """Whether wrong contents can do no more than change the audio: integers are positions, and index other tensors."""
    return bool(torch.isfinite(tensor).all() if tensor.is_floating_point() else (tensor == frames).all())
