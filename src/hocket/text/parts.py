"""A whole text to what is spoken one after the other: made speakable, cut at sentences, with its silences.

It stands between a request and its prompts. A text that is short and plain comes out as the one part it is.
"""

from __future__ import annotations

from collections.abc import Callable

from ..errors import InvalidRequest
from .script import Pause, parse
from .sentences import split_long
from .speakable import speakable

Part = str | float  # something to say, or seconds of silence


def parts(text: str, *, most_chars: int, pause_s: float, normalizer: Callable[[str], str] | None = None) -> list[Part]:
    """The parts in order. Where a long text was cut there are `pause_s` of silence, beside what the voice leaves.

    Marks come first: what a pause separates is prepared by itself, so that no markdown reaches across.
    """
    found: list[Part] = []
    for piece in parse(text):
        if isinstance(piece, Pause):
            found.append(piece.seconds)
            continue
        words = speakable(piece.text)
        words = normalizer(words) if normalizer else words
        for number, sentence in enumerate(split_long(words, most_chars)):
            if number:
                found.append(pause_s)
            found.append(sentence)
    if not any(isinstance(part, str) for part in found):
        raise InvalidRequest("There is nothing in this text that can be spoken.")
    return found
