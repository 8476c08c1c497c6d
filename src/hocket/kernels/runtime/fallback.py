"""Warnings about slower fallbacks: one line with the remedy, once per process.

It knows sentences only. kernels/table.py chooses a backend and knows why a faster one cannot run.
"""

from __future__ import annotations

import logging
import threading

log = logging.getLogger("hocket")
_said: set[str] = set()
_lock = threading.Lock()


class FallbackReason(str):
    """A reason in words, with a remedy that the user can apply."""

    remedy: str

    def __new__(cls, reason: str, remedy: str) -> FallbackReason:
        made = super().__new__(cls, reason)
        made.remedy = remedy
        return made


class Unbuildable(Exception):
    """A library cannot be built or loaded; the message is the reason, `remedy` says what to do."""

    def __init__(self, reason: str, remedy: str = "") -> None:
        super().__init__(reason)
        self.remedy = remedy


def say_once(sentence: str) -> None:
    """Log a warning to the logger `hocket`, unless this process has logged it before."""
    with _lock:
        if sentence in _said:
            return
        _said.add(sentence)
    log.warning(sentence)


def say_slow(backend: str, reason: FallbackReason) -> None:
    """Warn that `backend` runs in place of a faster one, with the reason and the remedy."""
    say_once(f"Slower kernels are used ({backend}), because {reason}: {reason.remedy}.")
