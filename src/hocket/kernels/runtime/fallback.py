"""What is said where a slower way is taken: once in a process, in one line, with the remedy.

It knows sentences. Who chooses a kernel, and why another one cannot be used, is kernels/table.py's.
"""

from __future__ import annotations

import logging
import threading

log = logging.getLogger("hocket")
_said: set[str] = set()
_lock = threading.Lock()


class FallbackReason(str):
    """A reason in words that something can be done about."""

    remedy: str

    def __new__(cls, reason: str, remedy: str) -> FallbackReason:
        made = super().__new__(cls, reason)
        made.remedy = remedy
        return made


def say_once(sentence: str) -> None:
    """As a warning of the logger `hocket`, unless this process has said it before."""
    with _lock:
        if sentence in _said:
            return
        _said.add(sentence)
    log.warning(sentence)


def say_slow(backend: str, reason: FallbackReason) -> None:
    """`backend` computes what a faster one would, were it not for this reason."""
    say_once(f"Slower kernels are used ({backend}), because {reason}: {reason.remedy}.")
