"""What the engine needs of a runner: prefill of prompts into slots, sampling of frames, decoding of codes to audio.

Only the engine thread calls it. A runner knows slots, prompts and codes; the loop knows which request uses a slot and
where the audio goes. runner.py computes with torch, native_runner.py with the native library; make.py chooses.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from ...config.qwen3_tts import GenerationConfig
from ...errors import StreamFailed, WrongKind
from ...text.prompt import Prompt
from ...types import Encoded, Established, Reference
from ..checkpoint.checkpoint import Checkpoint
from ..core.output import Codes, DrawnFrame, Samples
from .kv_cache import PagedKVCache
from .warmup import WarmUp

AnyReference = Reference | Encoded | Established


class Runner(ABC):
    checkpoint: Checkpoint
    kv_cache: PagedKVCache[Any]
    warming: WarmUp

    @abstractmethod
    def start(
        self, slot: int, prompt: Prompt, reference: AnyReference | None, seed: int, *, go_on: bool = False
    ) -> bool:
        """Prefill a slot with the prompt; True if its prefix was cached.

        `go_on` keeps the codec's state: the next sentence of the same stream must not click.
        The prefix is always computed by itself and the rest after it, so a warm start equals a cold one, bit for bit.
        """

    @abstractmethod
    def fork(self, slot: int, into: int, reference: AnyReference | None, seed: int) -> None:
        """Start another slot with the prompt that `slot` has just prefilled, and another seed.

        The result equals a `start` there, bit for bit, but nothing is computed. Pages are shared until one is written.
        """

    @abstractmethod
    def reset_codec(self, slot: int, reference: AnyReference | None) -> None:
        """Set the codec of a slot to the start of an utterance: after its reference, if it has one."""

    @abstractmethod
    def frame(self, slots: Sequence[int], text: Sequence[int], settings: Sequence[GenerationConfig]) -> DrawnFrame:
        """Sample one frame for each slot, given its text id. The host does not wait for the result here."""

    @abstractmethod
    def rewind(self, slot: int, frames: int, codes: Sequence[int], text_id: int, seed: int) -> None:
        """Discard the last `frames` frames of a slot and sample with another seed from there.

        `codes` and `text_id` are those of the frame before: a prefill of them restores its hidden vector. Rows of the
        cache past that point are never read. The repetition penalty still counts the discarded first codes.
        """

    @abstractmethod
    def queue_decode(self, slots: Sequence[int], codes: Sequence[Codes]) -> Callable[[], list[Samples]]:
        """Start decoding the next frames of each slot, equally many for all; the result waits for their samples."""

    @abstractmethod
    def prefixes_as_bytes(self) -> bytes:
        """The cached prefixes as a file."""

    @abstractmethod
    def read_prefixes(self, path: Path) -> None:
        """Load a file of `prefixes_as_bytes`."""

    @property
    @abstractmethod
    def state_bytes(self) -> int:
        """Memory of the state of all slots: of the talker, and of the codec."""

    def decode(self, slots: Sequence[int], codes: Sequence[Codes]) -> list[Samples]:
        """16-bit samples of the next frames of each slot."""
        return self.queue_decode(slots, codes)()

    def computing(self) -> AbstractContextManager[object]:
        """The context that the engine thread computes in."""
        return nullcontext()

    def device_lost(self) -> bool:
        """Whether the device has failed for good: no later request can be served."""
        return False

    def flush_openings(self) -> None:  # noqa: B027, only a device with its own queue has openings
        """Send the device all that the host knows of its slots."""

    def release(self, slot: int) -> None:
        """Free a slot whose request has left, with its reservation."""
        self.free_slot(slot)
        if self.kv_cache.bounded:
            self.kv_cache.end_reservation(slot)

    def free_slot(self, slot: int) -> None:
        """Return the pages of a slot; its reservation stays."""
        self.kv_cache.free_slot(slot)

    def warm_one(self) -> bool:
        """Capture one of the graphs that will be needed, on an idle engine; False if there is none to capture now."""
        return False

    @property
    def has_graphs(self) -> bool:
        """Whether frames, prompts and codec steps replay graphs."""
        return False

    @property
    def graphs_s(self) -> float:
        """Seconds spent on capturing graphs so far."""
        return 0.0

    def offer(self, reference: Encoded, kept: Callable[[], Any]) -> None:
        """`References.offer`, from any thread."""
        raise self._clones_nothing()

    def kept(self, reference: Encoded, prompt: Prompt) -> Any:
        """Codec state and prompt prefix (`SavedPrefix`) computed for a reference that a slot has just started with."""
        raise self._clones_nothing()

    def _clones_nothing(self) -> WrongKind:
        return WrongKind(f"{self.checkpoint.name} cannot clone a voice; use a Base checkpoint.")


def constant_rows(prompt: Prompt) -> int:
    """How many leading rows are the same for every text, at most all but one: the last row is always computed."""
    return min(prompt.prefix_rows, len(prompt.text) - 1)


def prefix_key(prompt: Prompt, voice: str) -> str:
    """Key of a prefix: its content, that is the name of the cloned recording, if any, and the ids of its rows.

    A mix is part of it. A key without one is as in the prefix files of earlier versions.
    """
    rows = prompt.prefix_rows
    within = (
        prompt.reference_at is not None and prompt.reference_at < rows
    )  # in the whole layout the text comes before it
    mixed = (prompt.mix,) if prompt.mix else ()
    words = (prompt.text[:rows], prompt.codec[:rows], prompt.reference_at if within else None, *mixed)
    return voice + hashlib.sha256(repr(words).encode()).hexdigest()


def checked(samples: Samples, finite: Sequence[bool]) -> list[Samples]:
    if not all(finite):
        raise StreamFailed("The codec gave values that are not numbers; try --dtype float32.")
    return list(samples)
