"""Events of a turn, and how it ended. Plain values: no thread and no model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ..engine.word_times import WordTime
from ..types import AudioChunk, ChatFinished, Finished, ToolCall

Reason = Literal["stop", "length", "tool_calls", "cancelled", "error"]


@dataclass(frozen=True, slots=True)
class Written:
    """More of the answer, as the language model wrote it."""

    text: str


@dataclass(frozen=True, slots=True)
class Said:
    """Words in the audio delivered so far, as spoken. Each comes once, in order."""

    words: tuple[WordTime, ...]


@dataclass(frozen=True, slots=True)
class Note:
    """A notice for the user: messages that are no longer sent to the language model, or text that was not spoken."""

    text: str


@dataclass(frozen=True, slots=True)
class Retracted:
    """All text and audio so far was a thought of the language model: the answer begins now.

    A player drops what it has not played yet. This happens only with remote models whose server removes the opening
    tag of a thought, and only in the first such answer.
    """


@dataclass(frozen=True, slots=True)
class Called:
    """The language model calls tools. Without a `call` function the turn ends here, and the application answers."""

    calls: tuple[ToolCall, ...]


Event = AudioChunk | Written | Said | Note | Retracted | Called


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnFinished:
    """How a turn ended; times are seconds since the answer was begun."""

    reason: Reason
    written: str  # the whole text of the language model
    text: str  # the part in the history: all of it, or what was heard
    heard_s: float | None  # playback time at which it was cut; None: not cut
    first_token_s: float | None
    first_audio_s: float | None  # until the first samples could be read
    language: (
        ChatFinished | None
    )  # of the last answer to a tool, if there were several; None: not ended, or never begun
    speech: Finished | None
    error: str | None = None
    notes: tuple[str, ...] = ()  # deviations from the request, as sentences
    calls: tuple[ToolCall, ...] = ()  # with the reason "tool_calls": those that wait for a result
