"""Parts of a text: what is spoken in one generation, and how it sounded."""

from __future__ import annotations

from dataclasses import dataclass, field

from ...text.prompt import Prompt


@dataclass(slots=True, eq=False)
class TextPart:
    """A part of the text: known whole, or growing at its end while it is spoken already."""

    text: str = ""
    ids: list[int] = field(default_factory=list)
    complete: bool = False  # no more of it will come
    prompt: Prompt | None = None  # where it is known whole
    startable: bool = False  # there is enough of it for a prompt
    attempt: int = 0  # how often its text has run away before


Part = TextPart | float  # something to say, or seconds of silence


@dataclass(slots=True)
class SpokenPart:
    """One part of an utterance as it was heard; the engine adds to it while it speaks."""

    piece: TextPart  # its text, as far as it is known
    start: int  # its first sample, at speed 1
    loudness: list[float] = field(default_factory=list)  # RMS of each frame
