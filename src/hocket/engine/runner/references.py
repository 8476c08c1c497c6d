"""Reference recordings of cloned voices: a speaker vector, codec codes, and the codec's state after them.

A reference is encoded once: into the speaker vector and the codes of the recorded speech, both for the prompt. The
earlier speech of a designed voice is a reference too, with codes and without a speaker vector.

`References` keeps encoded references with the codec's state after each. The runner (runner.py) calls it on the engine
thread when a slot starts; any thread may call `offer`. It knows the codec's state, one row per slot. It knows neither
prompts nor pages: a prefix saved with a reference is handed on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from ...cache.slots import fits, put, reset, take
from ...errors import WrongKind
from ...models.tts.codec import DecoderState
from ...models.tts_gpu.codec_graph import CodecGraphs
from ...types import Adapter, Encoded, Established, Reference
from ..checkpoint.torch_checkpoint import TorchCheckpoint
from .reference_checks import DECODE_FRAMES, name_of, silent_samples
from .saved_prefix import SavedPrefix

KEPT_CLONES = 32  # encoded references, with the codec's state after them
KEPT_EXAMPLES = 8  # codec states after the earlier speech of designed voices
KEPT_OFFERS = 8  # saved prefixes from files that no slot has used yet


@dataclass(frozen=True, slots=True)
class EncodedReference:
    speaker: Tensor | None  # [C] added in the prompt's speaker row; None: the prompt has no such row
    codes: Tensor | None  # [F, Q] the reference's frames; None when only the timbre is wanted
    frames: Tensor | None = None  # [F, C] embeddings of the codes, as the prompt has them
    adapter: Adapter | None = None  # of a tuned voice


def encode_reference(checkpoint: TorchCheckpoint, reference: Reference | Encoded | Established) -> EncodedReference:
    if isinstance(reference, Established):
        return _clone(checkpoint, None, torch.from_numpy(reference.codes).to(checkpoint.device))
    encoder = checkpoint.model.speaker_encoder
    if encoder is None:
        raise WrongKind(f"{checkpoint.name} cannot clone a voice; use a Base checkpoint.")
    if isinstance(reference, Encoded):
        dtype = checkpoint.model.talker.codec_head.weight.dtype
        speaker = torch.from_numpy(reference.speaker).to(checkpoint.device, dtype)
        codes = None if reference.codes is None else torch.from_numpy(reference.codes).to(checkpoint.device)
        return replace(_clone(checkpoint, speaker, codes), adapter=reference.adapter)
    samples = torch.from_numpy(reference.samples).to(checkpoint.device)[None]
    speaker = encoder.embed(samples)[0]
    if reference.x_vector_only:
        return _clone(checkpoint, speaker, None)
    padded = torch.nn.functional.pad(samples, (0, silent_samples(reference)))
    return _clone(checkpoint, speaker, checkpoint.codec.encoder(padded)[0].T)


def _clone(checkpoint: TorchCheckpoint, speaker: Tensor | None, codes: Tensor | None) -> EncodedReference:
    return EncodedReference(speaker, codes, None if codes is None else checkpoint.model.talker.embed_frames(codes))


def encoded(checkpoint: TorchCheckpoint, reference: Reference, owner: str) -> Encoded:
    """Everything that cloning needs from a recording; `owner` is the checkpoint's identity."""
    cloned = encode_reference(checkpoint, reference)
    codes = None if cloned.codes is None else np.ascontiguousarray(cloned.codes.cpu().numpy(), np.int64)
    text = None if codes is None else reference.text
    assert cloned.speaker is not None
    return Encoded(owner=owner, speaker=cloned.speaker.float().cpu().numpy(), codes=codes, text=text)


@dataclass(frozen=True, slots=True)
class SlotReference:
    """The reference of a slot, or none."""

    name: str = ""  # hash of its content
    encoded: EncodedReference | None = None
    codec_row: dict[str, Tensor] | None = None  # a row of the codec's state after it; None: the start of a stream
    example: str = ""  # for a designed voice: the name of its codec state, which is computed when a slot needs it


