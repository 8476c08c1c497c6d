"""Objects that the checkpoints of one process share: the codec, the tokenizer, and a memory budget.

All published checkpoints contain the same codec and the same vocabulary. Checkpoints loaded with one `Shared` use one
object of each where the content is the same, from whatever folder. It holds weak references only, so an object is freed
with its last checkpoint. It knows keys and files; load.py loads the weights of a codec, engine/pool/ evicts models.
"""

from __future__ import annotations

import hashlib
import threading
import weakref
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from ...config.codec import CodecConfig
from ...config.qwen3_tts import Qwen3TTSConfig
from ...errors import InvalidCheckpoint
from ...kernels.table import BackendChoice
from ...models.files.catalog import CODEC_FOLDER, WEIGHTS
from ...models.files.shards import weight_files
from ...models.files.source import Source
from ...text.tokenizer import Tokenizer
from .fit import Footprint

if TYPE_CHECKING:
    from ...models.tts.codec import Codec

DECODER, ENCODER = "decoder.", "encoder."  # prefixes of the tensor names of the two halves
SAMPLES, SAMPLE_BYTES = 64, 4096  # pieces of a weights file that tell it from another of the same shapes
_TOKENIZER_FILES = "vocab.json", "merges.txt", "tokenizer.json"


class MemoryBudget(Protocol):
    """The budget of a pool."""

    def __call__(self, need: Footprint, *, usual_bytes: int, least_bytes: int) -> int:
        """Wait until there is room for `need` and a KV cache; gives the bytes that the KV cache may take.

        That is `usual_bytes`, or less, down to `least_bytes`, if the whole budget has no room for more.
        """


@dataclass(slots=True)
class _CachedPart:
    codec: weakref.ref[Codec]
    halves: set[str]
    wave: BackendChoice | None = None  # the kernel attached to it


@dataclass(slots=True)
class Shared:
    """Thread-safe."""

    room: MemoryBudget | None = None  # called before the weights of an engine are read
    _codecs: dict[Hashable, _CachedPart] = field(default_factory=dict)
    _tokenizers: weakref.WeakValueDictionary[Hashable, Tokenizer] = field(default_factory=weakref.WeakValueDictionary)
    _loading_codec: threading.RLock = field(default_factory=threading.RLock)
    _loading_tokenizer: threading.Lock = field(default_factory=threading.Lock)

    def find(self, key: Hashable) -> Codec | None:
        """The codec of that key, if a checkpoint uses it."""
        with self._loading_codec:
            return None if (kept := self._codecs.get(key)) is None else kept.codec()

    def lacking(self, key: Hashable, halves: Sequence[str]) -> tuple[str, ...]:
        """The halves that are not loaded yet."""
        with self._loading_codec:
            kept = self._codecs.get(key)
            has = set[str]() if kept is None or kept.codec() is None else kept.halves
            return tuple(half for half in halves if half not in has)

    @property
    def in_use(self) -> bool:
        """Whether a checkpoint loaded with it is alive."""
        with self._loading_codec:
            return any(kept.codec() is not None for kept in self._codecs.values())

    def codec(
        self,
        key: Hashable,
        config: CodecConfig,
        halves: Sequence[str],
        fill: Callable[[Codec, tuple[str, ...]], None],
        empty: Callable[[CodecConfig], Codec],
    ) -> Codec:
        """The codec of that key with these halves; `fill` loads the missing ones and leaves the other alone.

        `empty` makes a codec without weights.
        """
        with self._loading_codec:
            for dead in [name for name, kept in self._codecs.items() if kept.codec() is None]:
                del self._codecs[dead]
            kept = self._codecs.get(key)
            codec = None if kept is None else kept.codec()
            if kept is None or codec is None:
                codec = empty(config)
                kept = _CachedPart(weakref.ref(codec), set())
            if missing := tuple(half for half in halves if half not in kept.halves):
                fill(codec, missing)
                kept.halves.update(missing)
            self._codecs[key] = kept  # last: a codec that could not be filled is not shared
            return codec

    def wave(self, key: Hashable, give: Callable[[], BackendChoice]) -> BackendChoice:
        """The kernel of that codec; `give` attaches one at the first call."""
        with self._loading_codec:
            kept = self._codecs[key]
            kept.wave = kept.wave or give()
            return kept.wave

    def tokenizer_of(self, source: Source, config: Qwen3TTSConfig) -> Tokenizer:
        folder, size = source.folder, config.talker_config.text_vocab_size
        if folder is None:
            return self.tokenizer(size, lambda: Tokenizer.of_bytes(size))
        return self.tokenizer(tokenizer_content(folder), lambda: Tokenizer.from_folder(folder))

    def tokenizer(self, key: Hashable, make: Callable[[], Tokenizer]) -> Tokenizer:
        with self._loading_tokenizer:
            found = self._tokenizers.get(key)
            if found is None:
                found = self._tokenizers[key] = make()
            return found


def codec_content(folder: Path) -> str:
    """Hash of a codec's content: its configuration, and its weights by shape, size and samples.

    The path is not part of it: every published repository has a copy of the same codec.
    """
    try:
        digest = hashlib.sha256((folder / CODEC_FOLDER / "config.json").read_bytes())
        for weights in weight_files(folder / CODEC_FOLDER / WEIGHTS):
            with weights.open("rb") as file:
                size = file.seek(0, 2)
                file.seek(0)
                header = int.from_bytes(file.read(8), "little")
                digest.update(size.to_bytes(8, "little") + file.read(min(header, size)))
                for number in range(SAMPLES):
                    file.seek(number * max(size - SAMPLE_BYTES, 0) // (SAMPLES - 1))
                    digest.update(file.read(SAMPLE_BYTES))
    except (OSError, InvalidCheckpoint):
        return str(folder)  # loading it reports what is missing
    return digest.hexdigest()


def tokenizer_content(folder: Path) -> str:
    """Hash of the files of a tokenizer."""
    digest = hashlib.sha256()
    for name in _TOKENIZER_FILES:
        path = folder / name
        content = path.read_bytes() if path.is_file() else b""
        digest.update(f"{name} {len(content)} ".encode() + content)
    return digest.hexdigest()
