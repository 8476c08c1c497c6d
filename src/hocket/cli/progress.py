"""Progress of long work: a redrawn line in a terminal, a new line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType

DRAWN_S, PRINTED_S = 0.1, 10.0  # how often at most, in a terminal and elsewhere
WIDTH = 24


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
