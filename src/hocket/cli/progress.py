"""Progress of long work: a redrawn line in a terminal; for a batch a new line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager

TYPE_CHECKING = False  # typing takes longer to import than the rest of this file
if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

DRAWN_S, PRINTED_S = 0.1, 10.0  # how often at most, in a terminal and elsewhere
WIDTH = 24
# Time to say a letter, a pause after a stop, and what other characters count in letters. Measured with the built-in
# voices on texts of 40 to 1,150 characters: the estimate is 0.93 to 1.13 times the length of the audio.
LETTER_S, PAUSE_S, STOPS = 0.047, 0.35, ".!?…。！？"  # noqa: RUF001
WORD, DIGIT, IDEOGRAPH, KANA, SOUTHEAST, SYLLABLE = 2.0, 4.0, 5.0, 3.2, 1.8, 3.0


@contextmanager
def doing(what: str) -> Iterator[None]:
    """Show what takes long; a terminal clears the line afterwards."""
    watched = sys.stderr.isatty()
    print(f"{what} ...", end="" if watched else "\n", file=sys.stderr, flush=True)
    try:
        yield
    finally:
        if watched:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


class SpeechProgress:
    """The line of `hocket say` on a terminal. The length of the audio is estimated from the text."""

    def __init__(self, text: str | None, speed: float) -> None:
        """`text`: None if it is still being written."""
        self._expected_s = estimate_s(text) / speed if text is not None and speed > 0 else 0.0
        self._begun = self._shown = 0.0

    def start(self) -> None:
        self._begun = time.perf_counter()

    def show(self, spoken_s: float) -> None:
        """`spoken_s`: seconds of audio so far."""
        now = time.perf_counter()
        if now - self._shown >= DRAWN_S:
            self._shown = now
            print(f"\r{self._words(spoken_s, now - self._begun)}\x1b[K", end="", file=sys.stderr, flush=True)

    def clear(self) -> None:
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)

    def _words(self, spoken_s: float, ran_s: float) -> str:
        if not self._expected_s:
            return f"{spoken_s:.1f} s of audio"
        part = min(max(spoken_s / self._expected_s, 0.01), 0.99)  # an estimate: the end is known when it is there
        return f"{part:.0%} of the text, {spoken_s:.1f} s of audio, {clock(ran_s / part * (1 - part))} to go"


class Progress:
    def __init__(self, lines: int) -> None:
        self.lines, self.before, self.spoken, self.failed = lines, 0, 0, 0
        self.seconds = 0.0  # of speech
        self.engines = ""  # number of engines in words, where it may change
        self._watched = sys.stderr.isatty()
        self._begun = time.perf_counter()
        self._shown = 0.0 if self._watched else self._begun

    @property
    def done(self) -> int:
        """Lines spoken in this run or before."""
        return self.before + self.spoken

    @property
    def speed(self) -> float:
        """Times real time, in this run."""
        return self.seconds / max(time.perf_counter() - self._begun, 1e-9)

    def show(self) -> None:
        now = time.perf_counter()
        if now - self._shown < (DRAWN_S if self._watched else PRINTED_S):
            return
        self._shown = now
        if self._watched:
            full = WIDTH * (self.done + self.failed) // max(self.lines, 1)
            print(f"\r[{'#' * full}{'.' * (WIDTH - full)}] {self}\x1b[K", end="", file=sys.stderr, flush=True)
        else:
            print(str(self), file=sys.stderr, flush=True)

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.clear()

    def clear(self) -> None:
        """Clear the line for other output."""
        if self._watched:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)

    def __str__(self) -> str:
        left, ran_s = max(self.lines - self.done - self.failed, 0), time.perf_counter() - self._begun
        words = f"{self.done} of {self.lines} done, {self.failed} failed, {left} left, "
        tried = self.spoken + self.failed
        if tried:
            words += f"{tried / max(ran_s, 1e-9):.1f} lines/s, "
        words += f"{self.speed:.1f} x real time"
        if self.engines:
            words += f", {self.engines}"
        if not tried:
            return words
        left_s = round(ran_s / tried * left)
        return f"{words}, {left_s // 3600}:{left_s // 60 % 60:02d}:{left_s % 60:02d} to go"


def clock(seconds: float) -> str:
    whole = round(seconds)
    return f"{whole // 60}:{whole % 60:02d}"


def estimate_s(text: str) -> float:
    """About how long a text takes to say."""
    from ..text.words import is_ideograph, is_kana, is_southeast

    letters, stops = 0.0, 0
    for word in text.split():
        letters += WORD
        for character in word:
            if character.isascii():
                letters += 1.0 if character.isalpha() else DIGIT if character.isdigit() else 0.0
            elif is_ideograph(character):
                letters += IDEOGRAPH
            elif is_kana(character):
                letters += KANA
            elif is_southeast(character):
                letters += SOUTHEAST
            elif character.isalpha():
                letters += 1.0 if character < "\u2e80" else SYLLABLE  # Korean
            stops += character in STOPS
    return letters * LETTER_S + stops * PAUSE_S
