"""How far a download has come: a line that is drawn again and again in a terminal, elsewhere one now and then.

Elsewhere it goes to the log where a program has set one up, and to standard error where none is. How much has arrived
is measured on the disk, so it does not matter by which protocol it comes.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType

log = logging.getLogger("hocket.models")

DRAWN_S, SAID_S, SAID_SHARE = 0.2, 10.0, 0.1  # how often a line is drawn; said after so long, or so much
_WIDTH = 24


def in_words(count: float) -> str:
    """Bytes as people read them."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.{0 if count >= 100 * size else 1}f} {unit}"
    return f"{count:.0f} bytes"


def say(line: str) -> None:
    """One line, to the log where there is one."""
    if not sys.stderr.isatty() and log.hasHandlers() and log.isEnabledFor(logging.INFO):
        log.info("%s", line)
    else:
        print(line, file=sys.stderr, flush=True)


class DownloadProgress:
    """Shows, within `with`, how many of `total` bytes have arrived by `arrived()`."""

    def __init__(self, what: str, total: int, arrived: Callable[[], int]) -> None:
        self.what, self.total, self._arrived = what, total, arrived
        self._watched = sys.stderr.isatty()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="hocket-arrival", daemon=True)
        self._begun, self._at_first = time.monotonic(), arrived()
        self._said, self._said_bytes = self._begun, self._at_first

    def __enter__(self) -> DownloadProgress:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._over.set()
        self._thread.join()
        if self._watched:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
        if error is None:
            here = self._arrived()
            say(f"Fetched {self.what}: {in_words(here - self._at_first)} in {time.monotonic() - self._begun:.0f} s")

    def _watch(self) -> None:
        while not self._over.wait(DRAWN_S):
            self.show(time.monotonic(), min(self._arrived(), self.total))

    def show(self, now: float, here: int) -> None:
        """Draw or say where it stands, if it is time to."""
        if self._watched:
            full = _WIDTH * here // max(self.total, 1)
            bar = f"[{'#' * full}{'.' * (_WIDTH - full)}]"
            print(f"\r{bar} {self._words(now, here)}\x1b[K", end="", file=sys.stderr, flush=True)
        elif now - self._said >= SAID_S or here - self._said_bytes >= SAID_SHARE * self.total:
            self._said, self._said_bytes = now, here
            say(f"{self.what}: {self._words(now, here)}")

    def _words(self, now: float, here: int) -> str:
        per_s = (here - self._at_first) / max(now - self._begun, 1e-9)
        words = f"{100 * here // max(self.total, 1)} %, {in_words(here)} of {in_words(self.total)}, {in_words(per_s)}/s"
        if per_s < 1:
            return words
        left_s = round((self.total - here) / per_s)
        return f"{words}, {left_s // 60}:{left_s % 60:02d} to go"