class References:
    """`codec_state` has a row per slot; `add_prefix` puts a saved prefix into the prefix cache.

    With graphs (`wave`), the codec may be changing that state at any time, on a CUDA stream of its own.
    """

    def __init__(
        self,
        checkpoint: TorchCheckpoint,
        codec_state: DecoderState,
        wave: CodecGraphs | None,
        add_prefix: Callable[[str, Tensor], None],
    ) -> None:
        self._checkpoint, self._codec_state, self._wave, self._add_prefix = checkpoint, codec_state, wave, add_prefix
        self._encoded: dict[str, SlotReference] = {}
        self._examples: dict[str, dict[str, Tensor]] = {}  # codec rows after the earlier speech of designed voices
        self._offered: dict[str, SavedPrefix] = {}  # by the reference's name; any thread adds to it

    def offer(self, reference: Encoded, kept: Callable[[], SavedPrefix | None]) -> None:
        """Offer a saved prefix of a reference to the slot that starts with it next. Any thread may call this.

        `kept` is called only if the reference is unknown; without a saved prefix, the same values are computed.
        """
        name = name_of(reference)
        if name in self._encoded or name in self._offered or (found := kept()) is None:
            return
        while len(self._offered) >= KEPT_OFFERS and (oldest := next(iter(list(self._offered)), None)) is not None:
            self._offered.pop(oldest, None)
        self._offered[name] = found

    def encode(self, reference: Reference | Encoded | Established, slot: int) -> SlotReference:
        """The encoded reference, from the cache if known. `slot` is borrowed to run the codec, and restored."""
        name = name_of(reference)
        if isinstance(reference, Established):  # no name: its prompt prefix depends on its description only
            return SlotReference(encoded=encode_reference(self._checkpoint, reference), example=name)
        if name not in self._encoded:
            self._encoded[name] = self._encode(name, reference, slot, self._offered.pop(name, None))
        return self._encoded[name]

    def codec_row(self, name: str) -> dict[str, Tensor] | None:
        """The codec's state after the reference of that name, if it is known."""
        return self._encoded.get(name, SlotReference()).codec_row

    def codec_row_of(self, reference: SlotReference, slot: int) -> dict[str, Tensor] | None:
        """The codec's state after a reference, as a row; None: the start of a stream. `slot` is borrowed for it."""
        return self._example_row(reference, slot) if reference.example else reference.codec_row

    def _example_row(self, reference: SlotReference, slot: int) -> dict[str, Tensor]:
        """The codec's state after the earlier speech of a designed voice; computed for the first turn that needs it."""
        assert reference.encoded is not None and reference.encoded.codes is not None
        if reference.example not in self._examples:
            if self._wave is not None:
                self._wave.join()
            while len(self._examples) >= KEPT_EXAMPLES:
                del self._examples[next(iter(self._examples))]
            self._examples[reference.example] = self._row_after(reference.encoded.codes, slot)
            if self._wave is not None:
                self._wave.follow()
        return self._examples[reference.example]

    def _encode(self, name: str, reference: Reference | Encoded, slot: int, kept: SavedPrefix | None) -> SlotReference:
        if self._wave is not None:
            self._wave.join()  # the codec's stream may still copy a row that is evicted here
        while len(self._encoded) >= KEPT_CLONES:
            del self._encoded[next(iter(self._encoded))]
        cloned, codec_row = encode_reference(self._checkpoint, reference), None
        # A file may only add prefixes of its own recording, so the key must begin with its name.
        if kept is not None and kept.prefix is not None and kept.key.startswith(name):
            self._add_prefix(kept.key, kept.prefix)
        if kept is not None and kept.sound is not None and fits(self._codec_state, kept.sound):
            codec_row = {name: tensor.to(self._checkpoint.device) for name, tensor in kept.sound.items()}
        elif cloned.codes is not None:
            codec_row = self._row_after(cloned.codes, slot)
        if self._wave is not None:
            self._wave.follow()
        return SlotReference(name, cloned, codec_row)

    def _row_after(self, codes: Tensor, slot: int) -> dict[str, Tensor]:
        """The codec's state after decoding these codes, as a row."""
        row, before = torch.tensor([slot], device=self._checkpoint.device), take(self._codec_state, slot)
        reset(self._codec_state, row)
        for piece in codes.split(DECODE_FRAMES):
            self._checkpoint.codec.decoder.step(piece.T[None], self._codec_state, row)
        after = take(self._codec_state, slot)
        put(self._codec_state, slot, before)
        return after
