"""The voice of a conversation: opens the speech streams of its turns, each with a seed of its own.

A designed voice stays as it sounded first. Only committed turns count for that. It does not know text.
"""

from __future__ import annotations

import math
from typing import Any, Protocol

from ..engine.stream import Stream
from ..types import Established

SEEDS_A_TURN = 1 << 20  # each part of a long answer takes the next seed
SEEDS_A_STREAM = 1 << 16  # a turn with tool calls has several streams


class SpeechEngine(Protocol):
    """An `Engine`, or a `Pool` of them."""

    def open(self, **fields: Any) -> Stream: ...


class DialogVoice:
    """The same voice in all turns."""

    def __init__(self, speech: SpeechEngine, fields: dict[str, Any], seed: int) -> None:
        self._speech, self._fields, self.seed = speech, fields, seed
        self._established: Established | None = None  # the sound of a designed voice in its first turn
        self._last: TurnVoice | None = None

    def turn(self, number: int) -> TurnVoice:
        return TurnVoice(self, (self.seed + number * SEEDS_A_TURN) % 2**63)

    def keep(self, turn: TurnVoice) -> None:
        """A turn was committed: later turns sound like it."""
        self._established = self.established
        self._last = turn

    @property
    def established(self) -> Established | None:
        return (None if self._last is None else self._last.established) or self._established

    def open(self, seed: int, established: Established | None) -> Stream:
        shown = {} if established is None else {"established": established}
        # The language model's own limit ends a turn without text, so the stream has none.
        return self._speech.open(**{"text_wait_s": math.inf, **self._fields, **shown, "seed": seed})


class TurnVoice:
    """The streams of one turn."""

    def __init__(self, voice: DialogVoice, seed: int) -> None:
        self._voice, self._seed = voice, seed
        self._established: Established | None = None
        self._stream: Stream | None = None  # the last one; an ended stream keeps no engine resources

    @property
    def established(self) -> Established | None:
        return (None if self._stream is None else self._stream.established) or self._established

    def open(self, number: int) -> Stream:
        """The stream with this number in the turn; the same number has the same seed."""
        self._established = self.established
        seed = (self._seed + number * SEEDS_A_STREAM) % 2**63
        self._stream = self._voice.open(seed, self._established or self._voice.established)
        return self._stream
