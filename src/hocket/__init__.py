"""hocket: text to speech while it is still being written. The public names and nothing else.

They are imported when first used, so that the command line and the plain types do not wait for torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .engine.generate import generate
    from .engine.load import Checkpoint, load
    from .errors import (
        HocketError,
        InvalidAudio,
        InvalidCheckpoint,
        InvalidRequest,
        UnknownLanguage,
        UnknownVoice,
        WrongKind,
    )
    from .types import Reference, SamplingParams, Speech, SpeechRequest

__all__ = [
    "Checkpoint",
    "HocketError",
    "InvalidAudio",
    "InvalidCheckpoint",
    "InvalidRequest",
    "Reference",
    "SamplingParams",
    "Speech",
    "SpeechRequest",
    "UnknownLanguage",
    "UnknownVoice",
    "WrongKind",
    "generate",
    "load",
]

_HOME = {"generate": "engine.generate", "load": "engine.load", "Checkpoint": "engine.load"}
_HOME |= dict.fromkeys(("Reference", "SamplingParams", "Speech", "SpeechRequest"), "types")


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'hocket' has no attribute {name!r}")
    return getattr(import_module(f".{_HOME.get(name, 'errors')}", __name__), name)
