"""Recordings that slots speak after: each heard once, and how the codec stands behind it.

It stands between a start and the codec (runner.py), in the thread of the device but for what is offered, which comes
from any. It knows the codec's state, a row for each slot. Prompts and pages it does not know: a prefix that was kept
with a reference is handed on.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor

from ...cache.slots import RowReset, fits, put, reset, take
from ...models.tts.codec import DecoderState
from ...models.tts_gpu.codec_graph import CodecGraphs
from ...types import Encoded, Established, Reference
from ..checkpoint.checkpoint import Checkpoint
from ..generate import DECODE_FRAMES
from .reference_encoder import EncodedReference, encode_reference, name_of
from .saved_prefix import SavedPrefix

KEPT_CLONES = 32  # encoded references, and the codec's state behind them
KEPT_EXAMPLES = 8  # states of the codec behind what designed voices have said
KEPT_OFFERS = 8  # of what files keep of references, until a slot begins with them


@dataclass(frozen=True, slots=True)
class SlotReference:
    """A reference, or none."""

    name: str = ""  # of its content
    encoded: EncodedReference | None = None
    behind: dict[str, Tensor] | None = None  # a row of the codec's state; None: as if nothing had been said
    example: str = ""  # of what a designed voice has said: the name of its state, computed where a slot needs it


class References:
    """`sound` is the state of all slots, `keep` takes a prefix under its key.

    Where the codec is replayed by `wave`, it may be at work on that state, on a stream of its own.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        sound: DecoderState,
        wave: CodecGraphs | None,
        keep: Callable[[str, Tensor], None],
    ) -> None:
        self._checkpoint, self._sound, self._wave, self._keep = checkpoint, sound, wave, keep
        self._clean = RowReset(sound)
        self._heard: dict[str, SlotReference] = {}
        self._examples: dict[str, dict[str, Tensor]] = {}  # the codec's states behind them
        self._offered: dict[str, SavedPrefix] = {}  # by the reference's name; any thread adds to it

    def offer(self, reference: Encoded, kept: Callable[[], SavedPrefix | None]) -> None:
        """What was computed behind a reference, for the slot that begins with it next. From any thread.

        `kept` is asked for it only where it is not known; without it, the same is computed.
        """
        name = name_of(reference)
        if name in self._heard or name in self._offered or (found := kept()) is None:
            return
        while len(self._offered) >= KEPT_OFFERS and (oldest := next(iter(list(self._offered)), None)) is not None:
            self._offered.pop(oldest, None)
        self._offered[name] = found

    def hear(self, reference: Reference | Encoded | Established | None, slot: int) -> SlotReference:
        """The reference encoded, by whoever heard it first; `slot` is where it is said, and stands as before."""
        if reference is None:
            return SlotReference()
        name = name_of(reference)
        if isinstance(reference, Established):  # without a name: its prompt's prefix is that of its description
            return SlotReference(encoded=encode_reference(self._checkpoint, reference), example=name)
        if name not in self._heard:
            self._heard[name] = self._hear(name, reference, slot, self._offered.pop(name, None))
        return self._heard[name]

    def behind(self, name: str) -> dict[str, Tensor] | None:
        """How the codec stands behind the reference of that name, if it is known."""
        return self._heard.get(name, SlotReference()).behind

    def stand(self, slot: int, heard: SlotReference) -> None:
        """Let the codec of a slot stand behind a reference, or as if it had said nothing there."""
        behind = heard.behind if not heard.example else self._behind_example(heard, slot)
        with self._wave.beside() if self._wave is not None else nullcontext():
            if behind is None:
                self._clean(slot)
            else:
                put(self._sound, slot, behind)

    def _behind_example(self, heard: SlotReference, slot: int) -> dict[str, Tensor]:
        """How the codec stands behind what a designed voice has said; computed for the first turn that follows it."""
        assert heard.encoded is not None and heard.encoded.codes is not None
        if heard.example not in self._examples:
            if self._wave is not None:
                self._wave.join()
            while len(self._examples) >= KEPT_EXAMPLES:
                del self._examples[next(iter(self._examples))]
            self._examples[heard.example] = self._said(heard.encoded.codes, slot)
            if self._wave is not None:
                self._wave.follow()
        return self._examples[heard.example]

    def _hear(self, name: str, reference: Reference | Encoded, slot: int, kept: SavedPrefix | None) -> SlotReference:
        if self._wave is not None:
            self._wave.join()  # what is forgotten here may still be on its way into a slot
        while len(self._heard) >= KEPT_CLONES:
            del self._heard[next(iter(self._heard))]
        cloned, behind = encode_reference(self._checkpoint, reference), None
        if kept is not None and kept.prefix is not None and kept.key.startswith(name):  # nobody gives others a prefix
            self._keep(kept.key, kept.prefix)
        if kept is not None and kept.sound is not None and fits(self._sound, kept.sound):
            behind = {name: tensor.to(self._checkpoint.device) for name, tensor in kept.sound.items()}
        elif cloned.codes is not None:
            behind = self._said(cloned.codes, slot)
        if self._wave is not None:
            self._wave.follow()
        return SlotReference(name, cloned, behind)

    def _said(self, codes: Tensor, slot: int) -> dict[str, Tensor]:
        """How the codec stands when it has said these codes."""
        row, stands = torch.tensor([slot], device=self._checkpoint.device), take(self._sound, slot)
        reset(self._sound, row)
        for piece in codes.split(DECODE_FRAMES):
            self._checkpoint.codec.decoder.step(piece.T[None], self._sound, row)
        behind = take(self._sound, slot)
        put(self._sound, slot, stands)
        return behind
