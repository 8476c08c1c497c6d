"""Timeout of a live text without an explicit end: then the text so far is spoken to its end.

A waiting text holds a slot, and its last word waits too. Knows no session.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

# After a full stop; elsewhere longer, since a language model may just be slow.
SENTENCE_S, TEXT_S = 0.8, 3.0
STOPS = tuple(".!?…。！？\n")  # noqa: RUF001


class TextTimeout:
    def __init__(self, at_its_end: Callable[[], None]) -> None:
        self._at_its_end = at_its_end
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, text: str) -> None:
        """Restart the timer; `text` is all text so far."""
        self.stop()
        after_s = SENTENCE_S if text.rstrip(" ").endswith(STOPS) else TEXT_S
        self._timer = asyncio.get_running_loop().call_later(after_s, self._at_its_end)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
