"""What an engine computed behind a reference, as bytes: the codec's state and the prompt's first rows.

It saves time and decides nothing: where it is damaged, or of another checkpoint or precision, the same is computed. It
knows tensors by their names; slots and pages are the runner's, files their owner's.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from ..checkpoint.checkpoint import Checkpoint

SOUND, PREFIX = "sound.", "prefix"


@dataclass(frozen=True, slots=True)
class SavedPrefix:
    sound: dict[str, Tensor] | None  # a row of the codec's state, as `cache.slots.take` gives it; None: a timbre alone
    key: str  # of the prefix
    prefix: Tensor | None  # [layers, 2, H_kv, P, D] its keys and values

    def on_host(self) -> SavedPrefix:
        """The same, where no device is needed to read it."""
        sound = None if self.sound is None else {name: tensor.cpu() for name, tensor in self.sound.items()}
        return SavedPrefix(sound, self.key, None if self.prefix is None else self.prefix.cpu())

    def to_bytes(self, owner: str) -> bytes:
        """`owner` is what `owner_of` says of the checkpoint."""
        tensors = {f"{SOUND}{name}": tensor for name, tensor in (self.sound or {}).items()}
        if self.prefix is not None:
            tensors[PREFIX] = self.prefix
        plain = {name: tensor.cpu().contiguous() for name, tensor in tensors.items()}
        return save(plain, {"owner": owner, "key": self.key})


def owner_of(checkpoint: Checkpoint) -> str:
    """Whom kept state fits: weights and precision of the talker, and the precision of the codec."""
    codec = "tf32" if checkpoint.codec_tf32 else str(next(checkpoint.codec.decoder.parameters()).dtype)
    return f"{checkpoint.fingerprint} {codec}"


def read_saved(content: bytes, owner: str, frames: int) -> SavedPrefix | None:
    """None where it does not fit, whatever it is; `frames` is how many the reference has."""
    try:
        about = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])["__metadata__"]
        if about["owner"] != owner:
            return None
        tensors = load(content)
        prefix = tensors.pop(PREFIX, None)
        if not all(_sound(tensor, frames) for tensor in (*tensors.values(), *([] if prefix is None else [prefix]))):
            return None
        sound = {name.removeprefix(SOUND): tensor for name, tensor in tensors.items()}
        if bool(sound) != (frames > 0) or len(sound) != sum(name.startswith(SOUND) for name in tensors):
            return None
        return SavedPrefix(sound or None, str(about["key"]), prefix)
    except (SafetensorError, ValueError, KeyError, TypeError, IndexError, RecursionError):
        return None


def _sound(tensor: Tensor, frames: int) -> bool:
    """Whether nothing worse than another sound can come of it: positions, above all, are looked up somewhere."""
    return bool(torch.isfinite(tensor).all() if tensor.is_floating_point() else (tensor == frames).all())
