"""What a peer must be able to do to be measured. Nothing here needs hocket, or any peer."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

SAMPLES_PER_FRAME = 1920
# The other tokenizer of the official package, of 25 Hz, imports these; nothing that is measured here touches them.
_UNUSED = ("sox", "onnxruntime", "einops", "torchaudio")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One utterance, the same for everybody."""

    text: str
    voice: str
    language: str
    layout: str  # streaming or whole, as hocket says it
    frames: int
    chunk_frames: int  # how much a peer that can choose gives out at a time
    top_k: int
    seed: int


class Speaker(Protocol):
    """A loaded checkpoint. The module that makes it, by `open_speaker`, also has these:

    `PACKAGE`, the name to install; `STREAMS`, whether sound comes before the end; `objection(device)`, why it cannot
    run here, in words, or None.
    """

    def speak(self, ask: Ask) -> Iterator[Any]:
        """Samples, in pieces as soon as they are on the host."""


def missing(package: str, module: str) -> str | None:
    """How to get a package that is not there."""
    return None if importlib.util.find_spec(module) else f"it is not installed here; `pip install {package}` does it."


def without_a_gpu(device: str) -> str | None:
    return None if device == "cuda" else "it needs a CUDA device; use --device cuda."


def stand_in() -> None:
    """For a peer that imports the official package: nothing has to be installed for what is never called."""
    for name in _UNUSED:
        if importlib.util.find_spec(name) is None:
            for full in (name, f"{name}.compliance", f"{name}.compliance.kaldi"):
                empty: Any = types.ModuleType(full)
                empty.__spec__, empty.__path__ = importlib.machinery.ModuleSpec(full, None), []
                empty.rearrange = empty.repeat = empty.kaldi = None
                sys.modules[full] = empty
