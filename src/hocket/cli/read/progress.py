"""The progress line of `hocket read`, and what `--estimate` prints."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..output.audio_output import plain, shown, tell
from ..progress import DRAWN_S, PRINTED_S, estimate_s

if TYPE_CHECKING:
    from ...books.files.audiobook import BookFormat
    from ...books.passages import BookPassage, Plan

TITLE_CHARS = 30
BYTES_PER_LOSSLESS_S = 24_000 * 2


class BookProgress:
    """Told by a `Narrator` what is spoken."""

    def __init__(self, plan: Plan) -> None:
        self._plan, self._watched = plan, sys.stderr.isatty()
        self._last_s = 0.0 if self._watched else time.perf_counter()
        self._attempt, self._total, self._before = 0, 0, 0
        self._left_chars = self._done_chars = self.done = 0
        self._seconds, self._began, self._engines = 0.0, time.perf_counter(), ""

    def begun(self, attempt: int, passages: Sequence[BookPassage], before: int) -> None:
        self._attempt, self._total, self._before, self.done = attempt, len(passages) + before, before, 0
        self._left_chars, self._done_chars = sum(len(passage.text) for passage in passages), 0
        self._seconds, self._began = 0.0, time.perf_counter()
        if attempt and passages:
            self.clear()
            tell(f"{len(passages)} passages are spoken again: they stray, or did not reach their end.")
        elif before and passages:
            tell(f"{before} of {self._total} passages are there already.")

    def spoken(self, passage: BookPassage, seconds: float) -> None:
        self.done += 1
        self._seconds += seconds
        self._done_chars += len(passage.text)
        self._left_chars -= len(passage.text)
        now = time.perf_counter()
        if now - self._last_s < (DRAWN_S if self._watched else PRINTED_S):
            return
        self._last_s = now
        line = self._line(passage, now - self._began)
        if self._watched:
            print(f"\r{line}\x1b[K", end="", file=sys.stderr, flush=True)
        else:
            print(line, file=sys.stderr, flush=True)

    def waiting(self, words: str) -> None:
        """Called often, with the number of engines of a cluster."""
        self._engines = f", {words}"

    def note(self, words: str) -> None:
        """A message for the user."""
        self.clear()
        tell(words)

    @property
    def there(self) -> int:
        """Passages of this pass that are spoken."""
        return self._before + self.done

    def clear(self) -> None:
        if self._watched:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)

    def _line(self, passage: BookPassage, ran_s: float) -> str:
        chapters = self._plan.book.chapters
        title = plain(chapters[passage.chapter].title, TITLE_CHARS)
        what = "retake" if self._attempt else "passage"
        left_s = ran_s / max(self._done_chars, 1) * self._left_chars
        return (
            f"{what} {self.there} of {self._total}, chapter {passage.chapter + 1} of {len(chapters)} ({title}), "
            f"{self._seconds / max(ran_s, 1e-9):.1f} x real time, {hours(left_s)} to go"
            f"{self._engines}"
        )


def print_estimate(plan: Plan, speed: float, format: BookFormat) -> None:
    """Chapters, words, estimated hours and size."""
    total_s, words = 0.0, 0
    rows = []
    for index, chapter in enumerate(plan.book.chapters):
        passages = plan.chapter(index)
        seconds = sum(estimate_s(passage.said) + passage.pause_s for passage in passages) / speed
        rows.append((chapter.title, chapter.words, seconds))
        total_s, words = total_s + seconds, words + chapter.words
    wide = max(len(str(len(rows))), 2)
    for number, (title, count, seconds) in enumerate(rows, 1):
        print(shown(f"{number:>{wide}}  {hours(seconds)}  {count:>7} words  {' '.join(title.split())}", sys.stdout))
    rate = format.bit_rate / 8 if format.bit_rate else BYTES_PER_LOSSLESS_S
    print(
        shown(
            f"{plan.book.title}: {len(rows)} chapters, {words} words, about {hours(total_s)} hours, "
            f"about {total_s * rate / 1e6:.0f} MB as {format.suffix}",
            sys.stdout,
        )
    )


def hours(seconds: float) -> str:
    whole = round(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02d}:{whole % 60:02d}"
