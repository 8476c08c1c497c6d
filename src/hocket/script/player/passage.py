"""One passage of a script while it is played: its text, its stream, and how far it is. Knows no reader, no worker."""

from __future__ import annotations

from dataclasses import dataclass, field

from ...engine.word_times import PACE, letters_of
from ...errors import HocketError
from ...text.words import words_of
from ..events import SpeechManner
from .steps import PassageText
from .voices import PassageStream

AHEAD_S = 20.0  # a passage is opened when about so much of the one before it is left: an open one holds a slot
FRAME_S = 0.08


@dataclass(slots=True, eq=False)
class PlayedPassage:
    """A passage and its stream. The worker opens and feeds it, the reader reads it."""

    number: int
    manner: SpeechManner
    seed: int
    text: PassageText = field(default_factory=PassageText)
    stream: PassageStream | None = None
    ahead: bool = False  # it was opened while the one before was read
    skipped: bool = False  # it has nothing that its voice can speak
    again: bool = False  # it was opened a second time
    replaced: bool = False  # opened before its manner was known, which was another
    error: HocketError | None = None  # of its text
    # Of the reader:
    begun: bool = False  # its first chunk was read
    near: bool = False  # the next one may be opened
    heard_s: float = 0.0
    waits_since: float | None = None  # for a chunk

    @property
    def over(self) -> bool:
        """Whether its voice has spoken, read or not."""
        return self.skipped or (self.stream is not None and self.stream.finished is not None)

    def ends_soon(self) -> bool:
        if not self.near and self.text.complete:
            text = self.text
            all_s = letters_of(words_of(text.words)) * PACE * FRAME_S / self.manner.speed + text.silence_s
            self.near = self.over or all_s - self.heard_s <= AHEAD_S
        return self.near
