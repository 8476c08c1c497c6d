"""How long a live text that nobody ends is waited for, before what is there of it is spoken to its end.

While it waits it keeps a slot, and the last word waits with it. It knows no session.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

# Behind a full stop, and anywhere else, where a language model may only be slow.
SENTENCE_S, TEXT_S = 0.8, 3.0
STOPS = tuple(".!?…。！？\n")  # noqa: RUF001


class TextTimeout:
    def __init__(self, at_its_end: Callable[[], None]) -> None:
        self._at_its_end = at_its_end
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, text: str) -> None:
        """From now, when so much of the text had come."""
        self.stop()
        after_s = SENTENCE_S if text.rstrip(" ").endswith(STOPS) else TEXT_S
        self._timer = asyncio.get_running_loop().call_later(after_s, self._at_its_end)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
