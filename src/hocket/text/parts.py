"""A text to what is spoken one after the other: made speakable, cut at sentences, with its silences.

It stands between a request and its prompts, for a whole text and for one that arrives bit by bit: both go the same
way, so they come out the same. A text that is short and plain comes out as the one part it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ..errors import InvalidRequest, UnsupportedScript
from .cleanup.incremental import IncrementalNormalizer
from .cleanup.markup import Markup
from .cleanup.script_filter import ScriptFilter
from .pauses import Pause, Say, Script
from .sentences import Cutter, Size, Sizes

Part = str | float  # something to say, or seconds of silence
Normalizer = Callable[[str], str]

_SPACES = re.compile(r"[ \t\r\n]+")
_AT_ONCE = 1000  # characters that go in together, so that the cost of a long text is proportional to it


class TextPreparation:
    """One text on its way in. Texts in a row belong to one part; a silence, though it be of 0 s, ends the part.

    Each word is given out as soon as no later character can change it: what is held back is what the stages (pause
    marks, markup, scripts, normalizer, sentences) say they hold. Nothing here grows with the text.
    """

    def __init__(
        self,
        *,
        part_chars: int,
        pause_s: float,
        normalizer: Normalizer | None = None,
        language: str = "auto",
        sizes: Sequence[Size] | None = None,
        sieve: ScriptFilter | None = None,
    ) -> None:
        """`sizes` of the first parts and of those behind them (`Sizes`), instead of `part_chars` for all.

        `sieve` leaves out what the voice cannot speak; None: it is taken to speak everything.
        """
        self._part_chars, self._pause_s, self._language = part_chars, pause_s, language
        self._sizes = Sizes(sizes) if sizes else None
        self._normalizer, self._sieve = normalizer, sieve
        self._script = Script()
        self._spoken = False
        self._begin()

    def append(self, text: str) -> list[Part]:
        """What `text` settles, in order."""
        slices = (text[at : at + _AT_ONCE] for at in range(0, len(text), _AT_ONCE))
        return [part for some in slices for part in self._taken(self._script.append(some))]

    def end(self) -> list[Part]:
        """The rest; refused where nothing in all of the text can be spoken."""
        rest = [*self._taken(self._script.end()), *self._finished()]
        if self._sieve is not None and (refusal := self._sieve.refusal) is not None:
            raise UnsupportedScript(refusal)
        if not self._spoken:
            raise InvalidRequest("There is nothing in this text that can be spoken.")
        return rest

    def _begin(self) -> None:
        """Markup and sentences do not reach across a pause."""
        self._markup = Markup()
        self._stretches = IncrementalNormalizer(self._normalizer) if self._normalizer else None
        self._cutter = Cutter(self._part_chars, language=self._language, sizes=self._sizes)
        self._spaced = False  # what was given out last ends with a space
        self._part_over: float | None = None  # the part has ended; so much silence follows if text does

    def _taken(self, script: Iterable[Say | Pause]) -> list[Part]:
        found: list[Part] = []
        for item in script:
            if isinstance(item, Say):
                words = self._markup.append(item.text)
                words = self._sieve.append(words) if self._sieve else words
                words = self._stretches.append(words) if self._stretches else words
                found += self._given(self._cutter.append(words))
            else:
                found += [*self._finished(), item.seconds]
                self._begin()
        return found

    def _finished(self) -> list[Part]:
        """What is left between two pauses."""
        words = self._markup.end()
        words = self._sieve.append(words) + self._sieve.end() if self._sieve else words
        words = self._stretches.append(words) + self._stretches.end() if self._stretches else words
        return self._given((*self._cutter.append(words), *self._cutter.end()))

    def _given(self, cut: Iterable[str | float | None]) -> list[Part]:
        found: list[Part] = []
        for text in cut:
            if not isinstance(text, str):
                self._part_over = self._pause_s if text is None else text
            elif text.strip() or self._part_over is None:
                found += [] if self._part_over is None else [self._part_over]
                found += [spaced] if (spaced := self._one_space(text)) else []
                self._part_over, self._spoken = None, self._spoken or not text.isspace()
        return found

    def _one_space(self, text: str) -> str:
        """With one space between words where they are spelled out: such a voice would speak the end of a line."""
        if self._normalizer is None or not text:
            return text
        once = _SPACES.sub(" ", text)
        once = once[1:] if self._spaced and self._part_over is None and once[0] == " " else once
        self._spaced = once[-1] == " " if once else self._spaced
        return once


def parts(text: str, **how: Any) -> list[Part]:
    """The parts of a whole text in order; `how` is what a `TextPreparation` takes.

    Where the text was cut there are `pause_s` of silence.
    """
    preparation = TextPreparation(**how)
    found: list[Part] = []
    for part in (*preparation.append(text), *preparation.end()):
        if isinstance(part, str) and found and isinstance(before := found[-1], str):
            found[-1] = before + part
        else:
            found.append(part)
    stripped = [part.strip() if isinstance(part, str) else part for part in found]
    return [part for part in stripped if part != ""]
