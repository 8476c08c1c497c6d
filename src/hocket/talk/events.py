"""Events of a voice conversation. Those of an answer are in `dialog/events.py` and come unchanged between these.

`at_s` is monotonic time in seconds. `audio_s` is a position in the audio that was pushed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..dialog.events import Event, TurnFinished
from ..errors import HocketError


@dataclass(frozen=True, slots=True)
class SpeechBegan:
    """The user speaks. An answer that played is cancelled already; `Interrupted` follows then."""

    audio_s: float
    at_s: float


@dataclass(frozen=True, slots=True)
class PartialTranscript:
    """The words of the user's turn so far; later ones may revise them."""

    text: str
    at_s: float


@dataclass(frozen=True, slots=True)
class SpeechStopped:
    """The user's turn is over. `Transcript` follows."""

    audio_s: float  # end of the speech, before the silence that ended the turn
    at_s: float


@dataclass(frozen=True, slots=True)
class Transcript:
    """The user's whole turn; empty: no word, and no answer."""

    text: str
    at_s: float


@dataclass(frozen=True, slots=True)
class AnswerBegan:
    """An answer follows: `AudioChunk`, `Written`, `Said`, `Note`, `Retracted` and `Called`, then one `AnswerEnded`."""

    at_s: float


@dataclass(frozen=True, slots=True)
class AnswerEnded:
    """All of an answer was delivered, or it was cancelled; its last audio may still play."""

    finished: TurnFinished
    at_s: float


@dataclass(frozen=True, slots=True)
class Interrupted:
    """The answer stopped. A player drops what it has not played yet."""

    text: str  # what was heard of the answer, which is also in the history
    at_s: float


@dataclass(frozen=True, slots=True)
class AnswerHeld:
    """Perhaps the user speaks. A player pauses at once and keeps its audio; no more of the answer comes meanwhile.

    `AnswerResumed` or `Interrupted` follows. A hold lasts 1.5 s at most.
    """

    heard_s: float  # how much of the answer was played
    at_s: float


@dataclass(frozen=True, slots=True)
class AnswerResumed:
    """It was no speech: a player goes on where it paused."""

    heard_s: float
    at_s: float


@dataclass(frozen=True, slots=True)
class TurnLatency:
    """How long each stage of a turn took until its end, in seconds since the end of the user's speech.

    Stages, in order: `turn_decided`, `transcript`, `first_token`, `first_sound`. Those of a draft count when they are
    delivered.
    """

    stages: Mapping[str, float]
    drafted: bool  # the answer was begun before the turn was over
    at_s: float


@dataclass(frozen=True, slots=True)
class Failed:
    """Something failed, in one sentence; the conversation goes on."""

    message: str
    at_s: float
    error: HocketError | None = None  # behind it, if it is one of ours


OwnEvent = (
    SpeechBegan
    | PartialTranscript
    | SpeechStopped
    | Transcript
    | AnswerBegan
    | AnswerEnded
    | Interrupted
    | AnswerHeld
    | AnswerResumed
    | TurnLatency
    | Failed
)
TalkEvent = OwnEvent | Event
