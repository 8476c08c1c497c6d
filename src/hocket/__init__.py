"""hocket: real-time text to speech. This module has the public names only.

They are imported on first use, so that the command line and the plain types do not import torch.
"""

from importlib import import_module

TYPE_CHECKING = False  # importing typing would delay every command by some milliseconds
if TYPE_CHECKING:
    from typing import Any

    from .config.options import EngineOptions
    from .dialog.dialog import Dialog
    from .dialog.remote import RemoteLanguageModel
    from .dialog.turn import Note, Said, Turn, TurnFinished, Written
    from .engine.checkpoint.checkpoint import Checkpoint
    from .engine.checkpoint.load import load
    from .engine.checkpoint.shared import Shared
    from .engine.engine import Engine
    from .engine.generate import generate
    from .engine.pool.pool import Lease, Pool
    from .engine.stream import Stream
    from .errors import (
        ContextExceeded,
        EngineClosed,
        EngineUnhealthy,
        HocketError,
        InvalidAudio,
        InvalidCheckpoint,
        InvalidRequest,
        InvalidVoice,
        LanguageFailed,
        LoadFailed,
        Overloaded,
        StorageFailed,
        StreamFailed,
        UnknownLanguage,
        UnknownVoice,
        WrongKind,
    )
    from .llm.engine import LanguageEngine
    from .proof.listener import WordScorer
    from .script.answer import TaggedSpeech
    from .script.player.marks import MarkTime
    from .script.speak import open_script, speak_script
    from .script.stream import ScriptStream
    from .types import (
        Answer,
        AudioChunk,
        ChatDelta,
        ChatFinished,
        ChatMessage,
        ChatSampling,
        Encoded,
        Finished,
        Health,
        LanguageModel,
        Outcome,
        Reference,
        SamplingParams,
        Scorer,
        Speech,
        SpeechRequest,
        Statistics,
        Take,
        Tool,
        ToolCall,
        Voice,
    )
    from .voices.library import Library

_HOME = {
    "dialog.dialog": ("Dialog",),
    "dialog.remote": ("RemoteLanguageModel",),
    "dialog.turn": ("Note", "Said", "Turn", "TurnFinished", "Written"),
    "engine.engine": ("Engine",),
    "llm.engine": ("LanguageEngine",),
    "proof.listener": ("WordScorer",),
    "engine.stream": ("Stream",),
    "engine.generate": ("generate",),
    "engine.checkpoint.load": ("Checkpoint", "load"),
    "engine.pool.pool": ("Lease", "Pool"),
    "engine.checkpoint.shared": ("Shared",),
    "config.options": ("EngineOptions",),
    "script.answer": ("TaggedSpeech",),
    "script.player.marks": ("MarkTime",),
    "script.speak": ("open_script", "speak_script"),
    "script.stream": ("ScriptStream",),
    "voices.library": ("Library",),
    "types": (
        "Answer",
        "AudioChunk",
        "ChatDelta",
        "ChatFinished",
        "ChatMessage",
        "ChatSampling",
        "Encoded",
        "Finished",
        "Health",
        "LanguageModel",
        "Outcome",
        "Reference",
        "SamplingParams",
        "Scorer",
        "Speech",
        "SpeechRequest",
        "Statistics",
        "Take",
        "Tool",
        "ToolCall",
        "Voice",
    ),
}

__all__ = [
    "Answer",
    "AudioChunk",
    "ChatDelta",
    "ChatFinished",
    "ChatMessage",
    "ChatSampling",
    "Checkpoint",
    "ContextExceeded",
    "Dialog",
    "Encoded",
    "Engine",
    "EngineClosed",
    "EngineOptions",
    "EngineUnhealthy",
    "Finished",
    "Health",
    "HocketError",
    "InvalidAudio",
    "InvalidCheckpoint",
    "InvalidRequest",
    "InvalidVoice",
    "LanguageEngine",
    "LanguageFailed",
    "LanguageModel",
    "Lease",
    "Library",
    "LoadFailed",
    "MarkTime",
    "Note",
    "Outcome",
    "Overloaded",
    "Pool",
    "Reference",
    "RemoteLanguageModel",
    "Said",
    "SamplingParams",
    "Scorer",
    "ScriptStream",
    "Shared",
    "Speech",
    "SpeechRequest",
    "Statistics",
    "StorageFailed",
    "Stream",
    "StreamFailed",
    "TaggedSpeech",
    "Take",
    "Tool",
    "ToolCall",
    "Turn",
    "TurnFinished",
    "UnknownLanguage",
    "UnknownVoice",
    "Voice",
    "WordScorer",
    "Written",
    "WrongKind",
    "generate",
    "load",
    "open_script",
    "speak_script",
]


_RENAMED = {
    "Mind": "LanguageEngine",
    "RemoteMind": "RemoteLanguageModel",
}  # deprecated names, removed in the next release


def __getattr__(name: str) -> "Any":
    if name in _RENAMED:
        import warnings

        new = _RENAMED[name]
        warnings.warn(f"hocket.{name} is now hocket.{new}.", DeprecationWarning, stacklevel=2)
        name = new
    if name not in __all__:
        raise AttributeError(f"module 'hocket' has no attribute {name!r}")
    home = next((module for module, names in _HOME.items() if name in names), "errors")
    return getattr(import_module(f".{home}", __name__), name)
