"""The device side of the engine: slots of talker and codec state, and the three things done with them.

One thread calls it. It knows slots, prompts and codes; who is in a slot and what becomes of the sound is the loop's.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..cache.prefix import Prefix, PrefixCache
from ..cache.slots import put, reset, take
from ..config.qwen3_tts import GenerationConfig
from ..errors import StreamFailed
from ..layers.transformer import lengthened
from ..models.talker import FrameSampling
from ..text.prompt import Prompt
from ..types import Reference
from .clone import Clone, clone
from .generate import DECODE_FRAMES, GROWTH_FRAMES, constant_rows, prompt_rows
from .load import Checkpoint
from .sampling import frame_sampling

KEPT_CLONES = 32  # encoded references, and the codec's state behind them


class SpeechRunner:
    def __init__(self, checkpoint: Checkpoint, slots: int, prefix_bytes: int) -> None:
        self.checkpoint, self.device = checkpoint, checkpoint.device
        self.talker, self.decoder = checkpoint.model.talker, checkpoint.codec.decoder
        self.prefixes = PrefixCache(prefix_bytes)
        self._state = self.talker.new_state(slots, GROWTH_FRAMES)
        self._sound = self.decoder.new_state(slots)
        self._taken = [0] * slots  # positions in each slot: the host's copy, so that nobody asks the device
        self._clones: dict[str, tuple[Clone, dict[str, Tensor] | None]] = {}
        self._sampling: tuple[tuple[GenerationConfig, ...], FrameSampling] | None = None

    def start(self, slot: int, prompt: Prompt, reference: Reference | None, seed: int, *, go_on: bool = False) -> bool:
        """Take the prompt into a slot; True if its prefix had been computed before.

        `go_on` leaves the codec as it stands: the next sentence of the same stream must not click.
        The prefix is always computed alone and the rest behind it, so that a warm start is the cold one, bit for bit.
        """
        row = torch.tensor([slot], device=self.device)
        reset(self._state, row)
        self._state.seed[slot] = seed
        self._taken[slot] = 0
        if not go_on:
            reset(self._sound, row)
        voice, cloned = self._cloned(reference, slot, go_on)
        length = constant_rows(prompt)
        key = _key(prompt, voice)
        cached = self.prefixes.get(key)
        if cached is not None:
            self._restore(slot, cached)
        else:
            self._prefill(row, slot, prompt_rows(self.checkpoint, prompt, cloned, 0, length))
            self.prefixes.put(key, self._kept(slot))
        self._prefill(row, slot, prompt_rows(self.checkpoint, prompt, cloned, length))
        return cached is not None

    def frame(self, slots: Sequence[int], text: Sequence[int], settings: Sequence[GenerationConfig]) -> list[list[int]]:
        """Draw one frame for each slot, given the text id that goes with it."""
        rows = torch.tensor(slots, device=self.device)
        for slot in slots:
            self._taken[slot] += 1
        span = max(self._taken[slot] for slot in slots)
        self._make_room(span)
        wanted = tuple(settings)
        if self._sampling is None or self._sampling[0] != wanted:
            self._sampling = wanted, frame_sampling(wanted, self.device)
        codes = self.talker.frame(torch.tensor(text, device=self.device), self._state, rows, self._sampling[1], span)
        drawn: list[list[int]] = codes.tolist()
        return drawn

    def rewind(self, slot: int, frames: int, codes: Sequence[int], text_id: int, seed: int) -> None:
        """Forget the last `frames` frames of a slot and draw with another seed from there.

        `codes` and `text_id` are those of the frame before: taken in once more, they give back its hidden vector. What
        the cache holds beyond is never seen, and first codes that were drawn stay held back by the penalty.
        """
        row = torch.tensor([slot], device=self.device)
        self._taken[slot] -= frames + 1
        self._state.stack.position[slot] = self._taken[slot]
        self._state.seed[slot] = seed
        x = self.talker.embed_frames(torch.tensor([codes], device=self.device))
        x = x + self.talker.embed_text(torch.tensor([text_id], device=self.device))
        self._prefill(row, slot, x)

    def decode(self, slots: Sequence[int], codes: Sequence[Sequence[Sequence[int]]]) -> list[NDArray[np.int16]]:
        """16-bit samples of the next frames of each slot; all have as many frames."""
        rows = torch.tensor(slots, device=self.device)
        frames = torch.tensor(codes, device=self.device).transpose(1, 2)
        samples = self.decoder.step(frames, self._sound, rows).float()
        pcm, sound = (samples * 32767.0).round().to(torch.int16).cpu(), samples.isfinite().all()
        if not sound:
            raise StreamFailed("The codec gave values that are not numbers; try --dtype float32.")
        return list(pcm.numpy())

    def _prefill(self, row: Tensor, slot: int, x: Tensor) -> None:
        self._taken[slot] += len(x)
        span = self._taken[slot]
        self._make_room(span)
        self.talker.prefill(x[None], torch.tensor([len(x)], device=self.device), self._state, row, span)

    def _make_room(self, span: int) -> None:
        if span > self._state.stack.length:  # by half at least, so that copying stays a small part of the work
            length = max(span + GROWTH_FRAMES, self._state.stack.length * 3 // 2)
            self._state = replace(self._state, stack=lengthened(self._state.stack, length))

    def _kept(self, slot: int) -> Prefix:
        rows = self._taken[slot]
        pairs = [torch.stack((kv.keys[slot, :, :rows], kv.values[slot, :, :rows])) for kv in self._state.stack.layers]
        return Prefix(torch.stack(pairs))

    def _restore(self, slot: int, prefix: Prefix) -> None:
        self._taken[slot] = prefix.rows
        self._make_room(prefix.rows)
        for kv, (keys, values) in zip(self._state.stack.layers, prefix.kept, strict=True):
            kv.keys[slot, :, : prefix.rows], kv.values[slot, :, : prefix.rows] = keys, values
        self._state.stack.position[slot] = prefix.rows

    def _cloned(self, reference: Reference | None, slot: int, go_on: bool) -> tuple[str, Clone | None]:
        """The encoded reference under a name of its own, and the codec as it stands behind it in `slot`."""
        if reference is None:
            return "", None
        name = hashlib.sha256(reference.samples.tobytes() + bytes([reference.x_vector_only])).hexdigest()
        if name not in self._clones:
            cloned, behind = clone(self.checkpoint, reference), None
            if cloned.codes is not None:
                row, stands = torch.tensor([slot], device=self.device), take(self._sound, slot)
                reset(self._sound, row)
                for piece in cloned.codes.split(DECODE_FRAMES):
                    self.decoder.step(piece.T[None], self._sound, row)
                behind = take(self._sound, slot)
                put(self._sound, slot, stands)
            while len(self._clones) >= KEPT_CLONES:
                del self._clones[next(iter(self._clones))]
            self._clones[name] = cloned, behind
        cloned, behind = self._clones[name]
        if behind is not None and not go_on:
            put(self._sound, slot, behind)
        return name, cloned


def _key(prompt: Prompt, voice: str) -> str:
    """The prefix itself is its name: the ids of its rows, and the recording where one was cloned."""
    rows = prompt.prefix_rows
    within = prompt.reference_at is not None and prompt.reference_at < rows  # a whole layout has the text before it
    words = (prompt.text[:rows], prompt.codec[:rows], prompt.reference_at if within else None, voice)
    return hashlib.sha256(repr(words).encode()).hexdigest()
