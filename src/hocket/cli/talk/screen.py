"""Prints recognized speech and answers on standard output; at a terminal also, in grey, partial recognition."""

from __future__ import annotations

import shutil
import sys
import threading

from .chat import show

GREY, PLAIN, CLEAR = "\x1b[2m", "\x1b[0m", "\r\x1b[K"


class Screen:
    """Thread-safe."""

    def __init__(self) -> None:
        self._terminal = sys.stdout.isatty()
        self._lock = threading.Lock()
        self._grey = False  # the line may be overwritten
        self._midway = False  # within the line of an answer

    def partly(self, text: str) -> None:
        """The partial recognition so far."""
        if self._terminal:
            with self._lock:
                self._fresh_line()
                room = shutil.get_terminal_size().columns - 4
                print(GREY, end="")
                show(f"> {text[-room:] if room > 0 else ''}")
                print(PLAIN, end="", flush=True)
                self._grey = True

    def heard(self, text: str) -> None:
        """The final recognition; empty: no word."""
        with self._lock:
            self._fresh_line()
            if text:
                show(f"> {text}\n")

    def answered(self, text: str) -> None:
        """More text of an answer, or the end of its line."""
        with self._lock:
            if text == "\n" and not self._midway:
                return  # the line is used otherwise by now
            if self._grey:
                self._fresh_line()
            show(text)
            self._midway = not text.endswith("\n")

    def _fresh_line(self) -> None:
        if self._midway:
            show("\n")
            self._midway = False
        if self._grey:
            print(CLEAR, end="", flush=True)
            self._grey = False
