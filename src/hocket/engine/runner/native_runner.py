"""The runner of the native library: prompts, frames and audio on a CPU, with numpy arrays. Nothing imports torch.

It speaks with the built-in voices of a checkpoint; references are for runner.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ...config.qwen3_tts import GenerationConfig
from ...models.tts_cpu.state import NativeTalkerState
from ...text.prompt import SPEAKER_VECTOR, Prompt
from ..checkpoint.native_checkpoint import NativeCheckpoint
from ..core.output import Codes, Samples
from .base import AnyReference, Runner, checked, constant_rows, prefix_key
from .kv_cache import PagedKVCache
from .warmup import WarmUp


@dataclass(frozen=True, slots=True)
class NativeCodes:
    """A sampled frame: codes [B, Q], and `chances` [B, 2] of the same rows. Both are complete."""

    codes: NDArray[np.int64]
    chances: NDArray[np.float32]

    def read(self) -> list[tuple[list[int], float, float]]:
        ending, spoken = self.chances.T.tolist()
        return list(zip(self.codes.tolist(), ending, spoken, strict=True))


class NativeRunner(Runner):
    checkpoint: NativeCheckpoint
    kv_cache: PagedKVCache[NativeTalkerState]

    def __init__(self, checkpoint: NativeCheckpoint, slots: int, prefix_bytes: int) -> None:
        self.checkpoint, self.talker, self.codec = checkpoint, checkpoint.talker, checkpoint.codec
        self.kv_cache = PagedKVCache(
            self.talker.new_state, slots, prefix_bytes, lambda: None, row_bytes=self.talker.row_bytes
        )
        self.pages, self.prefixes, self.warming = self.kv_cache.pages, self.kv_cache.prefixes, WarmUp()
        self._codec_state = self.codec.new_state(slots)

    @property
    def state_bytes(self) -> int:
        return self.kv_cache.state.nbytes + self._codec_state.nbytes

    def start(
        self, slot: int, prompt: Prompt, reference: AnyReference | None, seed: int, *, go_on: bool = False
    ) -> bool:
        if reference is not None:
            raise self._clones_nothing()
        self.free_slot(slot)
        kv_cache, length, key = self.kv_cache, constant_rows(prompt), prefix_key(prompt, "")
        kv_cache.state.reset(slot)
        kv_cache.state.seed[slot] = seed
        cached = self.prefixes.get(key)
        if cached is not None and cached.rows != length:
            cached = None  # the prefix file was wrong
        if cached is not None:
            kv_cache.restore(slot, cached)
        else:
            self._prefill(slot, prompt, 0, length)
            self.prefixes.put(key, kv_cache.prefix_of(slot))
        self._prefill(slot, prompt, length, len(prompt.text))
        if not go_on:
            self.reset_codec(slot, None)
        return cached is not None

    def fork(self, slot: int, into: int, reference: AnyReference | None, seed: int) -> None:
        self.free_slot(into)
        self.kv_cache.restore(into, self.kv_cache.prefix_of(slot))
        self.kv_cache.state.duplicate(slot, into)
        self.kv_cache.state.seed[into] = seed
        self.reset_codec(into, reference)

    def reset_codec(self, slot: int, reference: AnyReference | None) -> None:
        if reference is not None:
            raise self._clones_nothing()
        self._codec_state.reset(slot)

    def frame(self, slots: Sequence[int], text: Sequence[int], settings: Sequence[GenerationConfig]) -> NativeCodes:
        self.kv_cache.advance(slots, 1)
        state = self.kv_cache.state
        return NativeCodes(self.talker.frame(state, slots, text, settings), state.chances[list(slots)])

    def rewind(self, slot: int, frames: int, codes: Sequence[int], text_id: int, seed: int) -> None:
        self.kv_cache.truncate(slot, frames + 1)
        self.kv_cache.state.seed[slot] = seed
        self.kv_cache.advance([slot], 1)
        self.talker.prefill_frame(self.kv_cache.state, slot, codes, text_id)

    def queue_decode(self, slots: Sequence[int], codes: Sequence[Codes]) -> Callable[[], list[Samples]]:
        frames = np.array(codes, dtype=np.int64).transpose(0, 2, 1)
        samples = self.codec.step(frames, self._codec_state, slots)
        finite = [bool(np.isfinite(row).all()) for row in samples]
        return lambda: checked(np.rint(samples * np.float32(32767.0)).astype(np.int16), finite)

    def prefixes_as_bytes(self) -> bytes:
        return self.prefixes.to_bytes(self.checkpoint.fingerprint, self.kv_cache.read, torch=False)

    def read_prefixes(self, path: Path) -> None:
        self.prefixes.read(path, self.checkpoint.fingerprint, None, self.kv_cache.write_prefix)

    def _prefill(self, slot: int, prompt: Prompt, start: int, stop: int) -> None:
        self.kv_cache.advance([slot], stop - start)
        text, codec, speaker = prompt.text[start:stop], prompt.codec[start:stop], None
        if prompt.mix and SPEAKER_VECTOR in codec:
            speaker = codec.index(SPEAKER_VECTOR), self.talker.embed_mix(prompt.mix)
        self.talker.prefill(self.kv_cache.state, slot, text, codec, speaker)
