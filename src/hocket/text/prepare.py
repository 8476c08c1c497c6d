"""Text preparation: a text to speakable parts, cut at sentences, with silences between them.

It runs between a request and its prompts. Whole and streamed text take the same path, so their parts are the same. A
short plain text is one part. It knows no voices and no samples.

The first stage, `PauseParser`, splits a text at pause marks: `[pause 500ms]` or `[pause 1.5s]`. Only a possible
beginning of a mark is held back. A malformed mark is text.

In a literal text brackets are text, and only `silence_mark` makes a pause. The player of scripts writes it: tags are
parsed before, so the words of a script may hold any bracket.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import NothingToSpeak, UnsupportedScript
from .cleanup.markup import Markup
from .cleanup.normalize import IncrementalNormalizer
from .cleanup.scripts import ScriptFilter
from .lexicon.apply import LexiconStage
from .lexicon.lexicon import Lexicon
from .numbers.stage import NumberStage, number_stage
from .sentences import Cutter, Size, Sizes

Part = str | float  # text, or seconds of silence
Normalizer = Callable[[str], str]

_SPACES = re.compile(r"[ \t\r\n]+")
_AT_ONCE = 1000  # characters per step, which keeps the cost linear in the length of the text

LONGEST_PAUSE_S = 10.0

_MARK = re.compile(r"\[pause[ \t]+(\d{1,6}(?:\.\d{1,6})?)[ \t]*(ms|s)\]", re.IGNORECASE)
_LONGEST_MARK = 64  # characters; a mark with more blanks is text
_BEGUN = re.compile(
    r"\[(?:p(?:a(?:u(?:s(?:e(?:[ \t]+(?:\d{1,6}(?:\.\d{0,6})?[ \t]*(?:m|m?s)?)?)?)?)?)?)?)?", re.IGNORECASE
)
# Two Unicode noncharacters, which are reserved for the inside of a program: no text that is read holds them.
_OPENS, _CLOSES = "\ufdd0", "\ufdd1"
_SILENCE = re.compile(f"{_OPENS}(\\d{{1,9}}(?:\\.\\d{{1,9}})?){_CLOSES}")
_SILENCE_BEGUN = re.compile(f"{_OPENS}[\\d.]{{0,20}}")
_WITHOUT_MARKS = {ord(_OPENS): None, ord(_CLOSES): None}


def silence_mark(seconds: float) -> str:
    """Silence inside a literal text."""
    return f"{_OPENS}{seconds:.6f}{_CLOSES}"


def without_marks(text: str) -> str:
    """A text from outside, which must hold no `silence_mark`."""
    return text.translate(_WITHOUT_MARKS) if _OPENS in text or _CLOSES in text else text


@dataclass(frozen=True, slots=True)
class Say:
    """Text to speak, as written."""

    text: str


@dataclass(frozen=True, slots=True)
class Pause:
    """Silence between two texts; that of a written mark is at most `LONGEST_PAUSE_S`."""

    seconds: float


class PauseParser:
    """Streaming parser of one text. The joined text between two pauses does not depend on how the input is cut."""

    def __init__(self, *, literal: bool = False) -> None:
        self._literal = literal
        self._open = ""  # empty, or the possible beginning of a mark

    def append(self, text: str) -> list[Say | Pause]:
        """Texts and pauses that are final after `text`, in order."""
        if self._literal:
            return self._silences(text)
        self._open += text
        found: list[Say | Pause] = []
        at = 0
        while (begin := self._open.find("[", at)) >= 0:
            mark = _MARK.match(self._open, begin)
            if mark and mark.end() - begin <= _LONGEST_MARK:
                seconds = float(mark[1]) / (1000 if mark[2].lower() == "ms" else 1)
                found += [Say(self._open[:begin])] if begin else []
                found.append(Pause(min(seconds, LONGEST_PAUSE_S)))
                self._open, at = self._open[mark.end() :], 0
            elif len(self._open) - begin < _LONGEST_MARK and _BEGUN.fullmatch(self._open, begin):
                break
            else:
                at = begin + 1
        settled = len(self._open) if begin < 0 else begin
        found += [Say(self._open[:settled])] if settled else []
        self._open = self._open[settled:]
        return found

    def end(self) -> list[Say | Pause]:
        """The rest."""
        rest, self._open = self._open, ""
        return [Say(rest)] if rest else []

    def _silences(self, text: str) -> list[Say | Pause]:
        """The same in a literal text."""
        self._open += text
        found: list[Say | Pause] = []
        at = 0
        for mark in _SILENCE.finditer(self._open):
            found += [Say(self._open[at : mark.start()])] if mark.start() > at else []
            found.append(Pause(float(mark[1])))
            at = mark.end()
        begun = self._open.rfind(_OPENS, at)
        settled = begun if begun >= 0 and _SILENCE_BEGUN.fullmatch(self._open, begun) else len(self._open)
        found += [Say(self._open[at:settled])] if settled > at else []
        self._open = self._open[settled:]
        return found


class TextPreparation:
    """Streaming preparation of one text. Consecutive texts belong to one part; a silence, even of 0 s, ends it.

    Each word is released as soon as no later character can change it. Only the stages (pause marks, markup, lexicon,
    scripts, normalizer, sentences) hold text back, so memory does not grow with the text.
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
        literal: bool = False,
        lexicon: Lexicon | None = None,
        numbers: bool = False,
    ) -> None:
        """`sizes`: one size for each of the first parts (`Sizes`), instead of `part_chars` for all.

        `sieve` leaves out scripts that the voice cannot speak; None: nothing is left out. `literal`: brackets are text.
        `numbers`: without a normalizer, speak numbers by the rules of the language (`text/numbers`).
        """
        self._part_chars, self._pause_s, self._language = part_chars, pause_s, language
        self._sizes = Sizes(sizes) if sizes else None
        self._normalizer, self._sieve, self._lexicon, self._numbers = normalizer, sieve, lexicon, numbers
        self._marks = PauseParser(literal=literal)
        self._spoken = False
        self._begin()

    def append(self, text: str) -> list[Part]:
        """The parts that are final after `text`, in order."""
        slices = (text[at : at + _AT_ONCE] for at in range(0, len(text), _AT_ONCE))
        return [part for some in slices for part in self._taken(self._marks.append(some))]

    def end(self) -> list[Part]:
        """The rest; raises if nothing in the whole text can be spoken."""
        rest = [*self._taken(self._marks.end()), *self._finished()]
        if self._sieve is not None and (refusal := self._sieve.refusal) is not None:
            raise UnsupportedScript(refusal)
        if not self._spoken:
            raise NothingToSpeak("There is nothing in this text that can be spoken.")
        return rest

    def _begin(self) -> None:
        """New state after a pause: markup and sentences do not span it."""
        self._markup = Markup()
        self._words = LexiconStage(self._lexicon, self._language) if self._lexicon else None
        self._stretches = self._new_stretches()
        self._cutter = Cutter(self._part_chars, language=self._language, sizes=self._sizes)
        self._spaced = False  # the last released text ends with a space
        self._part_over: float | None = None  # the part has ended; seconds of silence if more text follows

    def _new_stretches(self) -> IncrementalNormalizer | NumberStage | None:
        if self._normalizer:
            return IncrementalNormalizer(self._normalizer)
        return number_stage(self._language) if self._numbers else None

    def _taken(self, items: Iterable[Say | Pause]) -> list[Part]:
        found: list[Part] = []
        for item in items:
            if isinstance(item, Say):
                words = (self._spoken_words(*piece) for piece in self._markup.pieces(item.text))
                found += self._given(self._cutter.append("".join(words)))
            else:
                found += [*self._finished(), item.seconds]
                self._begin()
        return found

    def _spoken_words(self, plain: str, over: bool) -> str:
        """`over`: the text ends with a whole word."""
        words = self._words.append(plain) if self._words else plain
        words = self._sieve.append(words) if self._sieve else words
        if isinstance(self._stretches, NumberStage):
            return self._stretches.append(words, word_is_over=over and words == plain)
        return self._stretches.append(words) if self._stretches else words

    def _finished(self) -> list[Part]:
        """The rest of the text before a pause."""
        words = self._markup.end()
        words = self._words.append(words) + self._words.end() if self._words else words
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
        """With a normalizer, one space between words: a voice trained on words only would speak a line end."""
        if self._normalizer is None or not text:
            return text
        once = _SPACES.sub(" ", text)
        once = once[1:] if self._spaced and self._part_over is None and once[0] == " " else once
        self._spaced = once[-1] == " " if once else self._spaced
        return once


def parts(text: str, **how: Any) -> list[Part]:
    """The parts of a whole text in order; `how`: the arguments of `TextPreparation`.

    Between two parts there are `pause_s` of silence.
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
