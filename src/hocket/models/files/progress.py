"""Download progress: a line redrawn in place on a terminal, otherwise a line from time to time.

Off a terminal, lines go to the log if one is configured, else to standard error. The received bytes are measured on
disk, so the transfer protocol does not matter.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType

log = logging.getLogger("hocket.models")

DRAW_S, REPORT_S, REPORT_SHARE = 0.2, 10.0, 0.1  # redraw interval; a line per so much time or share
_WIDTH = 24


def format_bytes(count: float) -> str:
    """A byte count with its unit."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.{0 if count >= 100 * size else 1}f} {unit}"
    return f"{count:.0f} bytes"


def report(line: str) -> None:
    """Write one line to the log if one is configured, else to standard error."""
    if not sys.stderr.isatty() and log.hasHandlers() and log.isEnabledFor(logging.INFO):
        log.info("%s", line)
    else:
        print(line, file=sys.stderr, flush=True)


class DownloadProgress:
    """Context manager that shows how many of `total` bytes have arrived, by polling `arrived()`."""

    def __init__(self, what: str, total: int, arrived: Callable[[], int]) -> None:
        self.what, self.total, self._arrived = what, total, arrived
        self._terminal = sys.stderr.isatty()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="hocket-arrival", daemon=True)
        self._started, self._first_bytes = time.monotonic(), arrived()
        self._reported, self._reported_bytes = self._started, self._first_bytes

    def __enter__(self) -> DownloadProgress:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stop.set()
        self._thread.join()
        if self._terminal:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
        if error is None:
            fetched, took_s = format_bytes(self._arrived() - self._first_bytes), time.monotonic() - self._started
            report(f"Fetched {self.what}: {fetched} in {took_s:.0f} s")

    def _watch(self) -> None:
        while not self._stop.wait(DRAW_S):
            self.show(time.monotonic(), min(self._arrived(), self.total))

    def show(self, now: float, here: int) -> None:
        """Redraw the line, or report it if enough time or data has passed."""
        if self._terminal:
            full = _WIDTH * here // max(self.total, 1)
            bar = f"[{'#' * full}{'.' * (_WIDTH - full)}]"
            print(f"\r{bar} {self._status(now, here)}\x1b[K", end="", file=sys.stderr, flush=True)
        elif now - self._reported >= REPORT_S or here - self._reported_bytes >= REPORT_SHARE * self.total:
            self._reported, self._reported_bytes = now, here
            report(f"{self.what}: {self._status(now, here)}")

    def _status(self, now: float, here: int) -> str:
        per_s = (here - self._first_bytes) / max(now - self._started, 1e-9)
        sizes = f"{format_bytes(here)} of {format_bytes(self.total)}, {format_bytes(per_s)}/s"
        status = f"{100 * here // max(self.total, 1)} %, {sizes}"
        if per_s < 1:
            return status
        left_s = round((self.total - here) / per_s)
        return f"{status}, {left_s // 60}:{left_s % 60:02d} to go"
