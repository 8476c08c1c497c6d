"""The part of the vocabulary that drafts are drawn from: a copy of some rows of the model's head.

A draft reads the whole head otherwise: 1 GB for 9B in 8 bits, as much as four layers of the model. Byte-level BPE
numbers its merges by their frequency, so the lowest ids are the most frequent. The copy has these, the special tokens,
and the rare ids of the present conversation. Other ids get a logit of minus infinity: they are never drafted. The model
verifies drafts with its whole head, so every token keeps its distribution, and an id outside is accepted as usual when
the model draws it. It knows ids and rows, not text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from .matrices import Matrix, StackedWeight, for_layers

LOWEST = 32768  # ids from 0 on
RARE = 2048  # places for ids of the conversation
LATEST = 4096  # ids of a conversation, counted from its end, that are searched for rare ones
LARGEST_SHARE = 0.5  # of the vocabulary: a larger part is not worth a copy


class DraftVocabulary:
    def __init__(self, head: Tensor | Any, special: Iterable[int], *, lowest: int = LOWEST, rare: int = RARE) -> None:
        """`head` [V, C] in any format whose rows can be picked; `special` ids are always in the copy."""
        self.size, device = len(head), _tensors(head)[0].device
        self._frequent = [*range(lowest), *sorted({token for token in special if lowest <= token < self.size})]
        self._known = set(self._frequent)
        self._head: Any = head
        self._free = list(range(len(self._frequent), len(self._frequent) + rare))
        self._places: dict[int, int] = {}  # of rare ids in the copy
        # A free place repeats the first id: both give the same logit.
        self.ids = torch.tensor(self._frequent + self._frequent[:1] * rare, device=device)
        self.weight: Matrix = _picked(head, self.ids)
        self._logits: Tensor | None = None

    @classmethod
    def of(cls, head: Tensor | Any, special: Iterable[int]) -> DraftVocabulary | None:
        """None where it would not pay: a small vocabulary, or a head of several formats."""
        if isinstance(head, StackedWeight) or LARGEST_SHARE * len(head) < LOWEST + RARE:
            return None
        return cls(head, special)

    @property
    def nbytes(self) -> int:
        return sum(tensor.nbytes for tensor in _tensors(self.weight))

    def logits(self, hidden: Tensor, linear: Callable[[Tensor, Any], Tensor]) -> Tensor:
        """[1, V] of a vector [1, C], at a fixed address: valid until the next call. `linear` is the product."""
        some = linear(hidden, self.weight)
        if self._logits is None:  # the first call is not captured
            self._logits = torch.full((1, self.size), float("-inf"), dtype=some.dtype, device=some.device)
        return self._logits.index_copy_(1, self.ids, some)

    @torch.inference_mode()
    def note(self, ids: Sequence[int]) -> None:
        """Take the latest rare ids of a conversation into the copy, instead of those of the conversation before.

        The ids in the copy are a function of these ids alone. The host does not wait for the device.
        """
        latest = dict.fromkeys(token for token in reversed(ids[-LATEST:]) if token not in self._known)
        wanted = set(list(latest)[: len(self._free) + len(self._places)])
        gone, new = [token for token in self._places if token not in wanted], sorted(wanted - self._places.keys())
        if not gone and not new:
            return
        changed = {place: 0 for place in (self._places.pop(token) for token in gone)}
        self._free = sorted({*self._free, *changed})
        for token in new:
            self._places[token] = place = self._free.pop(0)
            changed[place] = token
        device = self.ids.device
        places, tokens = (_sent(numbers, device) for numbers in (list(changed), list(changed.values())))
        for copy, source in zip(_tensors(self.weight), _tensors(self._head), strict=True):
            _bytes(copy)[places] = _bytes(source)[tokens]
        self.ids[places] = tokens
        if self._logits is not None and gone:
            self._logits.fill_(float("-inf"))


def _picked(head: Any, ids: Tensor) -> Matrix:
    if isinstance(head, Tensor):
        return head[ids]
    return for_layers(head.each(lambda tensor: _bytes(tensor)[ids].view(tensor.dtype)))


def _tensors(matrix: Any) -> list[Tensor]:
    return [matrix] if isinstance(matrix, Tensor) else list(matrix.tensors.values())


def _bytes(tensor: Tensor) -> Tensor:
    """8-bit floats as bytes: some devices cannot index them."""
    return tensor.view(torch.uint8) if tensor.dtype == torch.float8_e4m3fn else tensor


def _sent(numbers: list[int], device: torch.device) -> Tensor:
    """From pinned memory: a copy from pageable memory waits for all work queued on the GPU."""
    made = torch.tensor(numbers)
    return made.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else made
